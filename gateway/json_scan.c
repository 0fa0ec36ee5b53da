#include "gateway/json_scan.h"

/*        value              ',' or closing bracket
 *  VALUE ─────► AFTER ──────────────────────────► AFTER / VALUE / KEY
 *  KEY: a string, then ':', then VALUE. A stack of one bit for each open bracket tells which. */

struct scanner {
    const uint8_t *data;
    size_t size, at;
    size_t depth;
    const char *why;
    uint64_t objects[(ND_JSON_DEPTH_MAX + 63) / 64]; /* bit: the bracket at that depth is a '{' */
};

size_t nd_json_skip_blanks(struct nd_slice text, size_t at)
{
    while (at < text.size) {
        uint8_t byte = text.data[at];
        if (byte != ' ' && byte != '\n' && byte != '\t' && byte != '\r') {
            break;
        }
        at++;
    }
    return at;
}

static void blanks_skip(struct scanner *scan)
{
    scan->at = nd_json_skip_blanks(nd_slice_make(scan->data, scan->size), scan->at);
}

static bool fail(struct scanner *scan, const char *why)
{
    scan->why = why;
    return false;
}

static bool is_digit(const struct scanner *scan)
{
    return scan->at < scan->size && scan->data[scan->at] >= '0' && scan->data[scan->at] <= '9';
}

static bool is_hex(uint8_t byte)
{
    return (byte >= '0' && byte <= '9') || ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'f');
}

/* Eight bytes at once while none of them ends a string, begins an escape or is a control byte. */
static void plain_skip(struct scanner *scan)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), highs = ones << 7;

    while (scan->size - scan->at >= 8) {
        uint64_t word;
        memcpy(&word, scan->data + scan->at, 8);
        uint64_t quotes = word ^ ones * '"', slashes = word ^ ones * '\\';
        uint64_t hits = ((quotes - ones) & ~quotes) | ((slashes - ones) & ~slashes) |
                        ((word - ones * 0x20) & ~word);
        if ((hits & highs) != 0) {
            return;
        }
        scan->at += 8;
    }
}

/* Behind a backslash. */
static bool escape_scan(struct scanner *scan)
{
    if (scan->at == scan->size) {
        return fail(scan, "in string escape code");
    }
    uint8_t byte = scan->data[scan->at];
    if (byte == 0 || strchr("\"\\/bfnrtu", byte) == NULL) {
        return fail(scan, "in string escape code");
    }
    scan->at++;
    for (int i = 0; byte == 'u' && i < 4; i++, scan->at++) {
        if (scan->at == scan->size || !is_hex(scan->data[scan->at])) {
            return fail(scan, "in \\u hexadecimal character escape");
        }
    }
    return true;
}

/* Behind the opening quote. */
static bool string_scan(struct scanner *scan)
{
    for (;;) {
        plain_skip(scan);
        if (scan->at == scan->size) {
            return fail(scan, "in string literal");
        }
        uint8_t byte = scan->data[scan->at];
        if (byte < 0x20) {
            return fail(scan, "in string literal");
        }
        scan->at++;
        if (byte == '"') {
            return true;
        }
        if (byte == '\\' && !escape_scan(scan)) {
            return false;
        }
    }
}

static bool digits_scan(struct scanner *scan, const char *why)
{
    if (!is_digit(scan)) {
        return fail(scan, why);
    }
    while (is_digit(scan)) {
        scan->at++;
    }
    return true;
}

static bool number_scan(struct scanner *scan)
{
    if (scan->data[scan->at] == '-') {
        scan->at++;
    }
    if (scan->at < scan->size && scan->data[scan->at] == '0') {
        scan->at++;
    } else if (!digits_scan(scan, "in numeric literal")) {
        return false;
    }
    if (scan->at < scan->size && scan->data[scan->at] == '.') {
        scan->at++;
        if (!digits_scan(scan, "after decimal point in numeric literal")) {
            return false;
        }
    }
    if (scan->at < scan->size && (scan->data[scan->at] | 0x20) == 'e') {
        scan->at++;
        if (scan->at < scan->size && (scan->data[scan->at] == '+' || scan->data[scan->at] == '-')) {
            scan->at++;
        }
        return digits_scan(scan, "in exponent of numeric literal");
    }
    return true;
}

