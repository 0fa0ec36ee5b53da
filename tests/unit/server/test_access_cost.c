/* What it costs to admit a call whose credentials are known: no memory, no look at where it comes
 * from. Calls, users and allocation are wrapped (CMakeLists.txt): a call is what stands here. */
#include <stdio.h>

#include "storage/base/alloc.h"

#include "server/rpc/handlers.h"
#include "server/security/auth.h"
#include "tests/support/nd_test.h"

enum { COST = 4, CALLS = 64, ROUNDS = 50 };

struct nd_rpc_call {
    struct nd_handlers *handlers;
    uint32_t right;
    void *identity;
    void (*release)(void *identity);
    bool admitted;
};

static struct nd_auth *auth;
static struct nd_user *user;
static struct nd_mutex lock;
static struct nd_cond changed;
static _Thread_local uint32_t allocations; /* of the thread that admits, not of those of bcrypt */
static _Atomic uint32_t peers;

/* --- allocation, counted --- */

void *__real_nd_malloc(size_t size);
void *__real_nd_calloc(size_t count, size_t size);
void *__real_nd_xmalloc(size_t size);
void *__real_nd_xcalloc(size_t count, size_t size);
void *__wrap_nd_malloc(size_t size);
void *__wrap_nd_calloc(size_t count, size_t size);
void *__wrap_nd_xmalloc(size_t size);
void *__wrap_nd_xcalloc(size_t count, size_t size);

void *__wrap_nd_malloc(size_t size)
{
    allocations++;
    return __real_nd_malloc(size);
}

void *__wrap_nd_calloc(size_t count, size_t size)
{
    allocations++;
    return __real_nd_calloc(count, size);
}

void *__wrap_nd_xmalloc(size_t size)
{
    allocations++;
    return __real_nd_xmalloc(size);
}

void *__wrap_nd_xcalloc(size_t count, size_t size)
{
    allocations++;
    return __real_nd_xcalloc(count, size);
}

/* --- in the place of the channel stack and the metastore --- */

struct nd_slice __wrap_nd_rpc_call_metadata(const struct nd_rpc_call *call, const char *key);
uint32_t __wrap_nd_rpc_call_right(const struct nd_rpc_call *call);
void __wrap_nd_rpc_call_peer(const struct nd_rpc_call *call, char *out, size_t out_size);
void *__wrap_nd_rpc_call_server_user(const struct nd_rpc_call *call);
void *__wrap_nd_rpc_call_identity(const struct nd_rpc_call *call);
void __wrap_nd_rpc_call_set_identity(struct nd_rpc_call *call, void *identity,
                                     void (*release)(void *identity));
void __wrap_nd_rpc_call_admit(struct nd_rpc_call *call, enum nd_err err, const char *text);
uint64_t __wrap_nd_metastore_users_version(const struct nd_metastore *metastore);
enum nd_err __wrap_nd_metastore_user(struct nd_metastore *metastore, struct nd_slice name,
                                     struct nd_user **out);

struct nd_slice __wrap_nd_rpc_call_metadata(const struct nd_rpc_call *call, const char *key)
{
    bool asked = strcmp(key, "authorization") == 0;

    (void)call;
    return asked ? nd_slice_str("Basic YWxpY2U6c2VjcmV0") : nd_slice_make(NULL, 0);
}

uint32_t __wrap_nd_rpc_call_right(const struct nd_rpc_call *call)
{
    return call->right;
}

void __wrap_nd_rpc_call_peer(const struct nd_rpc_call *call, char *out, size_t out_size)
{
    (void)call;
    atomic_fetch_add(&peers, 1);
    snprintf(out, out_size, "ipv4:192.0.2.1:4242");
}

void *__wrap_nd_rpc_call_server_user(const struct nd_rpc_call *call)
{
    return call->handlers;
}

void *__wrap_nd_rpc_call_identity(const struct nd_rpc_call *call)
{
    return call->identity;
}

void __wrap_nd_rpc_call_set_identity(struct nd_rpc_call *call, void *identity,
                                     void (*release)(void *identity))
{
    call->identity = identity;
    call->release = release;
}

void __wrap_nd_rpc_call_admit(struct nd_rpc_call *call, enum nd_err err, const char *text)
{
    (void)text;
    ND_ASSERT(err == ND_OK);
    nd_mutex_lock(&lock);
    call->admitted = true;
    nd_cond_broadcast(&changed);
    nd_mutex_unlock(&lock);
}

