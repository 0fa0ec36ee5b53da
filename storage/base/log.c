#include "storage/base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "storage/base/alloc.h"
#include "storage/base/buf.h"
#include "storage/base/map.h"
#include "storage/base/thread.h"

enum {
    LINES_PER_WINDOW = 10,
    EVENTS_MAX = 256, /* (component, event) pairs whose rate is known at a time */
    PROBES = 8,
    PAIRS_SIZE_MAX = 16384,
    LINE_SIZE_MAX = 8 * PAIRS_SIZE_MAX, /* JSON needs up to six bytes for one */
    STALL_MS_MAX = 100,
};
#define WINDOW_NS     ((uint64_t)1000000000)
#define REMIND_NS     (60 * WINDOW_NS) /* a fault that lasts is told again */
#define FAULT_OVER_NS (10 * WINDOW_NS) /* not met for so long: it is over */

/* How often an event was seen in the second that began at `window_ns`. */
struct rate {
    uint64_t id; /* hash of component and event; 0: unused */
    uint64_t window_ns;
    uint32_t lines;
    uint32_t suppressed; /* since the last line that was written */
    uint64_t met_ns;     /* of a lasting fault: when it was met last */
};

struct nd_log {
    int file;
    _Atomic int level;
    enum nd_log_format format;
    const struct nd_env *env;
    struct nd_mutex lock;          /* held over the write, so that lines stay whole */
    struct rate rates[EVENTS_MAX]; /* guarded by lock */
    struct nd_buf line;            /* guarded by lock */
};

struct nd_log *nd_log_new(int file, enum nd_log_level level, enum nd_log_format format)
{
    struct nd_log *log = nd_xcalloc(1, sizeof *log);

    log->file = file;
    log->format = format;
    log->env = nd_env_posix();
    atomic_init(&log->level, (int)level);
    nd_mutex_init(&log->lock);
    nd_buf_init(&log->line, LINE_SIZE_MAX);
    return log;
}

void nd_log_free(struct nd_log *log)
{
    if (log != NULL) {
        nd_buf_release(&log->line);
        nd_mutex_release(&log->lock);
        nd_free(log);
    }
}

void nd_log_set_env(struct nd_log *log, const struct nd_env *env)
{
    log->env = env;
}

void nd_log_set_level(struct nd_log *log, enum nd_log_level level)
{
    /* Relaxed: a line more or less around the change is no harm. */
    atomic_store_explicit(&log->level, (int)level, memory_order_relaxed);
}

bool nd_log_level_parse(const char *text, enum nd_log_level *out)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};

    for (size_t i = 0; i < ND_ARRAY_SIZE(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (enum nd_log_level)i;
            return true;
        }
    }
    return false;
}

bool nd_log_format_parse(const char *text, enum nd_log_format *out)
{
    if (strcmp(text, "json") == 0) {
        *out = ND_LOG_JSON;
        return true;
    }
    if (strcmp(text, "text") == 0) {
        *out = ND_LOG_TEXT;
        return true;
    }
    return false;
}

static const char *level_name(enum nd_log_level level)
{
    switch (level) {
    case ND_LOG_DEBUG: return "DEBUG";
    case ND_LOG_INFO: return "INFO";
    case ND_LOG_WARN: return "WARN";
    case ND_LOG_ERROR: return "ERROR";
    }
    ND_UNREACHABLE();
}

/* Bytes of the valid UTF-8 character at `text`, or 0: overlong forms, surrogates and what lies
 * beyond U+10FFFF are not valid. The terminator ends a character early, so nothing is read past it.
 */
static size_t utf8_size(const unsigned char *text)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t size = text[0] < 0x80 ? 1 : text[0] >> 5 == 6 ? 2 : text[0] >> 4 == 14 ? 3 : 0;

    size = text[0] >> 3 == 30 ? 4 : size;
    if (size <= 1) {
        return size;
    }
    uint32_t code = text[0] & (0x7fu >> size);
    for (size_t i = 1; i < size; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
        code = code << 6 | (text[i] & 0x3fu);
    }
    bool valid = code >= least[size] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    return valid ? size : 0;
}

