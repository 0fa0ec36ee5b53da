/* Passwords and their bcrypt hashes: crypt(3) of libxcrypt. The only place that calls it. */
#ifndef ND_PASSWORD_H
#define ND_PASSWORD_H

#include "storage/base/env.h"

enum {
    ND_PASSWORD_SIZE_MAX = 72,      /* bcrypt reads no further */
    ND_PASSWORD_HASH_SIZE_MAX = 60, /* "$2b$10$", 22 digits of salt, 31 of hash */
};

/* May it become somebody's? INVALID_ARGUMENT: "password required", "password must be at most 72
 * bytes", "password must not hold a NUL byte". @thread any */
ND_CHECKED enum nd_err nd_password_check(struct nd_slice password, struct nd_errmsg *msg);

/* A password while it is being checked or hashed: a copy that is wiped by nd_password_wipe(). */
struct nd_password {
    char text[ND_PASSWORD_SIZE_MAX + 1];
};

/* False: it is too long or holds a NUL, so it is nobody's. */
ND_CHECKED bool nd_password_copy(struct nd_password *out, struct nd_slice password);
void nd_password_wipe(struct nd_password *password);

/* What crypt(3) works in, 32 KiB; of one thread. */
struct nd_bcrypt_room;
struct nd_bcrypt_room *nd_bcrypt_room_new(void);
void nd_bcrypt_room_free(struct nd_bcrypt_room *room);

/* Does the password have this hash? Takes about 60 ms at cost 10. False also for a hash that is
 * none of bcrypt. The room is left wiped. */
ND_CHECKED bool nd_password_matches(struct nd_bcrypt_room *room, const struct nd_password *password,
                                    const char *hash);
/* A new hash at 2^cost rounds, with a salt from `env`. False: crypt(3) refused. */
ND_CHECKED bool nd_password_hash(struct nd_bcrypt_room *room, const struct nd_password *password,
                                 uint32_t cost, const struct nd_env *env,
                                 char out[ND_PASSWORD_HASH_SIZE_MAX + 1]);

#endif
