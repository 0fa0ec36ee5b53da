/* Keying an HMAC costs more than using it: contexts are keyed once and begin anew for each token.
 * There are a few, each with a lock, taken in turn. */
#include "server/security/token.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

#include "storage/base/alloc.h"
#include "storage/base/thread.h"
#include "storage/base/wipe.h"

enum { MAKERS = 8 };

struct maker {
    struct nd_mutex lock;
    EVP_MAC_CTX *hmac; /* guarded by lock */
};

struct nd_token_key {
    _Atomic uint32_t turn;
    struct maker makers[MAKERS];
};

static bool maker_init(struct maker *maker, EVP_MAC *mac, const uint8_t secret[32])
{
    char digest[] = "SHA256";
    const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                 OSSL_PARAM_END};

    nd_mutex_init(&maker->lock);
    maker->hmac = EVP_MAC_CTX_new(mac);
    return maker->hmac != NULL && EVP_MAC_init(maker->hmac, secret, 32, params) == 1;
}

struct nd_token_key *nd_token_key_new(const struct nd_env *env)
{
    struct nd_token_key *key = nd_xcalloc(1, sizeof *key);
    EVP_MAC *mac = EVP_MAC_fetch(NULL, OSSL_MAC_NAME_HMAC, NULL);
    uint8_t secret[32];
    bool good = mac != NULL;

    env->random(env->impl, secret, sizeof secret);
    for (size_t i = 0; i < MAKERS; i++) {
        good = maker_init(&key->makers[i], mac, secret) && good;
    }
    nd_wipe(secret, sizeof secret);
    EVP_MAC_free(mac);
    if (!good) {
        nd_token_key_free(key);
        return NULL;
    }
    return key;
}

void nd_token_key_free(struct nd_token_key *key)
{
    if (key == NULL) {
        return;
    }
    for (size_t i = 0; i < MAKERS; i++) {
        EVP_MAC_CTX_free(key->makers[i].hmac);
        nd_mutex_release(&key->makers[i].lock);
    }
    nd_free(key);
}

void nd_token_make(struct nd_token_key *key, const struct nd_credentials *credentials,
                   struct nd_token *out)
{
    static const uint8_t between[1] = {0};
    /* relaxed: any maker will do */
    uint32_t turn = atomic_fetch_add_explicit(&key->turn, 1, memory_order_relaxed);
    struct maker *maker = &key->makers[turn % MAKERS];
    size_t size = 0;

    nd_mutex_lock(&maker->lock);
    EVP_MAC_CTX *hmac = maker->hmac;
    bool good = EVP_MAC_init(hmac, NULL, 0, NULL) == 1 &&
                EVP_MAC_update(hmac, credentials->username.data, credentials->username.size) == 1 &&
                EVP_MAC_update(hmac, between, sizeof between) == 1 &&
                EVP_MAC_update(hmac, credentials->password.data, credentials->password.size) == 1 &&
                EVP_MAC_final(hmac, out->bytes, &size, sizeof out->bytes) == 1;
    nd_mutex_unlock(&maker->lock);
    ND_ASSERT(good && size == sizeof out->bytes); /* without it anybody could be anybody */
}

bool nd_token_equal(const struct nd_token *a, const struct nd_token *b)
{
    return CRYPTO_memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}
