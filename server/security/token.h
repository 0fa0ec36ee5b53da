/* What stands for credentials in the caches: HMAC-SHA-256 of them under a random key of this
 * process. It says nothing about the password without the key, and is never stored. */
#ifndef ND_TOKEN_H
#define ND_TOKEN_H

#include "storage/base/env.h"

#include "server/security/basic.h"

struct nd_token_key;
struct nd_token {
    uint8_t bytes[32];
};

/* The key comes from `env` and dies with the object. NULL: OpenSSL refused. */
struct nd_token_key *nd_token_key_new(const struct nd_env *env);
void nd_token_key_free(struct nd_token_key *key);
/* The credentials hold no NUL (nd_basic_decode), so two that differ never make one text. @thread
 * any */
void nd_token_make(struct nd_token_key *key, const struct nd_credentials *credentials,
                   struct nd_token *out);
/* In constant time. */
bool nd_token_equal(const struct nd_token *a, const struct nd_token *b);

#endif
