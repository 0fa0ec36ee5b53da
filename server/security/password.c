#include "server/security/password.h"

#include <crypt.h>
#include <openssl/crypto.h>
#include <string.h>

#include "storage/base/alloc.h"
#include "storage/base/wipe.h"

enum { SALT_SIZE = 16 };

struct nd_bcrypt_room {
    struct crypt_data data;
};

enum nd_err nd_password_check(struct nd_slice password, struct nd_errmsg *msg)
{
    if (password.size == 0) {
        nd_errmsg_set(msg, "password required");
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (password.size > ND_PASSWORD_SIZE_MAX) {
        nd_errmsg_set(msg, "password must be at most %d bytes", ND_PASSWORD_SIZE_MAX);
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (memchr(password.data, '\0', password.size) != NULL) {
        nd_errmsg_set(msg, "password must not hold a NUL byte");
        return ND_ERR_INVALID_ARGUMENT;
    }
    return ND_OK;
}

bool nd_password_copy(struct nd_password *out, struct nd_slice password)
{
    if (password.size > ND_PASSWORD_SIZE_MAX ||
        (password.size > 0 && memchr(password.data, '\0', password.size) != NULL)) {
        return false;
    }
    memset(out, 0, sizeof *out);
    if (password.size > 0) {
        memcpy(out->text, password.data, password.size);
    }
    return true;
}

void nd_password_wipe(struct nd_password *password)
{
    nd_wipe(password, sizeof *password);
}

struct nd_bcrypt_room *nd_bcrypt_room_new(void)
{
    return nd_xcalloc(1, sizeof(struct nd_bcrypt_room));
}

void nd_bcrypt_room_free(struct nd_bcrypt_room *room)
{
    nd_free(room);
}

bool nd_password_matches(struct nd_bcrypt_room *room, const struct nd_password *password,
                         const char *hash)
{
    if (strncmp(hash, "$2", 2) != 0) {
        return false; /* crypt(3) knows other, weaker methods */
    }
    const char *made = crypt_rn(password->text, hash, &room->data, (int)sizeof room->data);
    size_t size = strlen(hash);
    bool same = made != NULL && strlen(made) == size && CRYPTO_memcmp(made, hash, size) == 0;

    nd_wipe(&room->data, sizeof room->data);
    return same;
}

bool nd_password_hash(struct nd_bcrypt_room *room, const struct nd_password *password,
                      uint32_t cost, const struct nd_env *env,
                      char out[ND_PASSWORD_HASH_SIZE_MAX + 1])
{
    char salt[SALT_SIZE], setting[CRYPT_GENSALT_OUTPUT_SIZE];

    env->random(env->impl, salt, sizeof salt);
    const char *made = crypt_gensalt_rn("$2b$", cost, salt, SALT_SIZE, setting, sizeof setting);
    if (made != NULL) {
        made = crypt_rn(password->text, setting, &room->data, (int)sizeof room->data);
    }
    bool good = made != NULL && strlen(made) <= ND_PASSWORD_HASH_SIZE_MAX;
    if (good) {
        memcpy(out, made, strlen(made) + 1);
    }
    nd_wipe(&room->data, sizeof room->data);
    return good;
}
