/* A bucket is one number: the time at which it will be full again. Taking n moves that by n times
 * the time of one; what would move it further than a second from now is refused.
 *
 * Lock order: stripe -> quota. */
#include "server/security/quota.h"

#include <inttypes.h>

#include "storage/base/alloc.h"
#include "storage/base/list.h"
#include "storage/base/map.h"
#include "storage/base/thread.h"

static const uint64_t second_ns = 1000000000;

enum {
    STRIPES = 16,
    IDLE_MAX = 16384 / STRIPES, /* a stripe */
    SWEEP = 4,                  /* idle ones looked at when somebody is asked for */
    DEBT_S = 60,
    IN_FLIGHT_RETRY_MS = 1000,
};
static const uint64_t rate_max = 10000000000; /* a second; beyond it nothing is counted */

enum rate { RATE_MESSAGES, RATE_BYTES, RATES };
enum refusal { REFUSED_IN_FLIGHT, REFUSED_MESSAGES, REFUSED_BYTES, REFUSALS };

static const char *const kind_names[ND_QUOTA_KINDS] = {"produce", "consume"};
static const char *const rate_names[RATES] = {"messages", "bytes"};

struct stripe {
    struct nd_mutex lock;
    struct nd_map *by_identity; /* guarded by lock */
    struct nd_list idle;        /* guarded by lock: without references, longest first */
    uint32_t idle_count;        /* guarded by lock */
};

struct nd_quotas {
    uint64_t in_flight[ND_QUOTA_KINDS];
    uint64_t rates[ND_QUOTA_KINDS][RATES];
    bool limited[ND_QUOTA_KINDS]; /* by anything at all */
    const struct nd_env *env;
    uint64_t seed[2];
    struct nd_series *refused[ND_QUOTA_KINDS][REFUSALS];
    struct nd_series *identities;
    struct stripe stripes[STRIPES];
};

struct nd_quota {
    struct nd_quotas *quotas;
    struct stripe *stripe;
    struct nd_list idle; /* guarded by stripe->lock */
    uint32_t refs;       /* guarded by stripe->lock */
    struct nd_mutex lock;
    uint64_t in_flight[ND_QUOTA_KINDS];      /* guarded by lock */
    uint64_t full_ns[ND_QUOTA_KINDS][RATES]; /* guarded by lock */
    size_t identity_size;
    uint8_t identity[];
};

static uint64_t now_ns(const struct nd_quotas *quotas)
{
    return quotas->env->mono_ns(quotas->env->impl);
}

/* --- buckets --- */

/* The time in which `amount` comes back; at most `max_s`. */
static uint64_t cost_ns(uint64_t amount, uint64_t rate, uint32_t max_s)
{
    if (amount / rate >= max_s) {
        return max_s * second_ns;
    }
    return amount / rate * second_ns + amount % rate * second_ns / rate;
}

static uint32_t whole_ms(uint64_t ns)
{
    return (uint32_t)((ns + 999999) / 1000000);
}

/* 0: there is enough; else the time until there is. */
static uint64_t bucket_wait_ns(uint64_t full_ns, uint64_t cost, uint64_t now)
{
    uint64_t after = ND_MAX(full_ns, now) + cost;

    return after > now + second_ns ? after - now - second_ns : 0;
}

/* --- identities --- */

static bool quota_is_settled(struct nd_quota *quota, uint64_t now)
{
    bool settled = true;

    nd_mutex_lock(&quota->lock);
    for (int kind = 0; kind < ND_QUOTA_KINDS; kind++) {
        for (int rate = 0; rate < RATES; rate++) {
            settled = settled && quota->full_ns[kind][rate] <= now;
        }
    }
    nd_mutex_unlock(&quota->lock);
    return settled;
}

static void quota_drop_locked(struct stripe *stripe, struct nd_quota *quota)
    ND_REQUIRES(stripe->lock)
{
    struct nd_slice identity = nd_slice_make(quota->identity, quota->identity_size);

    ND_ASSERT(nd_map_remove(stripe->by_identity, identity) == quota);
    nd_series_sub(quota->quotas->identities, 1);
    nd_mutex_release(&quota->lock);
    nd_free(quota);
}

static void idle_drop_locked(struct stripe *stripe, struct nd_quota *quota)
    ND_REQUIRES(stripe->lock)
{
    nd_list_remove(&quota->idle);
    stripe->idle_count--;
    quota_drop_locked(stripe, quota);
}