uint64_t __wrap_nd_metastore_users_version(const struct nd_metastore *metastore)
{
    (void)metastore;
    return 1;
}

enum nd_err __wrap_nd_metastore_user(struct nd_metastore *metastore, struct nd_slice name,
                                     struct nd_user **out)
{
    (void)metastore;
    (void)name;
    *out = nd_user_ref(user);
    return ND_OK;
}

/* --- set-up --- */

static struct nd_handlers *handlers_new(void)
{
    return nd_handlers_new(&(struct nd_handlers_options){.auth = auth, .security = true});
}

static int set_up(void **state)
{
    char pattern[] = "*", *patterns[] = {pattern};
    struct nd_grant grant = {ND_ACTION_PRODUCE, 1, patterns};
    struct nd_bcrypt_room *room = nd_bcrypt_room_new();
    struct nd_password password;
    struct nd_errmsg msg = {""};

    (void)state;
    nd_mutex_init(&lock);
    nd_cond_init(&changed);
    user = nd_user_new("alice", &grant, 1);
    assert_true(nd_password_copy(&password, nd_slice_str("secret")));
    assert_true(nd_password_hash(room, &password, COST, nd_env_posix(), user->hash));
    nd_bcrypt_room_free(room);
    assert_int_equal(
        nd_auth_new(&auth, &(struct nd_auth_options){.env = nd_env_posix(), .cost = COST}, &msg),
        ND_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    nd_auth_free(auth);
    nd_user_unref(user);
    nd_cond_release(&changed);
    nd_mutex_release(&lock);
    return 0;
}

static enum nd_rpc_admission authenticate(struct nd_rpc_call *call, struct nd_handlers *handlers)
{
    struct nd_errmsg msg = {""};
    enum nd_err err = ND_OK;

    *call = (struct nd_rpc_call){.handlers = handlers, .right = ND_RIGHT_PRODUCE};
    enum nd_rpc_admission now = nd_access_authenticate(call, handlers, &err, &msg);
    assert_int_equal(err, ND_OK);
    return now;
}

/* The password is checked, for the first time. */
static void log_in(struct nd_handlers *handlers)
{
    struct nd_rpc_call call;

    assert_int_equal(authenticate(&call, handlers), ND_RPC_LATER);
    nd_mutex_lock(&lock);
    while (!call.admitted) {
        nd_cond_wait(&changed, &lock);
    }
    nd_mutex_unlock(&lock);
    assert_non_null(call.identity);
    call.release(call.identity);
}

static void calls_at_once(struct nd_handlers *handlers)
{
    struct nd_rpc_call calls[CALLS];
    struct nd_errmsg msg = {""};

    for (size_t i = 0; i < CALLS; i++) {
        assert_int_equal(authenticate(&calls[i], handlers), ND_RPC_ADMIT);
        assert_int_equal(nd_access_check(&calls[i], nd_slice_str("orders"), &msg), ND_OK);
    }
    for (size_t i = 0; i < CALLS; i++) {
        calls[i].release(calls[i].identity);
    }
}

/* --- cases --- */

static void admission__of_known_credentials_takes_no_memory(void **state)
{
    struct nd_handlers *handlers = handlers_new();

    (void)state;
    log_in(handlers);
    assert_int_not_equal(allocations, 0); /* they are seen */
    calls_at_once(handlers);
    uint32_t before = allocations, asked = atomic_load(&peers);

    for (int i = 0; i < ROUNDS; i++) {
        calls_at_once(handlers);
    }

    assert_int_equal(allocations - before, 0);
    assert_int_equal(atomic_load(&peers) - asked, 0);
    nd_handlers_free(handlers);
}

/* As a broker that lets go of what it holds after everything else has ended. */
static void caller__may_outlive_the_handlers(void **state)
{
    struct nd_handlers *handlers = handlers_new();
    struct nd_rpc_call calls[2];

    (void)state;
    log_in(handlers);
    assert_int_equal(authenticate(&calls[0], handlers), ND_RPC_ADMIT);
    assert_int_equal(authenticate(&calls[1], handlers), ND_RPC_ADMIT);
    nd_handlers_free(handlers);
    calls[0].release(calls[0].identity);
    calls[1].release(calls[1].identity);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(admission__of_known_credentials_takes_no_memory, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(caller__may_outlive_the_handlers, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("server/access_cost", tests, NULL, NULL);
}
