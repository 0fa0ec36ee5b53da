#include "gateway/routes.h"

/* The next segment behind a '/'; false: the text ended. */
static bool segment_next(struct nd_slice *rest_io, struct nd_slice *out)
{
    if (rest_io->size == 0 || rest_io->data[0] != '/') {
        return false;
    }
    const uint8_t *start = rest_io->data + 1;
    size_t left = rest_io->size - 1;
    const uint8_t *end = left == 0 ? NULL : memchr(start, '/', left);
    *out = nd_slice_make(start, end == NULL ? left : (size_t)(end - start));
    *rest_io = nd_slice_make(start + out->size, left - out->size);
    return true;
}

static bool is_text(struct nd_slice slice, const char *text)
{
    return nd_slice_equal(slice, nd_slice_str(text));
}

/* What a `{…}` takes. */
static bool may_be_value(struct nd_slice segment)
{
    return segment.size > 0 && !is_text(segment, ".") && !is_text(segment, "..");
}

static bool pattern_matches(const char *pattern, struct nd_slice path, struct nd_route_match *out)
{
    struct nd_slice want = nd_slice_str(pattern), wanted, given;
    size_t count = 0;

    while (segment_next(&want, &wanted)) {
        if (!segment_next(&path, &given)) {
            return false;
        }
        if (wanted.size > 0 && wanted.data[0] == '{') {
            if (!may_be_value(given)) {
                return false;
            }
            ND_ASSERT(count < ND_ROUTE_VALUES_MAX);
            out->values[count++] = given;
        } else if (!nd_slice_equal(wanted, given)) {
            return false;
        }
    }
    out->values_count = count;
    return path.size == 0;
}

static bool method_fits(const struct nd_route *route, struct nd_slice method)
{
    bool head = is_text(method, "HEAD") && !route->head_refused;

    return is_text(method, route->method) || (head && strcmp(route->method, "GET") == 0);
}

/* Sorted, as the answer lists them. */
static const char *const methods[] = {"DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"};

static void allow_put(char *out, size_t out_size, struct nd_slice path)
{
    size_t at = 0;

    out[0] = '\0';
    for (size_t m = 0; m < ND_ARRAY_SIZE(methods); m++) {
        bool fits = false;
        for (size_t i = 0; i < nd_routes_count && !fits; i++) {
            struct nd_route_match ignored;
            fits = method_fits(&nd_routes_table[i], nd_slice_str(methods[m])) &&
                   pattern_matches(nd_routes_table[i].pattern, path, &ignored);
        }
        if (fits) {
            size_t length = strlen(methods[m]);
            ND_ASSERT(at + length + 3 <= out_size);
            memcpy(out + at, ", ", at == 0 ? 0 : 2);
            at += at == 0 ? 0 : 2;
            memcpy(out + at, methods[m], length + 1);
            at += length;
        }
    }
}

void nd_routes_match(struct nd_slice method, struct nd_slice path, struct nd_route_match *out)
{
    out->route = NULL;
    out->values_count = 0;
    out->allow[0] = '\0';
    for (size_t i = 0; i < nd_routes_count; i++) {
        if (method_fits(&nd_routes_table[i], method) &&
            pattern_matches(nd_routes_table[i].pattern, path, out)) {
            out->route = &nd_routes_table[i];
            return;
        }
    }
    out->values_count = 0;
    allow_put(out->allow, sizeof out->allow, path);
}

bool nd_routes_open(struct nd_slice path)
{
    return is_text(path, "/healthz") || is_text(path, "/readyz") || is_text(path, "/metrics");
}
