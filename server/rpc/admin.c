#include "server/rpc/admin.h"

#include <string.h>

static enum nd_err check_retention(uint64_t ms, struct nd_errmsg *msg)
{
    if (ms != 0 && ms < ND_RETENTION_MS_MIN) {
        nd_errmsg_set(msg, "retention_ms (%llu) is below the minimum of %d (1 hour)",
                      (unsigned long long)ms, ND_RETENTION_MS_MIN);
        return ND_ERR_INVALID_ARGUMENT;
    }
    return ND_OK;
}

static enum nd_err check_cap(const char *name, uint32_t value, struct nd_errmsg *msg)
{
    if (value > ND_CAP_MAX) {
        nd_errmsg_set(msg, "%s (%u) exceeds the maximum of %d", name, value, ND_CAP_MAX);
        return ND_ERR_INVALID_ARGUMENT;
    }
    return ND_OK;
}

static enum nd_err check_caps(uint32_t in_flight, uint32_t acked_ahead, struct nd_errmsg *msg)
{
    enum nd_err err = check_cap("max_in_flight_per_partition", in_flight, msg);
    return err != ND_OK ? err : check_cap("max_acked_ahead_per_partition", acked_ahead, msg);
}

static enum nd_err check_partitions(uint32_t partitions, const struct nd_topic_defaults *defaults,
                                    struct nd_errmsg *msg)
{
    if (partitions > defaults->partitions_max) {
        nd_errmsg_set(msg, "partitions (%u) exceeds topic.max_partitions (%u)", partitions,
                      defaults->partitions_max);
        return ND_ERR_INVALID_ARGUMENT;
    }
    return ND_OK;
}

enum nd_err nd_topic_create_get(const struct nd_topic_wish *wish,
                                const struct nd_topic_defaults *defaults,
                                struct nd_topic_create *out, struct nd_errmsg *msg)
{
    enum nd_err err = nd_topic_name_check(nd_slice_str(wish->name), msg);
    if (err != ND_OK) {
        return err;
    }
    memset(out, 0, sizeof *out);
    memcpy(out->name, wish->name, strlen(wish->name) + 1); /* checked: at most 255 bytes */
    out->partitions = wish->partitions == 0 ? defaults->partitions : wish->partitions;
    if (out->partitions < 3) {
        nd_errmsg_set(msg, "partitions must be >= 3 (0 = use default)");
        return ND_ERR_INVALID_ARGUMENT;
    }
    err = check_partitions(out->partitions, defaults, msg);
    out->retention_ms = wish->has_retention ? wish->retention_ms : defaults->retention_ms;
    if (err == ND_OK) {
        err = check_retention(out->retention_ms, msg);
    }
    out->visibility_timeout_ms = wish->visibility_timeout_ms == 0 ? defaults->visibility_timeout_ms
                                                                  : wish->visibility_timeout_ms;
    if (err == ND_OK && out->visibility_timeout_ms > ND_VISIBILITY_MS_MAX) {
        nd_errmsg_set(msg, "visibility_timeout_ms (%llu) exceeds the maximum of %d (12 hours)",
                      (unsigned long long)out->visibility_timeout_ms, ND_VISIBILITY_MS_MAX);
        err = ND_ERR_INVALID_ARGUMENT;
    }
    out->max_in_flight = wish->max_in_flight == 0 ? defaults->max_in_flight : wish->max_in_flight;
    out->max_acked_ahead =
        wish->max_acked_ahead == 0 ? defaults->max_acked_ahead : wish->max_acked_ahead;
    return err != ND_OK ? err : check_caps(out->max_in_flight, out->max_acked_ahead, msg);
}

enum nd_err nd_topic_alter_check(struct nd_topic_alter *alter,
                                 const struct nd_topic_defaults *defaults, struct nd_errmsg *msg)
{
    enum nd_err err = ND_OK;
    if (alter->has_retention) {
        err = check_retention(alter->retention_ms, msg);
    }
    if (err == ND_OK) {
        err = check_caps(alter->has_max_in_flight ? alter->max_in_flight : 0,
                         alter->has_max_acked_ahead ? alter->max_acked_ahead : 0, msg);
    }
    if (alter->has_max_in_flight && alter->max_in_flight == 0) {
        alter->max_in_flight = defaults->max_in_flight;
    }
    if (alter->has_max_acked_ahead && alter->max_acked_ahead == 0) {
        alter->max_acked_ahead = defaults->max_acked_ahead;
    }
    return err != ND_OK ? err : check_partitions(alter->partitions, defaults, msg);
}
