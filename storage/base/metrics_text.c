/* The Prometheus text, exposition format 0.0.4, and what the process says about itself. */
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "storage/base/alloc.h"
#include "storage/base/metrics_impl.h"

enum { PROC_SIZE_MAX = 4096 };

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
    const struct nd_family *family = series->family;
    uint64_t count = 0;

    for (size_t i = 0; i <= family->buckets_count; i++) {
        count += nd_number_load(&series->counts[i]);
        nd_buf_put_text(out, "narad_");
        nd_buf_put_text(out, family->name);
        nd_buf_put_text(out, "_bucket{");
        nd_buf_put_text(out, series->set->labels);
        nd_buf_put_text(out, series->set->labels[0] == '\0' ? "le=\"" : ",le=\"");
        put_double(out, i < family->buckets_count ? family->buckets[i] : (double)INFINITY);
        nd_buf_printf(out, "\"} %" PRIu64 "\n", count);
    }
    nd_buf_put_text(out, "narad_");
    nd_buf_put_text(out, family->name);
    nd_buf_put_text(out, "_sum");
    put_braces(out, series->set->labels);
    put_double(out, nd_double_of_bits(nd_number_load(&series->value)));
    nd_buf_put_text(out, "\nnarad_");
    nd_buf_put_text(out, family->name);
    nd_buf_put_text(out, "_count");
    put_braces(out, series->set->labels);
    nd_buf_printf(out, "%" PRIu64 "\n", count);
}

static double seconds_since(double unix_ms)
{
    struct timespec wall;

    if (unix_ms == 0) {
        return 0;
    }
    (void)clock_gettime(CLOCK_REALTIME, &wall);
    double age = (double)wall.tv_sec + (double)wall.tv_nsec * 1e-9 - unix_ms / 1000;
    return age > 0 ? age : 0;
}

static void put_series(struct nd_buf *out, const struct nd_series *series)
{
    if (series->family->kind == ND_METRIC_HISTOGRAM) {
        put_histogram(out, series);
        return;
    }
    nd_buf_put_text(out, "narad_");
    nd_buf_put_text(out, series->family->name);
    put_braces(out, series->set->labels);
    if (series->family->kind == ND_METRIC_COUNTER) {
        nd_buf_printf(out, "%" PRIu64, nd_number_load(&series->value));
    } else if (series->family->kind == ND_METRIC_AGE) {
        double age = seconds_since(nd_double_of_bits(nd_number_load(&series->value)));
        nd_buf_printf(out, "%.3f", age);
    } else {
        put_double(out, nd_double_of_bits(nd_number_load(&series->value)));
    }
    nd_buf_put_u8(out, '\n');
}

static const char *kind_name(enum nd_metric_kind kind)
{
    switch (kind) {
    case ND_METRIC_COUNTER: return "counter";
    case ND_METRIC_AGE:
    case ND_METRIC_GAUGE: return "gauge";
    case ND_METRIC_HISTOGRAM: return "histogram";
    }
    ND_UNREACHABLE();
}

static void put_family(struct nd_buf *out, struct nd_family *family)
{
    if (family->count == 0) {
        return;
    }
    nd_family_order(family);
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
    struct nd_collector *collectors = nd_xcalloc(count, sizeof *collectors);
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
