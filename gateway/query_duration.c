#include "gateway/query.h"

/* Durations of a query. Sums and products are kept up to 2^63 ns, the size of the most negative
 * one; whatever passes it is no duration. */

#define NS_MAX (UINT64_C(1) << 63)

static const struct {
    const char *name;
    uint64_t ns;
} units[] = {
    {"ns", 1},
    {"us", 1000},
    {"\xc2\xb5s", 1000}, /* U+00B5 micro sign */
    {"\xce\xbcs", 1000}, /* U+03BC small mu */
    {"ms", 1000000},
    {"s", UINT64_C(1000000000)},
    {"m", UINT64_C(60000000000)},
    {"h", UINT64_C(3600000000000)},
};

static bool digit_at(struct nd_slice text, size_t at)
{
    return at < text.size && text.data[at] >= '0' && text.data[at] <= '9';
}

/* False: beyond 2^63. */
static bool whole_read(struct nd_slice text, size_t *at_io, uint64_t *out)
{
    uint64_t value = 0;

    for (; digit_at(text, *at_io); *at_io += 1) {
        if (value > NS_MAX / 10) {
            return false;
        }
        value = value * 10 + (uint64_t)(text.data[*at_io] - '0');
        if (value > NS_MAX) {
            return false;
        }
    }
    *out = value;
    return true;
}

/* Digits behind the point; those that no longer fit change nothing. */
static uint64_t fraction_read(struct nd_slice text, size_t *at_io, double *scale_out)
{
    uint64_t value = 0;
    double scale = 1;
    bool full = false;

    for (; digit_at(text, *at_io); *at_io += 1) {
        full = full || value > (NS_MAX - 1) / 10;
        uint64_t next = full ? 0 : value * 10 + (uint64_t)(text.data[*at_io] - '0');
        full = full || next > NS_MAX;
        if (!full) {
            value = next;
            scale *= 10;
        }
    }
    *scale_out = scale;
    return value;
}

/* Everything up to the next digit or point. */
static struct nd_slice unit_read(struct nd_slice text, size_t *at_io)
{
    size_t start = *at_io;

    while (*at_io < text.size && text.data[*at_io] != '.' && !digit_at(text, *at_io)) {
        *at_io += 1;
    }
    return nd_slice_make(text.data + start, *at_io - start);
}

static uint64_t unit_ns(struct nd_slice name)
{
    for (size_t i = 0; i < ND_ARRAY_SIZE(units); i++) {
        if (nd_slice_equal(name, nd_slice_str(units[i].name))) {
            return units[i].ns;
        }
    }
    return 0;
}

enum verdict { GOOD, INVALID, UNIT_MISSING, UNIT_UNKNOWN };

/* One number with its unit, added to *sum_io. */
static enum verdict part_read(struct nd_slice text, size_t *at_io, uint64_t *sum_io,
                              struct nd_slice *unit_out)
{
    uint64_t value = 0, fraction = 0;
    double scale = 1;
    size_t start = *at_io;

    if (!whole_read(text, at_io, &value)) {
        return INVALID;
    }
    size_t digits = *at_io - start;
    if (*at_io < text.size && text.data[*at_io] == '.') {
        *at_io += 1;
        start = *at_io;
        fraction = fraction_read(text, at_io, &scale);
        digits += *at_io - start;
    }
    if (digits == 0) {
        return INVALID;
    }
    *unit_out = unit_read(text, at_io);
    if (unit_out->size == 0) {
        return UNIT_MISSING;
    }
    uint64_t ns = unit_ns(*unit_out);
    if (ns == 0) {
        return UNIT_UNKNOWN;
    }
    if (value > NS_MAX / ns) {
        return INVALID;
    }
    value = value * ns + (uint64_t)((double)fraction * ((double)ns / scale));
    if (value > NS_MAX || *sum_io + value > NS_MAX) {
        return INVALID;
    }
    *sum_io += value;
    return GOOD;
}

static enum nd_err duration_failed(enum verdict verdict, struct nd_slice text, struct nd_slice unit,
                                   struct nd_errmsg *msg)
{
    int size = (int)ND_MIN(text.size, (size_t)256);
    const char *shown = (const char *)text.data;

    switch (verdict) {
    case UNIT_MISSING:
        nd_errmsg_set(msg, "time: missing unit in duration \"%.*s\"", size, shown);
        break;
    case UNIT_UNKNOWN:
        nd_errmsg_set(msg, "time: unknown unit \"%.*s\" in duration \"%.*s\"",
                      (int)ND_MIN(unit.size, (size_t)256), (const char *)unit.data, size, shown);
        break;
    case GOOD:
    case INVALID: nd_errmsg_set(msg, "time: invalid duration \"%.*s\"", size, shown); break;
    }
    return ND_ERR_INVALID_ARGUMENT;
}

enum nd_err nd_parse_duration(struct nd_slice text, int64_t *ns_out, struct nd_errmsg *msg)
{
    struct nd_slice unit = {NULL, 0};
    size_t at = 0;
    uint64_t sum = 0;
    bool negative = false;

    if (text.size > 0 && (text.data[0] == '-' || text.data[0] == '+')) {
        negative = text.data[0] == '-';
        at = 1;
    }
    if (text.size - at == 1 && text.data[at] == '0') {
        *ns_out = 0;
        return ND_OK;
    }
    enum verdict verdict = at == text.size ? INVALID : GOOD;
    while (verdict == GOOD && at < text.size) {
        verdict = part_read(text, &at, &sum, &unit);
    }
    if (verdict == GOOD && !negative && sum > NS_MAX - 1) {
        verdict = INVALID;
    }
    if (verdict != GOOD) {
        return duration_failed(verdict, text, unit, msg);
    }
    *ns_out = (int64_t)(negative ? 0 - sum : sum);
    return ND_OK;
}