/* A few of those that went idle first. */
static void sweep_locked(struct stripe *stripe, uint64_t now) ND_REQUIRES(stripe->lock)
{
    int left = SWEEP;

    ND_LIST_FOREACH (&stripe->idle, link) {
        struct nd_quota *quota = ND_CONTAINER_OF(link, struct nd_quota, idle);
        if (left-- == 0) {
            return;
        }
        if (quota_is_settled(quota, now)) {
            idle_drop_locked(stripe, quota);
        }
    }
}

static struct nd_quota *quota_new_locked(struct nd_quotas *quotas, struct stripe *stripe,
                                         struct nd_slice identity) ND_REQUIRES(stripe->lock)
{
    struct nd_quota *quota = nd_xcalloc(1, sizeof *quota + identity.size);

    quota->quotas = quotas;
    quota->stripe = stripe;
    nd_list_init(&quota->idle);
    nd_mutex_init(&quota->lock);
    quota->identity_size = identity.size;
    if (identity.size > 0) {
        memcpy(quota->identity, identity.data, identity.size);
    }
    ND_ASSERT(nd_map_put(stripe->by_identity, identity, quota) == NULL);
    nd_series_add(quotas->identities, 1);
    return quota;
}

struct nd_quota *nd_quota_of(struct nd_quotas *quotas, struct nd_slice identity)
{
    struct stripe *stripe = &quotas->stripes[nd_siphash(quotas->seed, identity) % STRIPES];
    uint64_t now = now_ns(quotas);

    nd_mutex_lock(&stripe->lock);
    struct nd_quota *quota = nd_map_get(stripe->by_identity, identity);
    if (quota != NULL && quota->refs == 0) {
        nd_list_remove(&quota->idle);
        stripe->idle_count--;
    }
    sweep_locked(stripe, now);
    if (quota == NULL) {
        quota = quota_new_locked(quotas, stripe, identity);
    }
    quota->refs++;
    nd_mutex_unlock(&stripe->lock);
    return quota;
}

void nd_quota_unref(struct nd_quota *quota)
{
    if (quota == NULL) {
        return;
    }
    struct stripe *stripe = quota->stripe;
    uint64_t now = now_ns(quota->quotas);

    nd_mutex_lock(&stripe->lock);
    ND_ASSERT(quota->refs > 0);
    if (--quota->refs == 0) {
        if (quota_is_settled(quota, now)) {
            quota_drop_locked(stripe, quota);
        } else {
            if (stripe->idle_count == IDLE_MAX) {
                struct nd_list *longest = nd_list_first(&stripe->idle);
                idle_drop_locked(stripe, ND_CONTAINER_OF(longest, struct nd_quota, idle));
            }
            nd_list_append(&stripe->idle, &quota->idle);
            stripe->idle_count++;
        }
    }
    nd_mutex_unlock(&stripe->lock);
}

size_t nd_quotas_count(struct nd_quotas *quotas)
{
    size_t count = 0;

    for (int i = 0; i < STRIPES; i++) {
        nd_mutex_lock(&quotas->stripes[i].lock);
        count += nd_map_count(quotas->stripes[i].by_identity);
        nd_mutex_unlock(&quotas->stripes[i].lock);
    }
    return count;
}

/* --- life --- */

static void meters_make(struct nd_quotas *quotas, struct nd_metrics *metrics)
{
    static const char *const limits[REFUSALS] = {"in_flight", "messages", "bytes"};
    char labels[64];

    quotas->identities = nd_metrics_gauge(metrics, "quota_identities", "",
                                          "Users or addresses whose use is being counted.");
    for (int kind = 0; kind < ND_QUOTA_KINDS; kind++) {
        for (int refusal = 0; refusal < REFUSALS; refusal++) {
            labels[0] = '\0';
            nd_metrics_label(labels, sizeof labels, "kind", kind_names[kind]);
            nd_metrics_label(labels, sizeof labels, "limit", limits[refusal]);
            quotas->refused[kind][refusal] =
                nd_metrics_counter(metrics, "quota_refused_total", labels,
                                   "Operations refused by the limits of their identity.");
        }
    }
}

