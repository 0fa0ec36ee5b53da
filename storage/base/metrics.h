/* Counters, gauges and histograms with labels, and their Prometheus text. Series are made once and
 * bumped with relaxed atomics; making and removing take a lock. Names are those of the operations
 * reference, without the prefix `narad_`, which the text adds. @thread any */
#ifndef ND_BASE_METRICS_H
#define ND_BASE_METRICS_H

#include "storage/base/buf.h"

struct nd_metrics;
struct nd_series; /* one name with one set of label values; owned by the registry */

enum nd_metric_kind {
    ND_METRIC_COUNTER,
    ND_METRIC_GAUGE,
    ND_METRIC_HISTOGRAM,
    ND_METRIC_AGE, /* a gauge: it holds a time, the text says how many seconds ago that was */
};

struct nd_metrics *nd_metrics_new(void);
void nd_metrics_free(struct nd_metrics *metrics);

/* Find or make the series. `labels` is `name="value",…` already escaped (nd_metrics_label helps),
 * or "" for none. `help` is shown once per name. Buckets are upper bounds, ascending, for
 * histograms only. The same name with another kind is a bug (asserted). A NULL registry gives NULL,
 * a series that is counted nowhere and that every nd_series_ function takes, so that callers need
 * no checks. */
struct nd_series *nd_metrics_counter(struct nd_metrics *m, const char *name, const char *labels,
                                     const char *help);
struct nd_series *nd_metrics_gauge(struct nd_metrics *m, const char *name, const char *labels,
                                   const char *help);
struct nd_series *nd_metrics_age(struct nd_metrics *m, const char *name, const char *labels,
                                 const char *help);
struct nd_series *nd_metrics_histogram(struct nd_metrics *m, const char *name, const char *labels,
                                       const char *help, const double *buckets,
                                       size_t buckets_count);
/* Remove every series whose first label is `label="value"`; nobody may hold them any more. */
void nd_metrics_remove(struct nd_metrics *m, const char *label, const char *value);
/* Remove one; nobody else may hold it. NULL passes. */
void nd_metrics_remove_series(struct nd_metrics *m, struct nd_series *series);

void nd_series_add(struct nd_series *series, uint64_t amount); /* counter, gauge */
void nd_series_sub(struct nd_series *series, uint64_t amount); /* gauge */
void nd_series_set(struct nd_series *series, double value);    /* gauge */
/* age: Unix time; 0: there is nothing that could be old, and the text says 0 */
void nd_series_since(struct nd_series *series, int64_t unix_ms);
void nd_series_observe(struct nd_series *series, double value);
double
nd_series_value(const struct nd_series *series); /* counter, gauge; histogram: its count; age: ms */

/* Called under no lock before each text is made, to refresh gauges that are read, not counted. */
void nd_metrics_add_collector(struct nd_metrics *m, void (*collect)(void *arg), void *arg);
/* Exposition format 0.0.4: names sorted, HELP and TYPE once each, process_* included. */
void nd_metrics_text(struct nd_metrics *m, struct nd_buf *out);
/* Appends `name="escaped value"` to the text in `out` (comma first unless it is empty). Asserts
 * that it fits: a cut label would be another series. */
void nd_metrics_label(char *out, size_t out_size, const char *name, const char *value);

#endif