/* One character of a JSON string; returns the bytes taken from `text`. */
static size_t put_json_character(struct nd_buf *out, const char *text)
{
    size_t size = utf8_size((const unsigned char *)text);
    unsigned char first = (unsigned char)text[0];

    if (size == 0) {
        nd_buf_put_text(out, "\xef\xbf\xbd"); /* U+FFFD */
        return 1;
    }
    switch (first) {
    case '"': nd_buf_put_text(out, "\\\""); break;
    case '\\': nd_buf_put_text(out, "\\\\"); break;
    case '\n': nd_buf_put_text(out, "\\n"); break;
    case '\r': nd_buf_put_text(out, "\\r"); break;
    case '\t': nd_buf_put_text(out, "\\t"); break;
    default:
        if (first < 0x20 || first == 0x7f) {
            nd_buf_printf(out, "\\u%04x", first);
        } else {
            nd_buf_put(out, text, size);
        }
    }
    return size;
}

static void put_json_string(struct nd_buf *out, const char *text, const char *end)
{
    nd_buf_put_u8(out, '"');
    while (text < end) {
        text += put_json_character(out, text);
    }
    nd_buf_put_u8(out, '"');
}

static bool is_key_byte(char c, bool first)
{
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';

    return letter || (!first && ((c >= '0' && c <= '9') || c == '.' || c == '-'));
}

/* Bytes of the key at `text` if `key=` stands there, else 0. */
static size_t key_size(const char *text)
{
    size_t size = 0;

    while (is_key_byte(text[size], size == 0)) {
        size += 1;
    }
    return text[size] == '=' ? size : 0;
}

static bool pair_begins(const char *text)
{
    return *text == '\0' || (*text == ' ' && key_size(text + 1) > 0);
}

static const char *unquoted_end(const char *text)
{
    while (!pair_begins(text)) {
        text += 1;
    }
    return text;
}

/* A quote ends the value where a pair could follow; one in the middle belongs to it. */
static const char *quoted_end(const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\\' && text[1] != '\0') {
            text += 1;
        } else if (*text == '"' && pair_begins(text + 1)) {
            break;
        }
    }
    return text;
}

/* A quoted value as a JSON string: `\n`, `\r`, `\t`, `\xHH` of nd_log_quote() are undone first. */
static void put_json_quoted(struct nd_buf *out, const char *text, const char *end)
{
    static const char from[] = "nrt\"\\", to[] = "\n\r\t\"\\";

    nd_buf_put_u8(out, '"');
    while (text < end) {
        const char *known = text + 1 < end && *text == '\\' ? strchr(from, text[1]) : NULL;
        unsigned value;
        if (known != NULL && *known != '\0') {
            (void)put_json_character(out, &to[known - from]);
            text += 2;
        } else if (end - text >= 4 && sscanf(text, "\\x%2x", &value) == 1 && value < 0x80) {
            nd_buf_printf(out, "\\u%04x", value);
            text += 4;
        } else {
            text += put_json_character(out, text);
        }
    }
    nd_buf_put_u8(out, '"');
}

static bool is_own_key(const char *key, size_t size)
{
    static const char *const own[] = {"time", "level", "component", "msg", "suppressed"};

    for (size_t i = 0; i < ND_ARRAY_SIZE(own); i++) {
        if (nd_slice_equal(nd_slice_make(key, size), nd_slice_str(own[i]))) {
            return true;
        }
    }
    return false;
}

static void put_json_pairs(struct nd_buf *out, const char *text)
{
    while (*text == ' ') {
        text += 1;
    }
    while (*text != '\0') {
        size_t size = key_size(text);
        if (size == 0) { /* text before the first pair */
            const char *end = unquoted_end(text);
            nd_buf_put_text(out, ",\"text\":");
            put_json_string(out, text, end);
            text = end;
        } else {
            nd_buf_put_text(out, ",\"");
            nd_buf_put(out, text, size);
            nd_buf_put_text(out, is_own_key(text, size) ? "_\":" : "\":");
            text += size + 1;
            bool quoted = *text == '"';
            const char *end = quoted ? quoted_end(text + 1) : unquoted_end(text);
            if (quoted) {
                put_json_quoted(out, text + 1, end);
                text = *end == '"' ? end + 1 : end;
            } else {
                put_json_string(out, text, end);
                text = end;
            }
        }
        while (*text == ' ') {
            text += 1;
        }
    }
}

/* As it is, but a line stays a line and a terminal is left alone. */
static void put_plain(struct nd_buf *out, const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '\n') {
            nd_buf_put_text(out, "\\n");
        } else if (c < 0x20 || c == 0x7f) {
            nd_buf_printf(out, "\\x%02x", c);
        } else {
            nd_buf_put_u8(out, c);
        }
    }
}