struct nd_quotas *nd_quotas_new(const struct nd_quota_limits *limits, const struct nd_env *env,
                                struct nd_metrics *metrics)
{
    struct nd_quotas *quotas = nd_xcalloc(1, sizeof *quotas);

    quotas->env = env;
    quotas->seed[0] = nd_env_random_u64(env);
    quotas->seed[1] = nd_env_random_u64(env);
    for (int kind = 0; kind < ND_QUOTA_KINDS; kind++) {
        uint64_t *rates = quotas->rates[kind];
        quotas->in_flight[kind] = limits->in_flight[kind];
        rates[RATE_MESSAGES] = limits->messages_per_s[kind];
        rates[RATE_BYTES] = limits->bytes_per_s[kind];
        for (int rate = 0; rate < RATES; rate++) {
            rates[rate] = rates[rate] > rate_max ? 0 : rates[rate];
        }
        quotas->limited[kind] =
            quotas->in_flight[kind] > 0 || rates[RATE_MESSAGES] > 0 || rates[RATE_BYTES] > 0;
    }
    for (int i = 0; i < STRIPES; i++) {
        nd_mutex_init(&quotas->stripes[i].lock);
        nd_list_init(&quotas->stripes[i].idle);
        quotas->stripes[i].by_identity = nd_map_new(nd_env_random_u64(env));
    }
    meters_make(quotas, metrics);
    return quotas;
}

void nd_quotas_free(struct nd_quotas *quotas)
{
    if (quotas == NULL) {
        return;
    }
    for (int i = 0; i < STRIPES; i++) {
        struct stripe *stripe = &quotas->stripes[i];
        nd_mutex_lock(&stripe->lock);
        while (!nd_list_empty(&stripe->idle)) {
            struct nd_list *link = nd_list_first(&stripe->idle);
            idle_drop_locked(stripe, ND_CONTAINER_OF(link, struct nd_quota, idle));
        }
        ND_ASSERT(nd_map_count(stripe->by_identity) == 0); /* nobody holds one */
        nd_mutex_unlock(&stripe->lock);
        nd_map_free(stripe->by_identity);
        nd_mutex_release(&stripe->lock);
    }
    nd_free(quotas);
}

/* --- operations --- */

static uint64_t weight_of(const struct nd_quotas *quotas, enum nd_quota_kind kind, uint32_t weight)
{
    return ND_MIN((uint64_t)weight, quotas->in_flight[kind]); /* 0: no cap, nothing is counted */
}

static void refuse_rate(const struct nd_quotas *quotas, enum nd_quota_kind kind, enum rate rate,
                        struct nd_errmsg *msg)
{
    nd_series_add(quotas->refused[kind][rate == RATE_BYTES ? REFUSED_BYTES : REFUSED_MESSAGES], 1);
    nd_errmsg_set(
        msg, "%s rate limit of this identity exceeded (limit %" PRIu64 " %s per second per node)",
        kind_names[kind], quotas->rates[kind][rate], rate_names[rate]);
}

static enum nd_err begin_locked(struct nd_quota *quota, enum nd_quota_kind kind, uint64_t weight,
                                const uint64_t amounts[RATES], uint32_t *retry_after_ms,
                                struct nd_errmsg *msg) ND_REQUIRES(quota->lock)
{
    const struct nd_quotas *quotas = quota->quotas;
    uint64_t now = now_ns(quotas), costs[RATES] = {0};

    if (quota->in_flight[kind] + weight > quotas->in_flight[kind]) {
        nd_series_add(quotas->refused[kind][REFUSED_IN_FLIGHT], 1);
        nd_errmsg_set(
            msg, "too many in-flight %s requests for this identity (limit %" PRIu64 " per node)",
            kind_names[kind], quotas->in_flight[kind]);
        *retry_after_ms = IN_FLIGHT_RETRY_MS;
        return ND_ERR_LIMITED;
    }
    for (int rate = 0; rate < RATES; rate++) {
        if (quotas->rates[kind][rate] == 0) {
            continue;
        }
        /* What a consume takes is charged when it is known; to begin, one must be left. */
        uint64_t amount = kind == ND_QUOTA_CONSUME ? 1 : amounts[rate];
        costs[rate] = cost_ns(amount, quotas->rates[kind][rate], 1);
        uint64_t wait = bucket_wait_ns(quota->full_ns[kind][rate], costs[rate], now);
        if (wait > 0) {
            refuse_rate(quotas, kind, (enum rate)rate, msg);
            *retry_after_ms = whole_ms(wait);
            return ND_ERR_LIMITED;
        }
    }
    for (int rate = 0; rate < RATES; rate++) {
        if (costs[rate] > 0 && kind != ND_QUOTA_CONSUME) {
            quota->full_ns[kind][rate] = ND_MAX(quota->full_ns[kind][rate], now) + costs[rate];
        }
    }
    quota->in_flight[kind] += weight;
    return ND_OK;
}