static bool word_scan(struct scanner *scan, const char *word, const char *why)
{
    for (; *word != '\0'; word++, scan->at++) {
        if (scan->at == scan->size || scan->data[scan->at] != (uint8_t)*word) {
            return fail(scan, why);
        }
    }
    return true;
}

/* A value that is no bracket. */
static bool scalar_scan(struct scanner *scan)
{
    switch (scan->data[scan->at]) {
    case '"': scan->at++; return string_scan(scan);
    case 't': return word_scan(scan, "true", "in literal true");
    case 'f': return word_scan(scan, "false", "in literal false");
    case 'n': return word_scan(scan, "null", "in literal null");
    case '-': return number_scan(scan);
    default:
        return is_digit(scan) ? number_scan(scan) : fail(scan, "looking for beginning of value");
    }
}

static bool in_object(const struct scanner *scan)
{
    return (scan->objects[(scan->depth - 1) / 64] >> ((scan->depth - 1) % 64) & 1) != 0;
}

static bool open_bracket(struct scanner *scan, bool object)
{
    if (scan->depth == ND_JSON_DEPTH_MAX) {
        return fail(scan, "exceeded max depth");
    }
    uint64_t bit = UINT64_C(1) << (scan->depth % 64);
    uint64_t *word = &scan->objects[scan->depth / 64];
    *word = object ? *word | bit : *word & ~bit;
    scan->depth++;
    scan->at++;
    blanks_skip(scan);
    return true;
}

/* A member's name and its colon. */
static bool key_scan(struct scanner *scan)
{
    blanks_skip(scan);
    if (scan->at == scan->size || scan->data[scan->at] != '"') {
        return fail(scan, "looking for beginning of object key string");
    }
    scan->at++;
    if (!string_scan(scan)) {
        return false;
    }
    blanks_skip(scan);
    if (scan->at == scan->size || scan->data[scan->at] != ':') {
        return fail(scan, "after object key");
    }
    scan->at++;
    return true;
}

/* Behind a value: closes what ends here. *more_out: another value follows. */
static bool after_scan(struct scanner *scan, bool *more_out)
{
    *more_out = false;
    while (scan->depth > 0) {
        bool object = in_object(scan);
        blanks_skip(scan);
        uint8_t byte = scan->at == scan->size ? 0 : scan->data[scan->at];
        if (byte == ',') {
            scan->at++;
            *more_out = true;
            return !object || key_scan(scan);
        }
        if (byte != (object ? '}' : ']')) {
            return fail(scan, object ? "after object key:value pair" : "after array element");
        }
        scan->at++;
        scan->depth--;
    }
    return true;
}

/* The beginning of a value. *whole_out: it is complete; else what stands in its bracket follows. */
static bool begin_scan(struct scanner *scan, bool *whole_out)
{
    blanks_skip(scan);
    *whole_out = true;
    if (scan->at == scan->size) {
        return fail(scan, "looking for beginning of value");
    }
    uint8_t byte = scan->data[scan->at];
    if (byte != '{' && byte != '[') {
        return scalar_scan(scan);
    }
    bool object = byte == '{';
    if (!open_bracket(scan, object)) {
        return false;
    }
    if (scan->at < scan->size && scan->data[scan->at] == (object ? '}' : ']')) {
        scan->at++;
        scan->depth--;
        return true;
    }
    *whole_out = false;
    return !object || key_scan(scan);
}

bool nd_json_scan_why(struct nd_slice text, size_t *at_io, struct nd_slice *value_out,
                      const char **why_out)
{
    struct scanner scan; /* `objects` is written before it is read */
    bool good, more = true;

    scan.data = text.data;
    scan.size = text.size;
    scan.at = *at_io;
    scan.depth = 0;
    scan.why = "";
    blanks_skip(&scan);
    size_t start = scan.at;
    do {
        bool whole;
        good = begin_scan(&scan, &whole);
        if (good && whole) {
            good = after_scan(&scan, &more);
        }
    } while (good && more);
    *at_io = scan.at;
    if (good) {
        *value_out = nd_slice_make(text.data + start, scan.at - start);
    } else if (why_out != NULL) {
        *why_out = scan.why;
    }
    return good;
}

bool nd_json_scan(struct nd_slice text, size_t *at_io, struct nd_slice *value_out)
{
    return nd_json_scan_why(text, at_io, value_out, NULL);
}
