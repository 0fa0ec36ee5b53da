/* A registry of families (one name, kind and help each), which own their series. Families and their
 * series are kept in order when they are made, so that the text is one walk. */
#include "storage/base/metrics.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "storage/base/alloc.h"
#include "storage/base/list.h"
#include "storage/base/map.h"
#include "storage/base/thread.h"

enum { PROC_SIZE_MAX = 4096, LABELS_SIZE_MAX = 4096 };

/* All numbers are bumped and read relaxed: each stands alone, and the text is no snapshot. */
struct nd_series {
    struct family *family;
    char *labels;
    _Atomic uint64_t value; /* counter: the number; gauge and histogram sum: bits of a double */
    _Atomic uint64_t
        counts[]; /* histogram: observations in each bucket alone, then above them all */
};

struct family {
    char *name, *help;
    enum nd_metric_kind kind;
    double *buckets;
    size_t buckets_count;
    struct nd_series **series; /* by labels */
    size_t count, capacity;
};

struct collector {
    void (*collect)(void *arg);
    void *arg;
};

struct nd_metrics {
    struct nd_mutex lock;
    struct family **families;     /* by name; guarded by lock */
    size_t count, capacity;       /* guarded by lock */
    struct nd_map *index;         /* name and labels to series; guarded by lock */
    struct collector *collectors; /* guarded by lock */
    size_t collectors_count;      /* guarded by lock */
};

struct nd_metrics *nd_metrics_new(void)
{
    struct nd_metrics *metrics = nd_xcalloc(1, sizeof *metrics);

    nd_mutex_init(&metrics->lock);
    metrics->index = nd_map_new((uint64_t)(uintptr_t)metrics);
    return metrics;
}

static void series_free(struct nd_series *series)
{
    nd_free(series->labels);
    nd_free(series);
}

static void family_free(struct family *family)
{
    for (size_t i = 0; i < family->count; i++) {
        series_free(family->series[i]);
    }
    nd_free(family->series);
    nd_free(family->buckets);
    nd_free(family->name);
    nd_free(family->help);
    nd_free(family);
}