enum nd_err nd_quota_begin(struct nd_quota *quota, enum nd_quota_kind kind, uint32_t weight,
                           uint64_t bytes, uint32_t *retry_after_ms, struct nd_errmsg *msg)
{
    const uint64_t amounts[RATES] = {[RATE_MESSAGES] = weight, [RATE_BYTES] = bytes};

    if (!quota->quotas->limited[kind]) {
        return ND_OK;
    }
    nd_mutex_lock(&quota->lock);
    enum nd_err err = begin_locked(quota, kind, weight_of(quota->quotas, kind, weight), amounts,
                                   retry_after_ms, msg);
    nd_mutex_unlock(&quota->lock);
    return err;
}

void nd_quota_end(struct nd_quota *quota, enum nd_quota_kind kind, uint32_t weight)
{
    uint64_t counted = weight_of(quota->quotas, kind, weight);

    if (counted == 0) {
        return;
    }
    nd_mutex_lock(&quota->lock);
    ND_ASSERT(quota->in_flight[kind] >= counted);
    quota->in_flight[kind] -= counted;
    nd_mutex_unlock(&quota->lock);
}

void nd_quota_undo(struct nd_quota *quota, enum nd_quota_kind kind, uint32_t weight, uint64_t bytes)
{
    const uint64_t amounts[RATES] = {[RATE_MESSAGES] = weight, [RATE_BYTES] = bytes};
    const uint64_t *rates = quota->quotas->rates[kind];

    nd_quota_end(quota, kind, weight);
    nd_mutex_lock(&quota->lock);
    for (int rate = 0; rate < RATES; rate++) {
        if (rates[rate] > 0 && kind != ND_QUOTA_CONSUME) {
            uint64_t *full_ns = &quota->full_ns[kind][rate];
            *full_ns -= ND_MIN(*full_ns, cost_ns(amounts[rate], rates[rate], 1));
        }
    }
    nd_mutex_unlock(&quota->lock);
}

void nd_quota_charge(struct nd_quota *quota, enum nd_quota_kind kind, uint32_t messages,
                     uint64_t bytes)
{
    const uint64_t amounts[RATES] = {[RATE_MESSAGES] = messages, [RATE_BYTES] = bytes};
    const uint64_t *rates = quota->quotas->rates[kind];

    if (rates[RATE_MESSAGES] == 0 && rates[RATE_BYTES] == 0) {
        return;
    }
    uint64_t now = now_ns(quota->quotas);
    nd_mutex_lock(&quota->lock);
    for (int rate = 0; rate < RATES; rate++) {
        if (rates[rate] > 0) {
            uint64_t *full_ns = &quota->full_ns[kind][rate];
            uint64_t after = ND_MAX(*full_ns, now) + cost_ns(amounts[rate], rates[rate], DEBT_S);
            *full_ns = ND_MIN(after, now + (1 + DEBT_S) * second_ns);
        }
    }
    nd_mutex_unlock(&quota->lock);
}

uint32_t nd_quota_wait_ms(struct nd_quota *quota, enum nd_quota_kind kind)
{
    const uint64_t *rates = quota->quotas->rates[kind];
    uint64_t wait = 0;

    if (rates[RATE_MESSAGES] == 0 && rates[RATE_BYTES] == 0) {
        return 0;
    }
    uint64_t now = now_ns(quota->quotas);
    nd_mutex_lock(&quota->lock);
    for (int rate = 0; rate < RATES; rate++) {
        if (rates[rate] > 0) {
            uint64_t cost = cost_ns(1, rates[rate], 1);
            wait = ND_MAX(wait, bucket_wait_ns(quota->full_ns[kind][rate], cost, now));
        }
    }
    nd_mutex_unlock(&quota->lock);
    return whole_ms(wait);
}