static void put_time(struct nd_buf *out, int64_t wall_ms)
{
    int64_t ms = (wall_ms % 1000 + 1000) % 1000;
    time_t seconds = (time_t)((wall_ms - ms) / 1000);
    struct tm utc;

    (void)gmtime_r(&seconds, &utc);
    nd_buf_printf(out, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", utc.tm_year + 1900, utc.tm_mon + 1,
                  utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, (int)ms);
}

/* What a line consists of besides its time. */
struct event {
    enum nd_log_level level;
    const char *component, *name, *pairs;
    uint32_t suppressed;
    bool lasting;
    bool each; /* not limited */
};

static void put_json_line(struct nd_buf *out, int64_t wall_ms, const struct event *event)
{
    nd_buf_put_text(out, "{\"time\":\"");
    put_time(out, wall_ms);
    nd_buf_printf(out, "\",\"level\":\"%s\",\"component\":", level_name(event->level));
    put_json_string(out, event->component, event->component + strlen(event->component));
    nd_buf_put_text(out, ",\"msg\":");
    put_json_string(out, event->name, event->name + strlen(event->name));
    put_json_pairs(out, event->pairs);
    if (event->suppressed > 0) {
        nd_buf_printf(out, ",\"suppressed\":%u", event->suppressed);
    }
    nd_buf_put_text(out, "}\n");
}

static void put_text_line(struct nd_buf *out, int64_t wall_ms, const struct event *event)
{
    put_time(out, wall_ms);
    nd_buf_printf(out, " %-5s ", level_name(event->level));
    put_plain(out, event->component);
    nd_buf_put_text(out, ": ");
    put_plain(out, event->name);
    if (event->pairs[0] != '\0') {
        nd_buf_put_u8(out, ' ');
        put_plain(out, event->pairs);
    }
    if (event->suppressed > 0) {
        nd_buf_printf(out, " suppressed=%u", event->suppressed);
    }
    nd_buf_put_u8(out, '\n');
}

static uint64_t event_id(const char *component, const char *name, const char *pairs)
{
    static const uint64_t key[2] = {0, 0}; /* our own texts: nobody chooses collisions */
    uint64_t id = nd_siphash(key, nd_slice_str(component)) * 3;

    return ((id ^ nd_siphash(key, nd_slice_str(name))) * 5 ^ nd_siphash(key, nd_slice_str(pairs))) |
           1;
}

/* The event's place; when all its places are taken, that of the one that was quiet the longest. */
static struct rate *rate_of_locked(struct nd_log *log, uint64_t id)
{
    struct rate *oldest = NULL;

    for (uint64_t i = 0; i < PROBES; i++) {
        struct rate *rate = &log->rates[((id >> 1) + i) % EVENTS_MAX];
        if (rate->id == id) {
            return rate;
        }
        if (oldest == NULL || rate->id == 0 || rate->window_ns < oldest->window_ns) {
            oldest = rate;
        }
        if (rate->id == 0) {
            break;
        }
    }
    *oldest = (struct rate){.id = id};
    return oldest;
}

/* Is it time to tell of a fault that lasts? Its rate is kept by its whole text. */
static bool is_news_locked(struct nd_log *log, const struct event *event, uint64_t now_ns,
                           uint32_t *suppressed)
{
    struct rate *rate =
        rate_of_locked(log, event_id(event->component, event->name, event->pairs) ^ 2);
    bool lasts = rate->lines > 0 && now_ns - rate->met_ns < FAULT_OVER_NS;

    rate->met_ns = now_ns;
    if (lasts && now_ns - rate->window_ns < REMIND_NS) {
        rate->suppressed += 1;
        return false;
    }
    rate->window_ns = now_ns;
    rate->lines = 1;
    *suppressed = rate->suppressed;
    rate->suppressed = 0;
    return true;
}

static bool is_allowed_locked(struct nd_log *log, const struct event *event, uint32_t *suppressed)
{
    uint64_t now_ns = log->env->mono_ns(log->env->impl);
    uint32_t lasting = 0;

    if (event->each) {
        return true;
    }
    if (event->lasting && !is_news_locked(log, event, now_ns, &lasting)) {
        return false;
    }
    struct rate *rate =
        rate_of_locked(log, event_id(event->component, event->name, level_name(event->level)));
    if (rate->lines == 0 || now_ns - rate->window_ns >= WINDOW_NS) {
        rate->window_ns = now_ns;
        rate->lines = 0;
    }
    if (rate->lines == LINES_PER_WINDOW) {
        rate->suppressed += 1;
        return false;
    }
    rate->lines += 1;
    *suppressed = rate->suppressed + lasting;
    rate->suppressed = 0;
    return true;
}

