#include <stdio.h>

#include "storage/base/map.h"

#include "tests/support/nd_rand.h"
#include "tests/support/nd_test.h"

enum { KEYS = 400, STEPS = 20000 };

/* The reference: a plain array, one place per possible key. */
struct model {
    void *values[KEYS];
    size_t count;
    bool is_u64;
};

static struct nd_slice key_of(size_t i, char text[64])
{
    /* Short and long ones, so that keys inside and outside the entry are both met. */
    int size = snprintf(text, 64, i % 3 == 0 ? "%zu" : "a-topic-with-a-long-name-%zu", i);

    return nd_slice_make(text, (size_t)size);
}

static void *map_get(const struct nd_map *map, const struct model *model, size_t i)
{
    char text[64];

    return model->is_u64 ? nd_map_get_u64(map, i) : nd_map_get(map, key_of(i, text));
}

static void *map_put(struct nd_map *map, const struct model *model, size_t i, void *value)
{
    char text[64];

    return model->is_u64 ? nd_map_put_u64(map, i, value) : nd_map_put(map, key_of(i, text), value);
}

static void *map_remove(struct nd_map *map, const struct model *model, size_t i)
{
    char text[64];

    return model->is_u64 ? nd_map_remove_u64(map, i) : nd_map_remove(map, key_of(i, text));
}

static void run_against_model(uint64_t seed, bool is_u64)
{
    static char places[1000]; /* addresses to use as values */
    struct nd_map *map = nd_map_new(seed);
    struct model model = {.is_u64 = is_u64};

    for (int step = 0; step < STEPS; step++) {
        size_t i = (size_t)nd_rand_below(&seed, KEYS);
        /* Long phases of growth and of shrinking. */
        if (nd_rand_below(&seed, 10) < (step / 2000 % 2 == 0 ? 7u : 3u)) {
            void *value = &places[nd_rand_below(&seed, sizeof places)];
            assert_ptr_equal(map_put(map, &model, i, value), model.values[i]);
            model.count += model.values[i] == NULL;
            model.values[i] = value;
        } else {
            assert_ptr_equal(map_remove(map, &model, i), model.values[i]);
            model.count -= model.values[i] != NULL;
            model.values[i] = NULL;
        }
        assert_int_equal(nd_map_count(map), model.count);
        size_t other = (size_t)nd_rand_below(&seed, KEYS);
        assert_ptr_equal(map_get(map, &model, other), model.values[other]);
    }
    for (size_t i = 0; i < KEYS; i++) {
        assert_ptr_equal(map_get(map, &model, i), model.values[i]);
    }
    nd_map_free(map);
}

static void map__agrees_with_the_model(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        run_against_model(seed, false);
        run_against_model(seed, true);
    }
}

static void map_next__visits_each_once_while_the_current_is_removed(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct nd_map *map = nd_map_new(seed);
        bool seen[KEYS] = {false};
        static char places[KEYS];
        size_t at = 0, visited = 0, removed = 0;
        struct nd_slice key;
        void *value;

        for (uint64_t i = 0; i < KEYS; i++) {
            assert_null(nd_map_put_u64(map, i, &places[i]));
        }
        while (nd_map_next(map, &at, &key, &value)) {
            uint64_t number;
            assert_int_equal(key.size, sizeof number);
            memcpy(&number, key.data, sizeof number);
            assert_ptr_equal(value, &places[number]);
            assert_false(seen[number]);
            seen[number] = true;
            visited += 1;
            if (number % 3 != seed % 3) {
                assert_ptr_equal(nd_map_remove_u64(map, number), value);
                removed += 1;
            }
        }
        assert_int_equal(visited, KEYS);
        assert_int_equal(nd_map_count(map), KEYS - removed);
        nd_map_free(map);
    }
}

static void map__of_nothing_answers(void **state)
{
    struct nd_map *map = nd_map_new(1);
    struct nd_slice key;
    size_t at = 0;
    void *value;

    (void)state;
    assert_null(nd_map_get(map, nd_slice_str("x")));
    assert_null(nd_map_remove(map, nd_slice_str("x")));
    assert_false(nd_map_next(map, &at, &key, &value));
    nd_map_free(map);
    nd_map_free(NULL);
}

static void map__takes_empty_and_binary_keys(void **state)
{
    struct nd_map *map = nd_map_new(1);
    int a, b, c;

    (void)state;
    assert_null(nd_map_put(map, nd_slice_make(NULL, 0), &a));
    assert_null(nd_map_put(map, nd_slice_make("\0", 1), &b));
    assert_null(nd_map_put(map, nd_slice_make("\0\0", 2), &c));
    assert_ptr_equal(nd_map_get(map, nd_slice_make("", 0)), &a);
    assert_ptr_equal(nd_map_get(map, nd_slice_make("\0", 1)), &b);
    assert_ptr_equal(nd_map_remove(map, nd_slice_make("\0\0", 2)), &c);
    assert_int_equal(nd_map_count(map), 2);
    nd_map_free(map);
}

/* A queue of keys for ever: tombstones must neither fill the table nor make it grow. */
static void map__stays_quick_under_steady_turnover(void **state)
{
    struct nd_map *map = nd_map_new(3);
    int value;

    (void)state;
    for (uint64_t i = 0; i < 200000; i++) {
        assert_null(nd_map_put_u64(map, i, &value));
        if (i >= 100) {
            assert_non_null(nd_map_remove_u64(map, i - 100));
        }
    }
    assert_int_equal(nd_map_count(map), 100);
    size_t at = 0;
    struct nd_slice key;
    void *found;
    while (nd_map_next(map, &at, &key, &found)) {
    }
    assert_true(at <= 512); /* slots of the table */
    nd_map_free(map);
}

/* The reference implementation's vectors: key 00..0f, input of n bytes 00, 01, .. */
static void siphash__meets_the_published_vectors(void **state)
{
    static const uint64_t key[2] = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
    uint8_t in[64];

    (void)state;
    for (uint8_t i = 0; i < 64; i++) {
        in[i] = i;
    }
    assert_true(nd_siphash(key, nd_slice_make(in, 0)) == 0x726fdb47dd0e0e31u);
    assert_true(nd_siphash(key, nd_slice_make(in, 1)) == 0x74f839c593dc67fdu);
    assert_true(nd_siphash(key, nd_slice_make(in, 8)) == 0x93f5f5799a932462u);
    assert_true(nd_siphash(key, nd_slice_make(in, 15)) == 0xa129ca6149be45e5u);
    assert_true(nd_siphash(key, nd_slice_make(in, 63)) == 0x958a324ceb064572u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(map__agrees_with_the_model),
        cmocka_unit_test(map_next__visits_each_once_while_the_current_is_removed),
        cmocka_unit_test(map__of_nothing_answers),
        cmocka_unit_test(map__takes_empty_and_binary_keys),
        cmocka_unit_test(map__stays_quick_under_steady_turnover),
        cmocka_unit_test(siphash__meets_the_published_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
