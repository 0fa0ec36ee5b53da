/* The set-up of a case on one open partition log; a pointer to it is the cmocka state. */
#ifndef ND_TESTS_PLOG_CASE_H
#define ND_TESTS_PLOG_CASE_H

#include "tests/unit/storage/plog_fixture.h"

struct fixture {
    struct sim_env *sim;
    const struct nd_env *env;
    struct nd_plog_options options;
    struct nd_plog *plog;
};

static inline int setup(void **state)
{
    struct fixture *f = nd_xcalloc(1, sizeof *f);

    f->sim = sim_env_new(1);
    f->env = sim_env_get(f->sim);
    f->options = fixture_options(f->env);
    assert_int_equal(nd_plog_open(&f->plog, &f->options, FIXTURE_DIR, 0, UINT64_MAX, NULL), ND_OK);
    *state = f;
    return 0;
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;

    nd_plog_unref(f->plog);
    sim_env_free(f->sim);
    nd_free(f);
    return 0;
}

#endif
