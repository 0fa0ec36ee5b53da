/* The one list of errors. Every fallible function returns enum nd_err; ND_OK is 0. Each error has
 * its gRPC status, its HTTP status and its text here, so that an error without them does not
 * compile. */
#ifndef ND_BASE_ERR_H
#define ND_BASE_ERR_H

#include "storage/base/compiler.h"

#define ND_ERR_MAP(X)                                                                              \
    /* name             gRPC HTTP  text */                                                         \
    X(INVALID_ARGUMENT, 3, 400, "invalid argument")                                                \
    X(TOO_LARGE, 3, 413, "request body too large")                                                 \
    X(UNAUTHENTICATED, 16, 401, "authentication required")                                         \
    X(PERMISSION_DENIED, 7, 403, "permission denied")                                              \
    X(NOT_FOUND, 5, 404, "not found")                                                              \
    X(TOPIC_NOT_FOUND, 5, 404, "topic not found")                                                  \
    X(ALREADY_EXISTS, 6, 409, "already exists")                                                    \
    X(TOPIC_EXISTS, 6, 409, "topic already exists")                                                \
    X(CONFLICT, 9, 409, "conflict")                                                                \
    X(STALE, 9, 410, "receipt handle no longer matches an active reservation")                     \
    X(GONE, 11, 410, "the offset is no longer stored")                                             \
    X(NOT_OWNER, 14, 421, "this node does not own the requested partition")                        \
    X(LIMITED, 8, 429, "too many requests for this identity")                                      \
    X(THROTTLED, 8, 429, "too many failed authentication attempts")                                \
    X(OVERLOADED, 8, 503, "the node is at its limit")                                              \
    X(NO_SPACE, 8, 503, "disk full")                                                               \
    X(NO_MEMORY, 8, 503, "out of memory")                                                          \
    X(UNAVAILABLE, 14, 503, "unavailable")                                                         \
    X(NOT_LEADER, 14, 503, "this node is not the metadata leader")                                 \
    X(UNKNOWN_OUTCOME, 14, 503, "the outcome is unknown")                                          \
    X(CANCELLED, 1, 503, "cancelled")                                                              \
    X(DEADLINE, 4, 503, "deadline exceeded")                                                       \
    X(UNSUPPORTED, 12, 501, "not supported")                                                       \
    X(CORRUPT, 15, 500, "stored data failed its checksum")                                         \
    X(IO, 13, 500, "input/output error")                                                           \
    X(INTERNAL, 13, 500, "internal error")

enum nd_err {
    ND_OK = 0,
#define X(name, grpc, http, text) ND_ERR_##name,
    ND_ERR_MAP(X)
#undef X
        ND_ERR_COUNT
};

/* Texts are static. `err` must be a value of the enum. @thread any */
const char *nd_err_text(enum nd_err err);
const char *nd_err_name(enum nd_err err); /* "TOPIC_NOT_FOUND" */
/* The error of that name; INTERNAL for one that is not in the list. */
enum nd_err nd_err_by_name(const char *name);
int nd_err_grpc_status(enum nd_err err);
int nd_err_http_status(enum nd_err err);

/* A human sentence about a failure, wrapped on the way up: "open segment 42.log: read index: short
 * file". May be NULL wherever it is a parameter; a full buffer cuts the end of the text. */
struct nd_errmsg {
    char text[1024];
};

void nd_errmsg_set(struct nd_errmsg *msg, const char *format, ...) ND_PRINTF(2, 3);
void nd_errmsg_wrap(struct nd_errmsg *msg, const char *format, ...) ND_PRINTF(2, 3);

/* Drop an error on purpose; `why` is for the reader and for grep. */
static inline void nd_ignore(enum nd_err err, const char *why)
{
    (void)err;
    (void)why;
}

#endif
