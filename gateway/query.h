/* Query strings: three parsers that differ in what they forgive (docs/HTTP_API.md). Pure. What they
 * decode may hold any byte, NUL too: take sizes, not C strings. */
#ifndef ND_QUERY_H
#define ND_QUERY_H

#include "storage/base/arena.h"
#include "storage/base/err.h"
#include "storage/base/slice.h"

/* Percent and plus decoding into the arena. False: a bad escape; `bad_out` then points at its (up
 * to) three bytes, or is NULL: the arena is full. `plus`: a '+' is a space. Text without
 * anything to decode is not copied. */
ND_CHECKED bool nd_percent_decode(struct nd_slice text, bool plus, struct nd_arena *arena,
                                  struct nd_slice *out, struct nd_slice *bad_out);

/* Consume, list, get: pairs with a bad escape or a ';' count as absent, the first of a name wins,
 * an empty value is absent. False: absent. */
bool nd_query_lenient(struct nd_slice query, const char *name, struct nd_arena *arena,
                      struct nd_slice *out);

struct nd_produce_query {
    struct nd_slice key; /* size 0: none */
    bool has_partition;
    int64_t partition; /* >= 0 */
};
ND_CHECKED enum nd_err nd_query_produce(struct nd_slice query, struct nd_arena *arena,
                                        struct nd_produce_query *out, struct nd_errmsg *msg);

enum nd_ack_extend { ND_ACK_ACK, ND_ACK_EXTEND, ND_ACK_NACK };
struct nd_ack_query {
    struct nd_slice receipt_handle; /* size 0: not given */
    enum nd_ack_extend extend;
};
/* INVALID_ARGUMENT for a bad escape in the handle or in a name. A bad `extend` is told only through
 * *extend_bad_out: the handle is judged first. */
ND_CHECKED enum nd_err nd_query_ack(struct nd_slice query, struct nd_arena *arena,
                                    struct nd_ack_query *out, bool *extend_bad_out,
                                    struct nd_errmsg *msg);

/* Optional sign, digits. INVALID_ARGUMENT: 'strconv.Atoi: parsing "abc": invalid syntax' (or "value
 * out of range") with `function` as the name. */
ND_CHECKED enum nd_err nd_parse_int(struct nd_slice text, const char *function, int64_t *out,
                                    struct nd_errmsg *msg);
/* "1h30m", ".5s", "0": nanoseconds.
 * INVALID_ARGUMENT with the texts of docs/HTTP_API.md. */
ND_CHECKED enum nd_err nd_parse_duration(struct nd_slice text, int64_t *ns_out,
                                         struct nd_errmsg *msg);

#endif