void nd_metrics_free(struct nd_metrics *metrics)
{
    if (metrics == NULL) {
        return;
    }
    for (size_t i = 0; i < metrics->count; i++) {
        family_free(metrics->families[i]);
    }
    nd_free(metrics->families);
    nd_free(metrics->collectors);
    nd_map_free(metrics->index);
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

static struct family *family_new(const struct wanted *wanted)
{
    struct family *family = nd_xcalloc(1, sizeof *family);

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

static struct family *family_get_locked(struct nd_metrics *m, const struct wanted *wanted)
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
        struct family *family = m->families[low];
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

static struct nd_series *series_add(struct family *family, const char *labels)
{
    size_t counts = family->kind == ND_METRIC_HISTOGRAM ? family->buckets_count + 1 : 0;
    struct nd_series *series = nd_xcalloc(1, sizeof *series + counts * sizeof series->counts[0]);
    size_t at = family->count;

    series->family = family;
    series->labels = nd_xstrdup(labels);
    family->series = grow(family->series, family->count, &family->capacity);
    for (; at > 0 && strcmp(family->series[at - 1]->labels, labels) > 0; at--) {
        family->series[at] = family->series[at - 1];
    }
    family->series[at] = series;
    family->count += 1;
    return series;
}

/* Names have no brace, so name and labels are told apart. nd_free. */
static char *index_key(const char *name, const char *labels)
{
    return nd_xasprintf("%s{%s", name, labels);
}

static struct nd_series *series_get(struct nd_metrics *m, const struct wanted *wanted)
{
    if (m == NULL) {
        return NULL;
    }
    char *key = index_key(wanted->name, wanted->labels);

    nd_mutex_lock(&m->lock);
    struct nd_series *series = nd_map_get(m->index, nd_slice_str(key));
    if (series == NULL) {
        series = series_add(family_get_locked(m, wanted), wanted->labels);
        (void)nd_map_put(m->index, nd_slice_str(key), series);
    }
    ND_ASSERT(series->family->kind == wanted->kind);
    nd_mutex_unlock(&m->lock);
    nd_free(key);
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

struct nd_series *nd_metrics_histogram(struct nd_metrics *m, const char *name, const char *labels,
                                       const char *help, const double *buckets,
                                       size_t buckets_count)
{
    const struct wanted wanted = {name, labels, help, ND_METRIC_HISTOGRAM, buckets, buckets_count};

    return series_get(m, &wanted);
}

/* `pair` as a whole label, not as the end of another's name: after the start or a comma that is not
 * inside a value. */
static bool labels_have(const char *labels, const char *pair)
{
    size_t size = strlen(pair);
    const char *at = labels;

    for (;;) {
        if (strncmp(at, pair, size) == 0 && (at[size] == ',' || at[size] == '\0')) {
            return true;
        }
        bool quoted = false;
        for (; *at != '\0' && (quoted || *at != ','); at++) {
            if (quoted && *at == '\\' && at[1] != '\0') {
                at += 1;
            } else if (*at == '"') {
                quoted = !quoted;
            }
        }
        if (*at == '\0') {
            return false;
        }
        at += 1;
    }
}

static void family_remove_locked(struct nd_metrics *m, struct family *family, const char *pair)
{
    size_t kept = 0;

    for (size_t i = 0; i < family->count; i++) {
        struct nd_series *series = family->series[i];
        if (labels_have(series->labels, pair)) {
            char *key = index_key(family->name, series->labels);
            (void)nd_map_remove(m->index, nd_slice_str(key));
            nd_free(key);
            series_free(series);
        } else {
            family->series[kept++] = series;
        }
    }
    family->count = kept;
}

void nd_metrics_remove(struct nd_metrics *m, const char *label, const char *value)
{
    char pair[LABELS_SIZE_MAX] = "";

    if (m == NULL) {
        return;
    }
    nd_metrics_label(pair, sizeof pair, label, value);
    nd_mutex_lock(&m->lock);
    for (size_t i = 0; i < m->count; i++) {
        family_remove_locked(m, m->families[i], pair);
    }
    nd_mutex_unlock(&m->lock);
}

static double double_of_bits(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t bits_of_double(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint64_t load(const _Atomic uint64_t *number)
{
    return atomic_load_explicit(number, memory_order_relaxed);
}

static void add_double(_Atomic uint64_t *number, double amount)
{
    uint64_t before = load(number);
    uint64_t after;

    do {
        after = bits_of_double(double_of_bits(before) + amount);
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

void nd_series_observe(struct nd_series *series, double value)
{
    size_t bucket = 0;

    if (series == NULL) {
        return;
    }
    const struct family *family = series->family;
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
    case ND_METRIC_COUNTER: return (double)load(&series->value);
    case ND_METRIC_GAUGE: return double_of_bits(load(&series->value));
    case ND_METRIC_HISTOGRAM:
        for (size_t i = 0; i <= series->family->buckets_count; i++) {
            count += load(&series->counts[i]);
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
    m->collectors[m->collectors_count++] = (struct collector){collect, arg};
    nd_mutex_unlock(&m->lock);
}

/* The shortest form that reads back as the same number. */
static void put_double(struct nd_buf *out, double value)
{
    char text[40];

    if (isnan(value)) {
        nd_buf_put_text(out, "NaN");
        return;
    }
    if (isinf(value)) {
        nd_buf_put_text(out, value > 0 ? "+Inf" : "-Inf");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    nd_buf_put_text(out, text);
}

static void put_escaped(struct nd_buf *out, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '\\': nd_buf_put_text(out, "\\\\"); break;
        case '\n': nd_buf_put_text(out, "\\n"); break;
        default: nd_buf_put_u8(out, (uint8_t)*text);
        }
    }
}

static void put_braces(struct nd_buf *out, const char *labels)
{
    if (labels[0] != '\0') {
        nd_buf_put_u8(out, '{');
        nd_buf_put_text(out, labels);
        nd_buf_put_u8(out, '}');
    }
    nd_buf_put_u8(out, ' ');
}

static void put_histogram(struct nd_buf *out, const struct nd_series *series)
{
    const struct family *family = series->family;
    uint64_t count = 0;

    for (size_t i = 0; i <= family->buckets_count; i++) {
        count += load(&series->counts[i]);
        nd_buf_put_text(out, "narad_");
        nd_buf_put_text(out, family->name);
        nd_buf_put_text(out, "_bucket{");
        nd_buf_put_text(out, series->labels);
        nd_buf_put_text(out, series->labels[0] == '\0' ? "le=\"" : ",le=\"");
        put_double(out, i < family->buckets_count ? family->buckets[i] : (double)INFINITY);
        nd_buf_printf(out, "\"} %" PRIu64 "\n", count);
    }
    nd_buf_put_text(out, "narad_");
    nd_buf_put_text(out, family->name);
    nd_buf_put_text(out, "_sum");
    put_braces(out, series->labels);
    put_double(out, double_of_bits(load(&series->value)));
    nd_buf_put_text(out, "\nnarad_");
    nd_buf_put_text(out, family->name);
    nd_buf_put_text(out, "_count");
    put_braces(out, series->labels);
    nd_buf_printf(out, "%" PRIu64 "\n", count);
}

static void put_series(struct nd_buf *out, const struct nd_series *series)
{
    if (series->family->kind == ND_METRIC_HISTOGRAM) {
        put_histogram(out, series);
        return;
    }
    nd_buf_put_text(out, "narad_");
    nd_buf_put_text(out, series->family->name);
    put_braces(out, series->labels);
    if (series->family->kind == ND_METRIC_COUNTER) {
        nd_buf_printf(out, "%" PRIu64, load(&series->value));
    } else {
        put_double(out, double_of_bits(load(&series->value)));
    }
    nd_buf_put_u8(out, '\n');
}

static const char *kind_name(enum nd_metric_kind kind)
{
    switch (kind) {
    case ND_METRIC_COUNTER: return "counter";
    case ND_METRIC_GAUGE: return "gauge";
    case ND_METRIC_HISTOGRAM: return "histogram";
    }
    ND_UNREACHABLE();
}

static void put_family(struct nd_buf *out, const struct family *family)
{
    if (family->count == 0) {
        return;
    }
    nd_buf_put_text(out, "# HELP narad_");
    nd_buf_put_text(out, family->name);
    nd_buf_put_u8(out, ' ');
    put_escaped(out, family->help);
    nd_buf_put_text(out, "\n# TYPE narad_");
    nd_buf_put_text(out, family->name);
    nd_buf_printf(out, " %s\n", kind_name(family->kind));
    for (size_t i = 0; i < family->count; i++) {
        put_series(out, family->series[i]);
    }
}

static void put_process_value(struct nd_buf *out, const char *name, const char *kind,
                              const char *help, double value)
{
    nd_buf_printf(out, "# HELP process_%s %s\n# TYPE process_%s %s\nprocess_%s ", name, help, name,
                  kind, name);
    put_double(out, value);
    nd_buf_put_u8(out, '\n');
}

/* A small file of /proc, cut at PROC_SIZE_MAX; false where it cannot be read. */
static bool proc_read(const char *path, char text[PROC_SIZE_MAX])
{
    FILE *file = fopen(path, "re");

    if (file == NULL) {
        return false;
    }
    size_t size = fread(text, 1, PROC_SIZE_MAX - 1, file);
    text[size] = '\0';
    (void)fclose(file);
    return size > 0;
}

static double open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    double count = -3; /* ".", ".." and the one that reads */

    if (dir == NULL) {
        return 0;
    }
    while (readdir(dir) != NULL) {
        count += 1;
    }
    (void)closedir(dir);
    return count;
}

/* Unix seconds at which the machine started. */
static double boot_seconds(void)
{
    struct timespec wall, boot;

    (void)clock_gettime(CLOCK_REALTIME, &wall);
    (void)clock_gettime(CLOCK_BOOTTIME, &boot);
    return (double)(wall.tv_sec - boot.tv_sec) + (double)(wall.tv_nsec - boot.tv_nsec) * 1e-9;
}

/* Names in order, as the rest. Where /proc is missing the values that need it are left out. */
static void put_process(struct nd_buf *out)
{
    char text[PROC_SIZE_MAX];
    unsigned long long start_ticks, virtual_bytes;
    struct timespec cpu = {0};
    long resident_pages;
    double ticks = (double)sysconf(_SC_CLK_TCK);

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    put_process_value(out, "cpu_seconds_total", "counter",
                      "Total user and system CPU time spent in seconds.",
                      (double)cpu.tv_sec + (double)cpu.tv_nsec * 1e-9);
    put_process_value(out, "open_fds", "gauge", "Number of open file descriptors.", open_files());
    if (!proc_read("/proc/self/stat", text)) {
        return;
    }
    /* The second field is the program's name in brackets and may hold anything. Of those behind it,
     * the 20th to 22nd are start time, virtual size and resident pages. */
    const char *fields = strrchr(text, ')');
    if (fields == NULL || sscanf(fields + 1,
                                 " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
                                 "%*d %*d %*d %llu %llu %ld",
                                 &start_ticks, &virtual_bytes, &resident_pages) != 3) {
        return;
    }
    put_process_value(out, "resident_memory_bytes", "gauge", "Resident memory size in bytes.",
                      (double)resident_pages * (double)sysconf(_SC_PAGESIZE));
    put_process_value(out, "start_time_seconds", "gauge",
                      "Start time of the process since the Unix epoch in seconds.",
                      boot_seconds() + (double)start_ticks / ticks);
    put_process_value(out, "virtual_memory_bytes", "gauge", "Virtual memory size in bytes.",
                      (double)virtual_bytes);
}

static void collect(struct nd_metrics *m)
{
    nd_mutex_lock(&m->lock);
    size_t count = m->collectors_count;
    struct collector *collectors = nd_xcalloc(count, sizeof *collectors);
    for (size_t i = 0; i < count; i++) {
        collectors[i] = m->collectors[i];
    }
    nd_mutex_unlock(&m->lock);

    for (size_t i = 0; i < count; i++) {
        collectors[i].collect(collectors[i].arg);
    }
    nd_free(collectors);
}

void nd_metrics_text(struct nd_metrics *m, struct nd_buf *out)
{
    if (m != NULL) {
        collect(m);
        nd_mutex_lock(&m->lock);
        for (size_t i = 0; i < m->count; i++) {
            put_family(out, m->families[i]);
        }
        nd_mutex_unlock(&m->lock);
    }
    put_process(out);
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
