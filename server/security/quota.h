/* How much one identity may do at a time and a second on this node (behaviour 14.10). An identity
 * is a user, or without security the address of the client.
 *
 * A rate is a bucket of one second's worth that fills evenly. What was taken beyond it
 * (nd_quota_charge) is a debt, of a minute at most. An identity that nobody holds is forgotten once
 * its buckets are full again; of those that wait for that, at most 16384 are kept, so that a crowd
 * of addresses costs no memory. @thread any */
#ifndef ND_QUOTA_H
#define ND_QUOTA_H

#include "storage/base/env.h"
#include "storage/base/err.h"
#include "storage/base/metrics.h"

struct nd_quotas;
struct nd_quota; /* of one identity; counted */

enum nd_quota_kind { ND_QUOTA_PRODUCE, ND_QUOTA_CONSUME, ND_QUOTA_KINDS };

struct nd_quota_limits {
    uint64_t in_flight[ND_QUOTA_KINDS];      /* 0: no cap */
    uint64_t messages_per_s[ND_QUOTA_KINDS]; /* token bucket of one second's worth; 0: none */
    uint64_t bytes_per_s[ND_QUOTA_KINDS];    /* the same for payload bytes */
};

/* `limits` copied, `env` borrowed until free (its clock is asked on every thread). */
struct nd_quotas *nd_quotas_new(const struct nd_quota_limits *limits, const struct nd_env *env,
                                struct nd_metrics *metrics);
void nd_quotas_free(struct nd_quotas *quotas);    /* no quota of it is held any more; NULL passes */
size_t nd_quotas_count(struct nd_quotas *quotas); /* identities remembered */

/* The caller's reference; made when first asked for, gone with its last reference once idle. */
struct nd_quota *nd_quota_of(struct nd_quotas *quotas, struct nd_slice identity);
void nd_quota_unref(struct nd_quota *quota); /* NULL passes; nothing begun by it is left open */

/* Begin an operation that counts as `weight` (a batch: its size) of `bytes` (0: not known yet); all
 * that it takes or nothing. A weight above the cap counts as the cap, more than a second's worth as
 * a second's. LIMITED: "too many in-flight produce requests for this identity (limit N per node)"
 * or "produce rate limit of this identity exceeded (limit N messages per second per node)" (or
 * bytes), and *retry_after_ms: 1 or more. A consume pays no rate here (what it takes is not known),
 * yet is refused while the bucket is empty. OK: nd_quota_end() follows, with the same weight, or
 * nd_quota_undo(). */
ND_CHECKED enum nd_err nd_quota_begin(struct nd_quota *quota, enum nd_quota_kind kind,
                                      uint32_t weight, uint64_t bytes, uint32_t *retry_after_ms,
                                      struct nd_errmsg *msg);
void nd_quota_end(struct nd_quota *quota, enum nd_quota_kind kind, uint32_t weight);
/* Instead: it was not even tried, and costs nothing. With what it was begun with. */
void nd_quota_undo(struct nd_quota *quota, enum nd_quota_kind kind, uint32_t weight,
                   uint64_t bytes);
/* What a consume really took is paid after the fact: the bucket may go below zero. */
void nd_quota_charge(struct nd_quota *quota, enum nd_quota_kind kind, uint32_t messages,
                     uint64_t bytes);
/* In how many milliseconds the rates allow the next one; 0: now. */
uint32_t nd_quota_wait_ms(struct nd_quota *quota, enum nd_quota_kind kind);

#endif
