/* A registry of families (one name, kind and help each), which own their series. Series are many
 * and come and go with topics and partitions, so one costs little: making and removing it the same
 * however many there are, and in memory itself, its place in the family and no text. What is shared
 * stands once: the labels of a partition's series (a set), and the sets that have their first label
 * in common (a group). A family's series are put in order when a text is made. */
#include <stdio.h>
#include <stdlib.h>

#include "storage/base/alloc.h"
#include "storage/base/map.h"
#include "storage/base/metrics_impl.h"

enum { LABELS_SIZE_MAX = 4096 };

struct nd_metrics *nd_metrics_new(void)
{
    struct nd_metrics *metrics = nd_xcalloc(1, sizeof *metrics);

    nd_mutex_init(&metrics->lock);
    metrics->sets = nd_map_new((uint64_t)(uintptr_t)metrics);
    metrics->groups = nd_map_new((uint64_t)(uintptr_t)metrics);
    return metrics;
}

static void family_free(struct nd_family *family)
{
    for (size_t i = 0; i < family->count; i++) {
        nd_free(family->series[i]);
    }
    nd_free(family->series);
    nd_free(family->buckets);
    nd_free(family->name);
    nd_free(family->help);
    nd_free(family);
}

static void values_free(struct nd_map *map)
{
    struct nd_slice key;
    void *value;
    size_t at = 0;

    while (nd_map_next(map, &at, &key, &value)) {
        nd_free(value);
    }
    nd_map_free(map);
}

void nd_metrics_free(struct nd_metrics *metrics)
{
    if (metrics == NULL) {
        return;
    }
    values_free(metrics->groups);
    values_free(metrics->sets);
    for (size_t i = 0; i < metrics->count; i++) {
        family_free(metrics->families[i]);
    }
    nd_free(metrics->families);
    nd_free(metrics->collectors);
    nd_mutex_release(&metrics->lock);
    nd_free(metrics);
}

/* Makes room for one more pointer in a growing array. */
static void *grow(void *array, size_t count, size_t *capacity)
{
    if (count < *capacity) {
        return array;
    }
    *capacity = ND_MAX((size_t)8, *capacity * 2);
    return nd_xrealloc(array, *capacity * sizeof(void *));
}

/* What is asked for: the parameters of the public functions. */
struct wanted {
    const char *name, *labels, *help;
    enum nd_metric_kind kind;
    const double *buckets;
    size_t buckets_count;
};

static struct nd_family *family_new(const struct wanted *wanted)
{
    struct nd_family *family = nd_xcalloc(1, sizeof *family);

    family->name = nd_xstrdup(wanted->name);
    family->help = nd_xstrdup(wanted->help);
    family->kind = wanted->kind;
    family->buckets_count = wanted->buckets_count;
    family->buckets = nd_xcalloc(wanted->buckets_count, sizeof *family->buckets);
    for (size_t i = 0; i < wanted->buckets_count; i++) {
        ND_ASSERT(i == 0 || wanted->buckets[i] > wanted->buckets[i - 1]);
        family->buckets[i] = wanted->buckets[i];
    }
    return family;
}

static struct nd_family *family_get_locked(struct nd_metrics *m, const struct wanted *wanted)
{
    size_t low = 0, high = m->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(m->families[middle]->name, wanted->name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < m->count && strcmp(m->families[low]->name, wanted->name) == 0) {
        struct nd_family *family = m->families[low];
        ND_ASSERT(family->kind == wanted->kind);
        ND_ASSERT(family->buckets_count == wanted->buckets_count);
        return family;
    }
    m->families = grow(m->families, m->count, &m->capacity);
    memmove(m->families + low + 1, m->families + low, (m->count - low) * sizeof *m->families);
    m->families[low] = family_new(wanted);
    m->count += 1;
    return m->families[low];
}

/* `name="value"` at the start of `labels`; empty when there is none. */
static struct nd_slice first_label(const char *labels)
{
    bool quoted = false;
    const char *at = labels;

    for (; *at != '\0' && (quoted || *at != ','); at++) {
        if (quoted && *at == '\\' && at[1] != '\0') {
            at += 1;
        } else if (*at == '"') {
            quoted = !quoted;
        }
    }
    return nd_slice_make(labels, (size_t)(at - labels));
}

static void group_join_locked(struct nd_metrics *m, struct nd_label_set *set)
{
    struct nd_slice label = first_label(set->labels);
    struct nd_list *group = nd_map_get(m->groups, label);

    if (group == NULL) {
        group = nd_xmalloc(sizeof *group);
        nd_list_init(group);
        (void)nd_map_put(m->groups, label, group);
    }
    nd_list_append(group, &set->group_link);
}

