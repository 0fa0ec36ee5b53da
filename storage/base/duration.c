#include "storage/base/duration.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct unit {
    const char *name;
    uint64_t ns;
} units[] = {
    {"ns", 1},          {"us", 1000},        {"ms", 1000000},
    {"s", 1000000000u}, {"m", 60000000000u}, {"h", UINT64_C(3600000000000)},
};

/* One "1.5h" of a duration; advances *at. */
static bool duration_part(const char **at, uint64_t *ns)
{
    const char *p = *at;
    uint64_t whole = 0, fraction = 0, scale = 1;
    size_t digits = 0;
    for (; *p >= '0' && *p <= '9'; p++, digits++) {
        if (whole > (UINT64_MAX - 9) / 10) {
            return false;
        }
        whole = whole * 10 + (uint64_t)(*p - '0');
    }
    if (*p == '.') {
        for (p++; *p >= '0' && *p <= '9'; p++, digits++) {
            if (scale < 1000000000u) {
                fraction = fraction * 10 + (uint64_t)(*p - '0');
                scale *= 10;
            }
        }
    }
    size_t length = 0;
    while (isalpha((unsigned char)p[length]) != 0) {
        length++;
    }
    for (size_t i = 0; digits > 0 && i < ND_ARRAY_SIZE(units); i++) {
        if (strlen(units[i].name) == length && memcmp(units[i].name, p, length) == 0) {
            uint64_t part;
            /* fraction < 1e9 and ns <= 3.6e12, so the product fits only after the division. */
            uint64_t rest =
                (uint64_t)((long double)fraction * (long double)units[i].ns / (long double)scale);
            if (__builtin_mul_overflow(whole, units[i].ns, &part) ||
                __builtin_add_overflow(part, rest, &part) ||
                __builtin_add_overflow(*ns, part, ns)) {
                return false;
            }
            *at = p + length;
            return true;
        }
    }
    return false;
}

bool nd_duration_parse(const char *text, uint64_t *ms_out)
{
    if (strcmp(text, "0") == 0) {
        *ms_out = 0;
        return true;
    }
    uint64_t ns = 0;
    const char *at = text;
    do {
        if (!duration_part(&at, &ns)) {
            return false;
        }
    } while (*at != '\0');
    if (ns % 1000000 != 0) {
        return false;
    }
    *ms_out = ns / 1000000;
    return true;
}

size_t nd_duration_put(char *out, size_t out_size, uint64_t ms)
{
    uint64_t hours = ms / 3600000, minutes = ms / 60000 % 60, seconds = ms / 1000 % 60;
    int n;
    if (ms % 1000 != 0) {
        n = snprintf(out, out_size, "%" PRIu64 "ms", ms);
    } else if (hours > 0) {
        n = snprintf(out, out_size, "%" PRIu64 "h%" PRIu64 "m%" PRIu64 "s", hours, minutes,
                     seconds);
    } else if (minutes > 0) {
        n = snprintf(out, out_size, "%" PRIu64 "m%" PRIu64 "s", minutes, seconds);
    } else {
        n = snprintf(out, out_size, "%" PRIu64 "s", seconds);
    }
    return (size_t)n;
}
