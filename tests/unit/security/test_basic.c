#include <stdio.h>

#include "storage/base/alloc.h"

#include "server/security/basic.h"
#include "tests/support/nd_test.h"

/* Every header lies at the end of its memory, so that a read beyond it is seen. */
static bool decode(const char *header, size_t size, char *name, char *password)
{
    char *exact = nd_xmalloc(size + 1), *out = nd_xmalloc(size + 1);
    struct nd_credentials parts = {{NULL, 0}, {NULL, 0}};

    memcpy(exact + 1, header, size);
    bool good = nd_basic_decode(nd_slice_make(exact + 1, size), out + 1, &parts);
    if (good) {
        (void)snprintf(name, 128, "%.*s", (int)parts.username.size,
                       (const char *)parts.username.data);
        (void)snprintf(password, 128, "%.*s", (int)parts.password.size,
                       (const char *)parts.password.data);
    }
    nd_free(exact);
    nd_free(out);
    return good;
}

static void basic__splits_at_the_first_colon(void **state)
{
    static const struct {
        const char *header, *name, *password;
    } cases[] = {
        {"Basic dXNlcjpwYXNz", "user", "pass"},
        {"basic dXNlcjpwYXNz", "user", "pass"},
        {"BASIC   dXNlcjpwYXNz", "user", "pass"},
        {"Basic YTpiOmM=", "a", "b:c"},
        {"Basic YTo=", "a", ""},
        {"Basic OnA=", "", "p"},
        {"Basic Og==", "", ""},
        {"Basic w7w6w7w=", "\xc3\xbc", "\xc3\xbc"},
        {"Basic YTr/+w==", "a", "\xff\xfb"},
    };
    char name[128], password[128];

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        assert_true(decode(cases[i].header, strlen(cases[i].header), name, password));
        assert_string_equal(name, cases[i].name);
        assert_string_equal(password, cases[i].password);
    }
}

static void basic__refuses_what_is_no_credentials(void **state)
{
    static const char *const cases[] = {
        "",
        "Basic",
        "Basic ",
        "Basic    ",
        "BasicdXNlcjpwYXNz",
        "Basic\tdXNlcjpwYXNz",
        " Basic dXNlcjpwYXNz",
        "Bearer dXNlcjpwYXNz",
        "Basi dXNlcjpwYXNz",
        "Basic dXNlcg==",       /* "user": no colon */
        "Basic dXNlcjpwYXNzZA", /* no padding */
        "Basic YTo",
        "Basic YTo= ",
        "Basic YTo=YTo=", /* padding in the middle */
        "Basic YT=vYTo=",
        "Basic Y===",
        "Basic ====",
        "Basic =",
        "Basic YTp=", /* bits that padding cuts off are set */
        "Basic Oh==",
        "Basic dXNl cjpwYXNz",
        "Basic dXNl\ncjpwYXNz",
        "Basic dXNlcjpwYX-_", /* of URLs */
        "Basic dXNlcjpwYXNz,Basic",
        "Basic AGE6Yg==", /* NUL in the name */
        "Basic YTpiAA==", /* NUL in the password */
        "Basic AAAA",
    };
    char name[128], password[128];

    (void)state;
    for (size_t i = 0; i < ND_ARRAY_SIZE(cases); i++) {
        if (decode(cases[i], strlen(cases[i]), name, password)) {
            fail_msg("taken: \"%s\"", cases[i]);
        }
    }
    assert_false(decode("Basic YTpi\0AAA", 14, name, password));
    assert_false(decode("Basic\0YTpi", 10, name, password));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(basic__splits_at_the_first_colon),
        cmocka_unit_test(basic__refuses_what_is_no_credentials),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
