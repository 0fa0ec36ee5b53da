/* What metrics.c (the registry and its numbers) and metrics_text.c (the exposition) share. */
#ifndef ND_BASE_METRICS_IMPL_H
#define ND_BASE_METRICS_IMPL_H

#include <stdatomic.h>

#include "storage/base/list.h"
#include "storage/base/metrics.h"
#include "storage/base/thread.h"

struct nd_family;
struct nd_map;

/* All numbers are bumped and read relaxed: each stands alone, and the text is no snapshot. */
struct nd_series {
    struct nd_family *family;
    char *labels;
    size_t at;                 /* in family->series */
    struct nd_list group_link; /* those with the same first label */
    _Atomic uint64_t value;    /* counter: the number; gauge and histogram sum: bits of a double */
    /* Histogram: the observations of each bucket alone, then those above them all. */
    _Atomic uint64_t counts[];
};

struct nd_family {
    char *name, *help;
    enum nd_metric_kind kind;
    double *buckets;
    size_t buckets_count;
    struct nd_series **series; /* by labels while `ordered` */
    size_t count, capacity;
    bool ordered;
};

struct nd_collector {
    void (*collect)(void *arg);
    void *arg;
};

struct nd_metrics {
    struct nd_mutex lock;
    struct nd_family **families;     /* by name; guarded by lock */
    size_t count, capacity;          /* guarded by lock */
    struct nd_map *index;            /* name and labels to series; guarded by lock */
    struct nd_map *groups;           /* first label to list of series; guarded by lock */
    struct nd_collector *collectors; /* guarded by lock */
    size_t collectors_count;         /* guarded by lock */
};

/* Put the series in order, for a text. Under the registry's lock. */
void nd_family_order(struct nd_family *family);

static inline double nd_double_of_bits(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t nd_number_load(const _Atomic uint64_t *number)
{
    return atomic_load_explicit(number, memory_order_relaxed);
}

#endif
