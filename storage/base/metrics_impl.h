/* What metrics.c (the registry and its numbers) and metrics_text.c (the exposition) share. */
#ifndef ND_BASE_METRICS_IMPL_H
#define ND_BASE_METRICS_IMPL_H

#include <stdatomic.h>

#include "storage/base/list.h"
#include "storage/base/metrics.h"
#include "storage/base/thread.h"

struct nd_family;
struct nd_map;

/* The series that have the same labels: those of a partition, say. They are few, but for those
 * without labels, which are made once. */
struct nd_label_set {
    struct nd_list group_link; /* the sets with the same first label */
    struct nd_series *first;
    char labels[];
};

/* All numbers are bumped and read relaxed: each stands alone, and the text is no snapshot. */
struct nd_series {
    struct nd_family *family;
    struct nd_label_set *set;
    struct nd_series *next; /* of the set */
    size_t at;              /* in family->series */
    _Atomic uint64_t value; /* counter: the number; gauge and histogram sum: bits of a double */
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
    struct nd_map *sets;             /* labels to label set; guarded by lock */
    struct nd_label_set *recent;     /* asked for last: its series are made together; guarded */
    struct nd_map *groups;           /* first label to list of label sets; guarded by lock */
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