/* One write, unless the other end takes only a part. A reader that stands still costs the line, not
 * the server. */
static void write_line(int file, struct nd_slice line)
{
    size_t done = 0;

    while (done < line.size) {
        ssize_t put = write(file, line.data + done, line.size - done);
        if (put > 0) {
            done += (size_t)put;
        } else if (put < 0 && errno == EAGAIN) {
            struct pollfd ready = {.fd = file, .events = POLLOUT};
            if (poll(&ready, 1, STALL_MS_MAX) <= 0) {
                return;
            }
        } else if (put == 0 || errno != EINTR) {
            return; /* there is nowhere to tell */
        }
    }
}

static void write_event(struct nd_log *log, struct event *event)
{
    nd_mutex_lock(&log->lock);
    if (is_allowed_locked(log, event, &event->suppressed)) {
        int64_t wall_ms = log->env->wall_ms(log->env->impl);
        nd_buf_reset(&log->line);
        switch (log->format) {
        case ND_LOG_JSON: put_json_line(&log->line, wall_ms, event); break;
        case ND_LOG_TEXT: put_text_line(&log->line, wall_ms, event); break;
        }
        if (!nd_buf_failed(&log->line)) {
            write_line(log->file, nd_buf_slice(&log->line));
        }
    }
    nd_mutex_unlock(&log->lock);
}

static void format_event(struct nd_log *log, struct event *event, const char *pairs, va_list args)
    __attribute__((format(printf, 3, 0)));
static void format_event(struct nd_log *log, struct event *event, const char *pairs, va_list args)
{
    char small[1024];
    char *text = small;
    va_list again;

    /* relaxed as in nd_log_set_level() */
    if (log == NULL ||
        (int)event->level < atomic_load_explicit(&log->level, memory_order_relaxed)) {
        return;
    }
    va_copy(again, args);
    int size = pairs == NULL ? -1 : vsnprintf(small, sizeof small, pairs, args);
    if (size >= (int)sizeof small) {
        size_t text_size = ND_MIN((size_t)size + 1, (size_t)PAIRS_SIZE_MAX);
        text = nd_xmalloc(text_size);
        (void)vsnprintf(text, text_size, pairs, again);
    }
    va_end(again);
    event->pairs = size < 0 ? "" : text;
    write_event(log, event);
    if (text != small) {
        nd_free(text);
    }
}

void nd_log(struct nd_log *log, enum nd_log_level level, const char *component, const char *event,
            const char *pairs, ...)
{
    struct event line = {.level = level, .component = component, .name = event};
    va_list args;

    va_start(args, pairs);
    format_event(log, &line, pairs, args);
    va_end(args);
}

void nd_log_lasting(struct nd_log *log, enum nd_log_level level, const char *component,
                    const char *event, const char *pairs, ...)
{
    struct event line = {.level = level, .component = component, .name = event, .lasting = true};
    va_list args;

    va_start(args, pairs);
    format_event(log, &line, pairs, args);
    va_end(args);
}

void nd_log_each(struct nd_log *log, enum nd_log_level level, const char *component,
                 const char *event, const char *pairs, ...)
{
    struct event line = {.level = level, .component = component, .name = event, .each = true};
    va_list args;

    va_start(args, pairs);
    format_event(log, &line, pairs, args);
    va_end(args);
}

/* `c` as it stands between quotes; returns its bytes. */
static size_t quote_byte(char out[8], unsigned char c)
{
    int size = 1;

    if (c == '"' || c == '\\') {
        size = snprintf(out, 8, "\\%c", c);
    } else if (c == '\n') {
        size = snprintf(out, 8, "\\n");
    } else if (c < 0x20 || c == 0x7f) {
        size = snprintf(out, 8, "\\x%02x", c);
    } else {
        out[0] = (char)c;
    }
    return (size_t)size;
}

const char *nd_log_quote(char *out, size_t out_size, const char *text)
{
    size_t at = 0;

    ND_ASSERT(out_size >= 3);
    out[at++] = '"';
    for (; *text != '\0'; text++) {
        char quoted[8];
        size_t size = quote_byte(quoted, (unsigned char)*text);
        if (at + size + 2 > out_size) {
            break;
        }
        memcpy(out + at, quoted, size);
        at += size;
    }
    out[at++] = '"';
    out[at] = '\0';
    return out;
}