static struct nd_label_set *set_get_locked(struct nd_metrics *m, const char *labels)
{
    struct nd_slice key = nd_slice_str(labels);

    if (m->recent != NULL && strcmp(m->recent->labels, labels) == 0) {
        return m->recent;
    }
    struct nd_label_set *set = nd_map_get(m->sets, key);
    if (set == NULL) {
        set = nd_xcalloc(1, sizeof *set + key.size + 1);
        memcpy(set->labels, labels, key.size);
        nd_list_init(&set->group_link);
        group_join_locked(m, set);
        (void)nd_map_put(m->sets, key, set);
    }
    m->recent = set;
    return set;
}

static struct nd_series *series_add_locked(struct nd_label_set *set, struct nd_family *family)
{
    size_t counts = family->kind == ND_METRIC_HISTOGRAM ? family->buckets_count + 1 : 0;
    struct nd_series *series = nd_xcalloc(1, sizeof *series + counts * sizeof series->counts[0]);

    series->family = family;
    series->set = set;
    series->next = set->first;
    set->first = series;
    series->at = family->count;
    family->series = grow(family->series, family->count, &family->capacity);
    family->series[family->count++] = series;
    family->ordered = false;
    return series;
}

static struct nd_series *series_get(struct nd_metrics *m, const struct wanted *wanted)
{
    if (m == NULL) {
        return NULL;
    }
    nd_mutex_lock(&m->lock);
    struct nd_family *family = family_get_locked(m, wanted);
    struct nd_label_set *set = set_get_locked(m, wanted->labels);
    struct nd_series *series = set->first;
    while (series != NULL && series->family != family) {
        series = series->next;
    }
    if (series == NULL) {
        series = series_add_locked(set, family);
    }
    nd_mutex_unlock(&m->lock);
    return series;
}

struct nd_series *nd_metrics_counter(struct nd_metrics *m, const char *name, const char *labels,
                                     const char *help)
{
    const struct wanted wanted = {name, labels, help, ND_METRIC_COUNTER, NULL, 0};

    return series_get(m, &wanted);
}

struct nd_series *nd_metrics_gauge(struct nd_metrics *m, const char *name, const char *labels,
                                   const char *help)
{
    const struct wanted wanted = {name, labels, help, ND_METRIC_GAUGE, NULL, 0};

    return series_get(m, &wanted);
}

struct nd_series *nd_metrics_age(struct nd_metrics *m, const char *name, const char *labels,
                                 const char *help)
{
    const struct wanted wanted = {name, labels, help, ND_METRIC_AGE, NULL, 0};

    return series_get(m, &wanted);
}

struct nd_series *nd_metrics_histogram(struct nd_metrics *m, const char *name, const char *labels,
                                       const char *help, const double *buckets,
                                       size_t buckets_count)
{
    const struct wanted wanted = {name, labels, help, ND_METRIC_HISTOGRAM, buckets, buckets_count};

    return series_get(m, &wanted);
}

/* Its set is the caller's business. */
static void series_free_locked(struct nd_series *series)
{
    struct nd_family *family = series->family;

    family->series[series->at] = family->series[--family->count];
    family->series[series->at]->at = series->at;
    family->ordered = false;
    nd_free(series);
}

/* Its group is the caller's business. */
static void set_free_locked(struct nd_metrics *m, struct nd_label_set *set)
{
    (void)nd_map_remove(m->sets, nd_slice_str(set->labels));
    m->recent = m->recent == set ? NULL : m->recent;
    for (struct nd_series *series = set->first, *next; series != NULL; series = next) {
        next = series->next;
        series_free_locked(series);
    }
    nd_free(set);
}

void nd_metrics_remove(struct nd_metrics *m, const char *label, const char *value)
{
    char pair[LABELS_SIZE_MAX] = "";
    struct nd_list *link;

    if (m == NULL) {
        return;
    }
    nd_metrics_label(pair, sizeof pair, label, value);
    nd_mutex_lock(&m->lock);
    struct nd_list *group = nd_map_remove(m->groups, nd_slice_str(pair));
    while (group != NULL && (link = nd_list_pop(group)) != NULL) {
        set_free_locked(m, ND_CONTAINER_OF(link, struct nd_label_set, group_link));
    }
    nd_free(group);
    nd_mutex_unlock(&m->lock);
}

void nd_metrics_remove_series(struct nd_metrics *m, struct nd_series *series)
{
    if (m == NULL || series == NULL) {
        return;
    }
    nd_mutex_lock(&m->lock);
    struct nd_label_set *set = series->set;
    struct nd_series **at = &set->first;
    while (*at != series) {
        at = &(*at)->next;
    }
    *at = series->next;
    series_free_locked(series);
    if (set->first == NULL) {
        nd_list_remove(&set->group_link);
        set_free_locked(m, set);
    }
    nd_mutex_unlock(&m->lock);
}

