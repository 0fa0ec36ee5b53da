#include "storage/base/disk_watch.h"

#include "tests/support/nd_test.h"
#include "tests/support/sim_env.h"

/* A simulated disk on which a call, while it is under way, has its watch looked at. */
struct fixture {
    struct sim_env *sim;
    struct nd_env base;
    struct nd_disk_watch watch;
    const struct nd_env *env; /* the watched one */
    char oldest[256];         /* what the watch told during the last call of the base */
    uint64_t since_ns;
};

static const struct nd_env *real(struct fixture *f)
{
    return sim_env_get(f->sim);
}

static void look(struct fixture *f)
{
    f->oldest[0] = '\0';
    (void)nd_disk_watch_oldest(&f->watch, f->oldest, sizeof f->oldest, &f->since_ns);
}

static enum nd_err looked_sync_dir(void *impl, const char *path, struct nd_errmsg *msg)
{
    struct fixture *f = impl;

    sim_env_advance_ms(f->sim, 7000);
    look(f);
    return real(f)->sync_dir(real(f)->impl, path, msg);
}

static enum nd_err looked_mkdir(void *impl, const char *path, struct nd_errmsg *msg)
{
    struct fixture *f = impl;

    look(f);
    return real(f)->mkdir(real(f)->impl, path, msg);
}

static enum nd_err looked_list(void *impl, const char *path, nd_list_cb *cb, void *arg,
                               struct nd_errmsg *msg)
{
    struct fixture *f = impl;

    enum nd_err err = real(f)->list(real(f)->impl, path, cb, arg, msg);
    look(f);
    return err;
}

static uint64_t looked_mono_ns(void *impl)
{
    struct fixture *f = impl;

    return real(f)->mono_ns(real(f)->impl);
}

static int setup(void **state)
{
    static struct fixture f;

    f = (struct fixture){.sim = sim_env_new(1)};
    f.base = (struct nd_env){.impl = &f,
                             .sync_dir = looked_sync_dir,
                             .mkdir = looked_mkdir,
                             .list = looked_list,
                             .mono_ns = looked_mono_ns};
    nd_disk_watch_init(&f.watch, &f.base);
    f.env = &f.watch.env;
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    nd_disk_watch_release(&f->watch);
    sim_env_free(f->sim);
    return 0;
}

static void disk_watch__tells_what_is_under_way_and_since_when(void **state)
{
    struct fixture *f = *state;
    uint64_t began_ns = looked_mono_ns(f);

    look(f);
    assert_string_equal(f->oldest, "");
    assert_int_equal(f->env->mkdir(f->env->impl, "a", NULL), ND_OK);
    assert_string_equal(f->oldest, "mkdir a");
    assert_int_equal(f->env->sync_dir(f->env->impl, "a", NULL), ND_OK);
    assert_string_equal(f->oldest, "fsync a");
    assert_true(f->since_ns == began_ns);
    look(f);
    assert_string_equal(f->oldest, "");
}

static void disk_watch__passes_answers_on(void **state)
{
    struct fixture *f = *state;
    struct nd_errmsg msg = {{0}};

    assert_int_equal(f->env->mkdir(f->env->impl, "a", &msg), ND_OK);
    assert_int_equal(f->env->mkdir(f->env->impl, "a", &msg), ND_ERR_ALREADY_EXISTS);
    assert_int_equal(f->env->sync_dir(f->env->impl, "b", &msg), ND_ERR_NOT_FOUND);
    assert_true(msg.text[0] != '\0');
}

/* The oldest of several: one that another one is in front of. */
static void disk_watch__tells_the_oldest_of_many(void **state)
{
    struct fixture *f = *state;
    struct nd_disk_call first = {.name = "write below", .path = "metastore/"};
    struct nd_disk_call second = {.name = "another", .path = "one"};

    nd_disk_watch_begin(&f->watch, &first);
    sim_env_advance_ms(f->sim, 1000);
    nd_disk_watch_begin(&f->watch, &second);
    assert_int_equal(f->env->mkdir(f->env->impl, "a", NULL), ND_OK);
    assert_string_equal(f->oldest, "write below metastore/");
    assert_true(f->since_ns == looked_mono_ns(f) - 1000000000);
    nd_disk_watch_end(&f->watch, &first);
    look(f);
    assert_string_equal(f->oldest, "another one");
    nd_disk_watch_end(&f->watch, &second);
}

static bool entry_seen(void *arg, const char *name, enum nd_file_kind kind)
{
    struct fixture *f = arg;

    (void)name;
    (void)kind;
    look(f);
    assert_string_equal(f->oldest, "");
    sim_env_advance_ms(f->sim, 60000); /* the caller's time, not the disk's */
    return true;
}

static void disk_watch__counts_no_time_of_who_looks_at_entries(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(f->env->mkdir(f->env->impl, "a", NULL), ND_OK);
    assert_int_equal(f->env->mkdir(f->env->impl, "a/b", NULL), ND_OK);
    assert_int_equal(f->env->list(f->env->impl, "a", entry_seen, f, NULL), ND_OK);
    assert_string_equal(f->oldest, "readdir a");
    assert_true(f->since_ns == looked_mono_ns(f));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(disk_watch__tells_what_is_under_way_and_since_when),
        CASE(disk_watch__passes_answers_on),
        CASE(disk_watch__tells_the_oldest_of_many),
        CASE(disk_watch__counts_no_time_of_who_looks_at_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
