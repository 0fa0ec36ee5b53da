#include "gateway/query.h"

enum { ESCAPE_SIZE = 3, SHOWN_MAX = 256 };

static int hex_value(uint8_t byte)
{
    if (byte >= '0' && byte <= '9') {
        return byte - '0';
    }
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

static struct nd_slice slice_from(struct nd_slice text, size_t at)
{
    return nd_slice_make(text.data + at, text.size - at);
}

/* The byte at *at_io, decoded; moves on. False: a bad escape there. */
static bool byte_next(struct nd_slice text, bool plus, size_t *at_io, uint8_t *out)
{
    uint8_t byte = text.data[*at_io];

    if (byte == '%') {
        int high, low;
        if (text.size - *at_io < ESCAPE_SIZE || (high = hex_value(text.data[*at_io + 1])) < 0 ||
            (low = hex_value(text.data[*at_io + 2])) < 0) {
            return false;
        }
        *out = (uint8_t)(high << 4 | low);
        *at_io += ESCAPE_SIZE;
        return true;
    }
    *out = plus && byte == '+' ? ' ' : byte;
    *at_io += 1;
    return true;
}

bool nd_percent_decode(struct nd_slice text, bool plus, struct nd_arena *arena,
                       struct nd_slice *out, struct nd_slice *bad_out)
{
    size_t size = 0;
    uint8_t byte;
    bool plain = true;

    for (size_t at = 0; at < text.size; size++) {
        size_t start = at;
        if (!byte_next(text, plus, &at, &byte)) {
            *bad_out = slice_from(text, start);
            bad_out->size = ND_MIN(bad_out->size, (size_t)ESCAPE_SIZE);
            return false;
        }
        plain = plain && byte == text.data[start];
    }
    if (plain && size == text.size) {
        *out = text;
        return true;
    }
    uint8_t *to = nd_arena_alloc(arena, size);
    if (to == NULL) {
        *bad_out = nd_slice_make(NULL, 0);
        return false;
    }
    size_t written = 0;
    for (size_t at = 0; at < text.size && byte_next(text, plus, &at, &byte);) {
        to[written++] = byte;
    }
    *out = nd_slice_make(to, written);
    return true;
}

/* --- pairs --- */

struct pair {
    struct nd_slice name, value; /* as sent */
    struct nd_slice whole;
};

/* The next pair that is not empty; false at the end. */
static bool pair_next(struct nd_slice *rest_io, struct pair *out)
{
    while (rest_io->size > 0) {
        const uint8_t *end = memchr(rest_io->data, '&', rest_io->size);
        size_t size = end == NULL ? rest_io->size : (size_t)(end - rest_io->data);
        out->whole = nd_slice_make(rest_io->data, size);
        *rest_io = slice_from(*rest_io, end == NULL ? size : size + 1);
        if (size == 0) {
            continue;
        }
        const uint8_t *equals = memchr(out->whole.data, '=', size);
        size_t name_size = equals == NULL ? size : (size_t)(equals - out->whole.data);
        out->name = nd_slice_make(out->whole.data, name_size);
        out->value = slice_from(out->whole, equals == NULL ? size : name_size + 1);
        return true;
    }
    return false;
}

/* Is it, decoded, this name? A bad escape anywhere in it is told through *bad_out. */
static bool name_is(struct nd_slice name, const char *want, struct nd_slice *bad_out)
{
    size_t length = strlen(want), count = 0;
    bool same = true;
    uint8_t byte;

    *bad_out = nd_slice_make(NULL, 0);
    for (size_t at = 0; at < name.size; count++) {
        if (!byte_next(name, true, &at, &byte)) {
            *bad_out = slice_from(name, at);
            bad_out->size = ND_MIN(bad_out->size, (size_t)ESCAPE_SIZE);
            return false;
        }
        same = same && count < length && byte == (uint8_t)want[count];
    }
    return same && count == length;
}

bool nd_query_lenient(struct nd_slice query, const char *name, struct nd_arena *arena,
                      struct nd_slice *out)
{
    struct pair pair;
    struct nd_slice bad, value;

    while (pair_next(&query, &pair)) {
        if (memchr(pair.whole.data, ';', pair.whole.size) != NULL ||
            !name_is(pair.name, name, &bad) ||
            !nd_percent_decode(pair.value, true, arena, &value, &bad)) {
            continue;
        }
        if (value.size == 0) {
            return false; /* the first of a name counts, and it is empty */
        }
        *out = value;
        return true;
    }
    return false;
}

/* --- texts --- */

/* `text` in double quotes, what is not printable ASCII or UTF-8 escaped; cut when it is long. */
static const char *quote(char *out, size_t out_size, struct nd_slice text)
{
    size_t at = 0;

    out[at++] = '"';
    for (size_t i = 0; i < text.size && at + 8 < out_size; i++) {
        uint8_t byte = text.data[i];
        if (byte == '"' || byte == '\\') {
            out[at++] = '\\';
            out[at++] = (char)byte;
        } else if (byte < 0x20 || byte == 0x7f) {
            static const char digits[] = "0123456789abcdef";
            out[at++] = '\\';
            out[at++] = 'x';
            out[at++] = digits[byte >> 4];
            out[at++] = digits[byte & 15];
        } else {
            out[at++] = (char)byte; /* the answer mends what is no UTF-8 */
        }
    }
    out[at++] = '"';
    out[at] = '\0';
    return out;
}

/* The escape that is bad, or the arena that is full. */
static enum nd_err decode_failed(struct nd_slice bad, const char *of, struct nd_errmsg *msg)
{
    char shown[SHOWN_MAX];

    if (bad.data == NULL) {
        nd_errmsg_set(msg, "%s: out of memory", of);
        return ND_ERR_NO_MEMORY;
    }
    nd_errmsg_set(msg, "%s: invalid URL escape %s", of, quote(shown, sizeof shown, bad));
    return ND_ERR_INVALID_ARGUMENT;
}

/* --- produce --- */

static enum nd_err produce_partition(struct nd_slice text, struct nd_produce_query *query,
                                     struct nd_errmsg *msg)
{
    if (text.size == 0) {
        nd_errmsg_set(msg, "invalid partition: empty");
        return ND_ERR_INVALID_ARGUMENT;
    }
    enum nd_err err = nd_parse_int(text, "strconv.Atoi", &query->partition, msg);
    if (err != ND_OK) {
        nd_errmsg_wrap(msg, "invalid partition");
        return err;
    }
    if (query->partition < 0) {
        nd_errmsg_set(msg, "invalid partition: must be >= 0");
        return ND_ERR_INVALID_ARGUMENT;
    }
    return ND_OK;
}

/* One of `key` and `partition`; both are given at most once. */
static enum nd_err produce_member(const struct pair *pair, bool is_key, bool *seen_io,
                                  struct nd_slice *out, struct nd_arena *arena,
                                  struct nd_errmsg *msg)
{
    struct nd_slice bad;

    if (*seen_io) {
        nd_errmsg_set(msg, "duplicate %s query parameter", is_key ? "key" : "partition");
        return ND_ERR_INVALID_ARGUMENT;
    }
    *seen_io = true;
    if (!nd_percent_decode(pair->value, true, arena, out, &bad)) {
        return decode_failed(bad, is_key ? "invalid key" : "invalid partition", msg);
    }
    return ND_OK;
}

enum nd_err nd_query_produce(struct nd_slice query, struct nd_arena *arena,
                             struct nd_produce_query *out, struct nd_errmsg *msg)
{
    struct nd_produce_query result = {.partition = 0};
    struct nd_slice bad, partition = {NULL, 0};
    struct pair pair;
    bool key_seen = false;
    enum nd_err err = ND_OK;

    while (err == ND_OK && pair_next(&query, &pair)) {
        if (name_is(pair.name, "key", &bad)) {
            err = produce_member(&pair, true, &key_seen, &result.key, arena, msg);
        } else if (bad.data != NULL) {
            err = decode_failed(bad, "invalid query parameter", msg);
        } else if (name_is(pair.name, "partition", &bad)) {
            err = produce_member(&pair, false, &result.has_partition, &partition, arena, msg);
        }
    }
    if (err == ND_OK && result.has_partition) {
        err = produce_partition(partition, &result, msg);
    }
    if (err == ND_OK) {
        *out = result;
    }
    return err;
}

/* --- ack --- */

static bool extend_parse(struct nd_slice value, enum nd_ack_extend *out)
{
    static const struct {
        const char *text;
        enum nd_ack_extend extend;
    } spellings[] = {
        {"", ND_ACK_ACK},     {"false", ND_ACK_ACK}, {"true", ND_ACK_EXTEND},
        {"1", ND_ACK_EXTEND}, {"0", ND_ACK_NACK},
    };

    for (size_t i = 0; i < ND_ARRAY_SIZE(spellings); i++) {
        if (nd_slice_equal(value, nd_slice_str(spellings[i].text))) {
            *out = spellings[i].extend;
            return true;
        }
    }
    return false;
}

enum nd_err nd_query_ack(struct nd_slice query, struct nd_arena *arena, struct nd_ack_query *out,
                         bool *extend_bad_out, struct nd_errmsg *msg)
{
    struct nd_ack_query result = {.extend = ND_ACK_ACK};
    struct nd_slice bad, value;
    struct pair pair;
    bool handle_seen = false, extend_seen = false, extend_bad = false;

    while (pair_next(&query, &pair)) {
        bool is_handle = name_is(pair.name, "receipt_handle", &bad);
        if (bad.data != NULL) {
            return decode_failed(bad, "invalid receipt_handle", msg);
        }
        if (is_handle && !handle_seen) {
            handle_seen = true;
            if (!nd_percent_decode(pair.value, true, arena, &result.receipt_handle, &bad)) {
                return decode_failed(bad, "invalid receipt_handle", msg);
            }
        } else if (!is_handle && !extend_seen && name_is(pair.name, "extend", &bad)) {
            extend_seen = true;
            extend_bad = !nd_percent_decode(pair.value, true, arena, &value, &bad) ||
                         !extend_parse(value, &result.extend);
        }
    }
    *out = result;
    *extend_bad_out = extend_bad;
    return ND_OK;
}

/* --- numbers --- */

static enum nd_err int_failed(struct nd_slice text, const char *function, const char *why,
                              struct nd_errmsg *msg)
{
    char shown[SHOWN_MAX];

    nd_errmsg_set(msg, "%s: parsing %s: %s", function, quote(shown, sizeof shown, text), why);
    return ND_ERR_INVALID_ARGUMENT;
}

enum nd_err nd_parse_int(struct nd_slice text, const char *function, int64_t *out,
                         struct nd_errmsg *msg)
{
    size_t at = 0;
    uint64_t value = 0;
    bool negative = false;

    if (text.size > 0 && (text.data[0] == '-' || text.data[0] == '+')) {
        negative = text.data[0] == '-';
        at = 1;
    }
    if (at == text.size) {
        return int_failed(text, function, "invalid syntax", msg);
    }
    for (; at < text.size; at++) {
        uint8_t digit = (uint8_t)(text.data[at] - '0');
        if (digit > 9) {
            return int_failed(text, function, "invalid syntax", msg);
        }
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, digit, &value)) {
            return int_failed(text, function, "value out of range", msg);
        }
    }
    if (value > (uint64_t)INT64_MAX + (negative ? 1 : 0)) {
        return int_failed(text, function, "value out of range", msg);
    }
    *out = (int64_t)(negative ? 0 - value : value);
    return ND_OK;
}