static int series_compare(const void *a, const void *b)
{
    const struct nd_series *const *left = a, *const *right = b;

    return strcmp((*left)->set->labels, (*right)->set->labels);
}

void nd_family_order(struct nd_family *family)
{
    if (family->ordered) {
        return;
    }
    qsort(family->series, family->count, sizeof family->series[0], series_compare);
    for (size_t i = 0; i < family->count; i++) {
        family->series[i]->at = i;
    }
    family->ordered = true;
}

static uint64_t bits_of_double(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void add_double(_Atomic uint64_t *number, double amount)
{
    uint64_t before = nd_number_load(number);
    uint64_t after;

    do {
        after = bits_of_double(nd_double_of_bits(before) + amount);
    } while (!atomic_compare_exchange_weak_explicit(number, &before, after, memory_order_relaxed,
                                                    memory_order_relaxed));
}

void nd_series_add(struct nd_series *series, uint64_t amount)
{
    if (series == NULL) {
        return;
    }
    if (series->family->kind == ND_METRIC_COUNTER) {
        (void)atomic_fetch_add_explicit(&series->value, amount, memory_order_relaxed);
    } else {
        ND_ASSERT(series->family->kind == ND_METRIC_GAUGE);
        add_double(&series->value, (double)amount);
    }
}

void nd_series_sub(struct nd_series *series, uint64_t amount)
{
    if (series != NULL) {
        ND_ASSERT(series->family->kind == ND_METRIC_GAUGE);
        add_double(&series->value, -(double)amount);
    }
}

void nd_series_set(struct nd_series *series, double value)
{
    if (series != NULL) {
        ND_ASSERT(series->family->kind == ND_METRIC_GAUGE);
        atomic_store_explicit(&series->value, bits_of_double(value), memory_order_relaxed);
    }
}

void nd_series_since(struct nd_series *series, int64_t unix_ms)
{
    if (series != NULL) {
        ND_ASSERT(series->family->kind == ND_METRIC_AGE);
        atomic_store_explicit(&series->value, bits_of_double((double)unix_ms),
                              memory_order_relaxed);
    }
}

void nd_series_observe(struct nd_series *series, double value)
{
    size_t bucket = 0;

    if (series == NULL) {
        return;
    }
    const struct nd_family *family = series->family;
    ND_ASSERT(family->kind == ND_METRIC_HISTOGRAM);
    while (bucket < family->buckets_count && !(value <= family->buckets[bucket])) {
        bucket += 1;
    }
    (void)atomic_fetch_add_explicit(&series->counts[bucket], 1, memory_order_relaxed);
    add_double(&series->value, value);
}

double nd_series_value(const struct nd_series *series)
{
    uint64_t count = 0;

    if (series == NULL) {
        return 0;
    }
    switch (series->family->kind) {
    case ND_METRIC_COUNTER: return (double)nd_number_load(&series->value);
    case ND_METRIC_AGE:
    case ND_METRIC_GAUGE: return nd_double_of_bits(nd_number_load(&series->value));
    case ND_METRIC_HISTOGRAM:
        for (size_t i = 0; i <= series->family->buckets_count; i++) {
            count += nd_number_load(&series->counts[i]);
        }
        return (double)count;
    }
    ND_UNREACHABLE();
}

void nd_metrics_add_collector(struct nd_metrics *m, void (*collect)(void *arg), void *arg)
{
    if (m == NULL) {
        return;
    }
    nd_mutex_lock(&m->lock);
    m->collectors = nd_xrealloc(m->collectors, (m->collectors_count + 1) * sizeof *m->collectors);
    m->collectors[m->collectors_count++] = (struct nd_collector){collect, arg};
    nd_mutex_unlock(&m->lock);
}

void nd_metrics_label(char *out, size_t out_size, const char *name, const char *value)
{
    size_t at = strnlen(out, out_size);
    int size = snprintf(out + at, out_size - at, "%s%s=\"", at == 0 ? "" : ",", name);

    ND_ASSERT(size > 0 && (size_t)size < out_size - at);
    at += (size_t)size;
    for (; *value != '\0'; value++) {
        ND_ASSERT(at + 4 <= out_size); /* an escaped byte, the quote, the terminator */
        switch (*value) {
        case '\\':
        case '"':
            out[at++] = '\\';
            out[at++] = *value;
            break;
        case '\n':
            out[at++] = '\\';
            out[at++] = 'n';
            break;
        default: out[at++] = *value;
        }
    }
    ND_ASSERT(at + 2 <= out_size);
    out[at++] = '"';
    out[at] = '\0';
}
