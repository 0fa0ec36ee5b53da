/* The value of an Authorization header of scheme Basic (RFC 7617), from anybody. Pure. */
#ifndef ND_BASIC_H
#define ND_BASIC_H

#include "storage/base/slice.h"

struct nd_credentials {
    struct nd_slice username, password;
};

/* "Basic dXNlcjpwYXNz" -> user and password, split at the first colon. False: anything else; that
 * counts as no credentials. The scheme in any letter case, blanks behind it, then base64 with its
 * padding and nothing more; no NUL in either part. `out` (as long as the header) holds both: what
 * is in it is the caller's to wipe, also after false. */
ND_CHECKED bool nd_basic_decode(struct nd_slice header, char *out, struct nd_credentials *parts);

#endif
