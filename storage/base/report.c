#include "storage/base/report.h"

#include <inttypes.h>
#include <string.h>

enum { LINE_SIZE_MAX = 16 << 20 };

void nd_report_init(struct nd_report *report, bool json,
                    void (*write)(void *arg, const char *line, size_t size), void *arg)
{
    *report = (struct nd_report){.json = json, .write = write, .arg = arg};
    nd_buf_init(&report->line, LINE_SIZE_MAX);
}

void nd_report_release(struct nd_report *report)
{
    nd_buf_release(&report->line);
}

void nd_report_begin(struct nd_report *report, const char *kind)
{
    nd_buf_reset(&report->line);
    nd_buf_printf(&report->line, report->json ? "{\"kind\":\"%s\"" : "%s", kind);
}

static void name_put(struct nd_report *report, const char *name)
{
    nd_buf_printf(&report->line, report->json ? ",\"%s\":" : " %s=", name);
}

void nd_report_u64(struct nd_report *report, const char *name, uint64_t value)
{
    name_put(report, name);
    nd_buf_printf(&report->line, "%" PRIu64, value);
}

void nd_report_i64(struct nd_report *report, const char *name, int64_t value)
{
    name_put(report, name);
    nd_buf_printf(&report->line, "%" PRId64, value);
}

void nd_report_id(struct nd_report *report, const char *name, uint64_t value)
{
    name_put(report, name);
    nd_buf_printf(&report->line, report->json ? "\"%016" PRIx64 "\"" : "%016" PRIx64, value);
}

void nd_report_bool(struct nd_report *report, const char *name, bool value)
{
    name_put(report, name);
    nd_buf_put_text(&report->line, value ? "true" : "false");
}

/* Can the bytes stand in a line for people as they are? */
static bool is_plain(struct nd_slice value)
{
    for (size_t i = 0; i < value.size; i++) {
        uint8_t byte = value.data[i];
        if (byte <= ' ' || byte > '~' || byte == '"' || byte == '\\' || byte == '=') {
            return false;
        }
    }
    return value.size > 0;
}

static void escaped_put(struct nd_report *report, struct nd_slice value)
{
    nd_buf_put_u8(&report->line, '"');
    for (size_t i = 0; i < value.size; i++) {
        uint8_t byte = value.data[i];
        if (byte == '"' || byte == '\\') {
            nd_buf_put_u8(&report->line, '\\');
            nd_buf_put_u8(&report->line, byte);
        } else if (byte < ' ' || byte > '~') {
            nd_buf_printf(&report->line, report->json ? "\\u%04x" : "\\x%02x", byte);
        } else {
            nd_buf_put_u8(&report->line, byte);
        }
    }
    nd_buf_put_u8(&report->line, '"');
}

void nd_report_bytes(struct nd_report *report, const char *name, struct nd_slice value)
{
    name_put(report, name);
    if (!report->json && is_plain(value)) {
        nd_buf_put_slice(&report->line, value);
    } else {
        escaped_put(report, value);
    }
}

void nd_report_text(struct nd_report *report, const char *name, const char *value)
{
    nd_report_bytes(report, name, nd_slice_make(value, strlen(value)));
}

void nd_report_hex(struct nd_report *report, const char *name, struct nd_slice value)
{
    name_put(report, name);
    nd_buf_put_text(&report->line, report->json ? "\"" : "");
    for (size_t i = 0; i < value.size; i++) {
        nd_buf_printf(&report->line, "%02x", value.data[i]);
    }
    nd_buf_put_text(&report->line, report->json ? "\"" : "");
}

void nd_report_end(struct nd_report *report)
{
    nd_buf_put_text(&report->line, report->json ? "}\n" : "\n");
    if (nd_buf_failed(&report->line)) {
        static const char json[] = "{\"kind\":\"error\",\"what\":\"a line that is too long\"}\n";
        static const char text[] = "error what=\"a line that is too long\"\n";
        report->write(report->arg, report->json ? json : text,
                      report->json ? sizeof json - 1 : sizeof text - 1);
        return;
    }
    report->write(report->arg, (const char *)report->line.data, report->line.size);
}
