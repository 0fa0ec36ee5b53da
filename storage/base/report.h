/* Lines of named values, for people ("frame at=4096 size=12") or for programs (a JSON object a
 * line). For the tools that show what is on a disk: any bytes may be put in, what is written is
 * always printable. @thread one at a time */
#ifndef ND_BASE_REPORT_H
#define ND_BASE_REPORT_H

#include "storage/base/buf.h"

struct nd_report {
    bool json;
    /* Called with each line, its newline included. */
    void (*write)(void *arg, const char *line, size_t size);
    void *arg;
    struct nd_buf line; /* private */
};

void nd_report_init(struct nd_report *report, bool json,
                    void (*write)(void *arg, const char *line, size_t size), void *arg);
void nd_report_release(struct nd_report *report);

/* One line: begin, its values, end. A line beyond 16 MiB is replaced by one that says so. `kind`
 * and the names are plain words. */
void nd_report_begin(struct nd_report *report, const char *kind);
void nd_report_u64(struct nd_report *report, const char *name, uint64_t value);
void nd_report_i64(struct nd_report *report, const char *name, int64_t value);
void nd_report_id(struct nd_report *report, const char *name, uint64_t value); /* 16 hex digits */
void nd_report_bool(struct nd_report *report, const char *name, bool value);
void nd_report_text(struct nd_report *report, const char *name, const char *value);
/* Bytes as text; what is not printable ASCII is escaped, one escape a byte. */
void nd_report_bytes(struct nd_report *report, const char *name, struct nd_slice value);
void nd_report_hex(struct nd_report *report, const char *name, struct nd_slice value);
void nd_report_end(struct nd_report *report);

#endif
