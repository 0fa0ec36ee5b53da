/* "METHOD path": a match has its values inside the path, none of them empty; a path that is known
 * has an Allow; what decodes is, escaped again, the same. */
#include "gateway/query.h"
#include "gateway/routes.h"
#include "tests/fuzz/fuzz.h"

static void check_value(struct nd_slice value, struct nd_slice path)
{
    struct nd_slice decoded, again, bad;
    struct nd_arena arena;
    struct nd_buf written;

    FUZZ_CHECK(value.size > 0 && value.data >= path.data);
    FUZZ_CHECK(value.data + value.size <= path.data + path.size);
    FUZZ_CHECK(memchr(value.data, '/', value.size) == NULL);
    nd_arena_init(&arena, 1 << 20);
    nd_buf_init(&written, SIZE_MAX);
    if (nd_percent_decode(value, false, &arena, &decoded, &bad)) {
        for (size_t i = 0; i < decoded.size; i++) {
            nd_buf_printf(&written, "%%%02X", decoded.data[i]);
        }
        FUZZ_CHECK(nd_percent_decode(nd_buf_slice(&written), false, &arena, &again, &bad));
        FUZZ_CHECK(nd_slice_equal(again, decoded));
    } else {
        FUZZ_CHECK(bad.size >= 1 && bad.size <= 3 && bad.data[0] == '%');
    }
    nd_buf_release(&written);
    nd_arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = fuzz_copy(data, size);
    const uint8_t *blank = memchr(copy, ' ', size);
    size_t method_size = blank == NULL ? 0 : (size_t)(blank - copy);
    struct nd_slice method = nd_slice_make(copy, method_size);
    struct nd_slice path = nd_slice_make(copy + method_size, size - method_size);
    struct nd_route_match match;

    if (blank != NULL) {
        path = nd_slice_make(path.data + 1, path.size - 1);
    }
    nd_routes_match(method, path, &match);
    FUZZ_CHECK(match.route == NULL || match.allow[0] == '\0');
    for (size_t i = 0; i < match.values_count; i++) {
        check_value(match.values[i], path);
    }
    FUZZ_CHECK(!nd_routes_open(path) || match.route != NULL || match.allow[0] != '\0');
    nd_free(copy);
    return 0;
}
