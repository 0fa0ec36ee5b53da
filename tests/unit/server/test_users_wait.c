/* What waits for a bcrypt asks again: a change of users counts only for who may still make it when
 * its hash is there. The metastore is wrapped (CMakeLists.txt), and hashes are held back while the
 * gate is shut. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/narad/v1/admin.pb-c.h"
#include "proto/rpc/client.h"
#include "rpc_pair.h"
#include "server/rpc/handlers.h"
#include "server/security/auth.h"
#include "tests/support/nd_test.h"

enum { COST = 4 };

static struct nd_auth *auth;
static struct nd_handlers *handlers;
static struct rpc_pair pair;
static _Atomic uint64_t version;

static struct nd_mutex lock;
static struct nd_cond changed;
/* guarded by lock */
static struct nd_user *user; /* "alice" as she is now; NULL: gone */
static bool shut;            /* the gate */
static uint32_t hashing;     /* wait before the gate, or went through */
static uint32_t proposed;    /* changes that the metastore got */
static bool outrun; /* by an admin's new password, between the last look and the metastore */
static bool done;
static size_t places_answered; /* of the admin budget: taken while a call was answered */
static int status_code;
static char status_text[128];

/* --- in the place of the metastore and of bcrypt --- */

uint64_t __wrap_nd_metastore_users_version(const struct nd_metastore *metastore);
enum nd_err __wrap_nd_metastore_user(struct nd_metastore *metastore, struct nd_slice name,
                                     struct nd_user **out);
void __wrap_nd_metastore_create_user(struct nd_metastore *metastore, const struct nd_user *made,
                                     nd_user_done_fn *on_done, void *arg);
void __wrap_nd_metastore_set_password(struct nd_metastore *metastore,
                                      const struct nd_password_change *change,
                                      nd_user_done_fn *on_done, void *arg);
bool __real_nd_password_hash(struct nd_bcrypt_room *room, const struct nd_password *password,
                             uint32_t cost, const struct nd_env *env, char *out);
bool __wrap_nd_password_hash(struct nd_bcrypt_room *room, const struct nd_password *password,
                             uint32_t cost, const struct nd_env *env, char *out);
void __real_nd_rpc_call_reply(struct nd_rpc_call *call, const ProtobufCMessage *reply);
void __wrap_nd_rpc_call_reply(struct nd_rpc_call *call, const ProtobufCMessage *reply);
void __real_nd_rpc_call_fail(struct nd_rpc_call *call, enum nd_err err, const char *text);
void __wrap_nd_rpc_call_fail(struct nd_rpc_call *call, enum nd_err err, const char *text);

uint64_t __wrap_nd_metastore_users_version(const struct nd_metastore *metastore)
{
    (void)metastore;
    return atomic_load(&version);
}

enum nd_err __wrap_nd_metastore_user(struct nd_metastore *metastore, struct nd_slice name,
                                     struct nd_user **out)
{
    enum nd_err err = ND_ERR_NOT_FOUND;

    (void)metastore;
    nd_mutex_lock(&lock);
    if (user != NULL && nd_slice_equal(name, nd_slice_str(user->name))) {
        *out = nd_user_ref(user);
        err = ND_OK;
    }
    nd_mutex_unlock(&lock);
    return err;
}

static void alice_set(const char *password, bool admin);

static void propose(const char *name, nd_user_done_fn *on_done, void *arg)
{
    struct nd_user *made = nd_user_new(name, NULL, 0);

    nd_mutex_lock(&lock);
    proposed++;
    nd_mutex_unlock(&lock);
    on_done(arg, ND_OK, NULL, made);
    nd_user_unref(made);
}

void __wrap_nd_metastore_create_user(struct nd_metastore *metastore, const struct nd_user *made,
                                     nd_user_done_fn *on_done, void *arg)
{
    (void)metastore;
    propose(made->name, on_done, arg);
}

/* As the state machine does it. */
void __wrap_nd_metastore_set_password(struct nd_metastore *metastore,
                                      const struct nd_password_change *change,
                                      nd_user_done_fn *on_done, void *arg)
{
    (void)metastore;
    if (outrun) {
        alice_set("set-by-an-admin", false);
    }
    if (change->replaces != NULL && strcmp(change->replaces, user->hash) != 0) {
        on_done(arg, ND_ERR_CONFLICT, "conflict", NULL);
        return;
    }
    propose(change->name, on_done, arg);
}

bool __wrap_nd_password_hash(struct nd_bcrypt_room *room, const struct nd_password *password,
                             uint32_t cost, const struct nd_env *env, char *out)
{
    nd_mutex_lock(&lock);
    hashing++;
    nd_cond_broadcast(&changed);
    while (shut) {
        nd_cond_wait(&changed, &lock);
    }
    nd_mutex_unlock(&lock);
    return __real_nd_password_hash(room, password, cost, env, out);
}

static void places_look(void)
{
    size_t used = atomic_load(&handlers->admin.used);

    nd_mutex_lock(&lock);
    places_answered += used;
    nd_mutex_unlock(&lock);
}

void __wrap_nd_rpc_call_reply(struct nd_rpc_call *call, const ProtobufCMessage *reply)
{
    places_look();
    __real_nd_rpc_call_reply(call, reply);
}

void __wrap_nd_rpc_call_fail(struct nd_rpc_call *call, enum nd_err err, const char *text)
{
    places_look();
    __real_nd_rpc_call_fail(call, err, text);
}

static void gate_set(bool now_shut)
{
    nd_mutex_lock(&lock);
    shut = now_shut;
    nd_cond_broadcast(&changed);
    nd_mutex_unlock(&lock);
}

/* Alice, with that password. */
static void alice_set(const char *password, bool admin)
{
    struct nd_grant grant = {ND_ACTION_ADMIN, 0, NULL};
    struct nd_user *now = nd_user_new("alice", &grant, admin ? 1 : 0);
    struct nd_bcrypt_room *room = nd_bcrypt_room_new();
    struct nd_password copy;

    assert_true(nd_password_copy(&copy, nd_slice_str(password)));
    assert_true(__real_nd_password_hash(room, &copy, COST, nd_env_posix(), now->hash));
    nd_bcrypt_room_free(room);
    nd_mutex_lock(&lock);
    struct nd_user *before = user;
    if (before != NULL && strcmp(password, "secret") == 0) {
        memcpy(now->hash, before->hash, sizeof now->hash); /* the same one, never touched */
    }
    user = now;
    nd_mutex_unlock(&lock);
    nd_user_unref(before);
    atomic_fetch_add(&version, 1);
    if (handlers != NULL) {
        nd_access_users_changed(handlers);
    }
}

/* --- the client --- */

static void on_reply(void *data, const struct nd_rpc_status *status, const void *reply)
{
    (void)data;
    (void)reply;
    nd_mutex_lock(&lock);
    status_code = status->code;
    snprintf(status_text, sizeof status_text, "%s", status->text);
    done = true;
    nd_cond_broadcast(&changed);
    nd_mutex_unlock(&lock);
}

static void ask(const char *path, const ProtobufCMessage *request,
                const ProtobufCMessageDescriptor *reply_type)
{
    struct nd_rpc_metadata metadata = {"authorization", "Basic YWxpY2U6c2VjcmV0"};
    struct nd_rpc_call_options options = {
        .wait_for_ready = true, .metadata = &metadata, .metadata_count = 1};

    nd_rpc_call_unary_with(pair.channel, path, request, reply_type, &options, on_reply, NULL);
    nd_mutex_lock(&lock);
    while (hashing == 0 && !done) {
        nd_cond_wait(&changed, &lock);
    }
    nd_mutex_unlock(&lock);
}

/* Comes back when the request waits for its hash. */
static void create_user(void)
{
    Narad__V1__CreateUserRequest request = NARAD__V1__CREATE_USER_REQUEST__INIT;
    char name[] = "bob", password[] = "of-bob";

    request.username = name;
    request.password = password;
    ask("/narad.v1.Admin/CreateUser", &request.base, &narad__v1__create_user_response__descriptor);
}

static void set_own_password(void)
{
    Narad__V1__SetPasswordRequest request = NARAD__V1__SET_PASSWORD_REQUEST__INIT;
    char name[] = "alice", password[] = "secret", next[] = "another";

    request.username = name;
    request.current_password = password;
    request.new_password = next;
    ask("/narad.v1.Admin/SetPassword", &request.base,
        &narad__v1__set_password_response__descriptor);
}

static void answer_wait(void)
{
    nd_mutex_lock(&lock);
    while (!done) {
        nd_cond_wait(&changed, &lock);
    }
    nd_mutex_unlock(&lock);
}

/* Before the next request. */
static void answer_forget(void)
{
    nd_mutex_lock(&lock);
    done = false;
    hashing = 0;
    nd_mutex_unlock(&lock);
}

/* --- set-up --- */

static int set_up(void **state)
{
    static const struct nd_rpc_method *const methods[] = {&nd_rpc_create_user,
                                                          &nd_rpc_set_password};
    struct nd_errmsg msg = {""};

    (void)state;
    nd_mutex_init(&lock);
    nd_cond_init(&changed);
    hashing = proposed = 0;
    places_answered = 0;
    done = outrun = false;
    shut = true;
    atomic_store(&version, 1);
    alice_set("secret", true);
    assert_int_equal(
        nd_auth_new(&auth, &(struct nd_auth_options){.env = nd_env_posix(), .cost = COST}, &msg),
        ND_OK);
    handlers = nd_handlers_new(&(struct nd_handlers_options){.auth = auth, .security = true});
    rpc_pair_start(&pair, methods, ND_ARRAY_SIZE(methods), handlers, false);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gate_set(false);
    rpc_pair_stop(&pair);
    nd_auth_stop(auth);
    rpc_pair_free(&pair);
    nd_handlers_free(handlers);
    handlers = NULL;
    nd_auth_free(auth);
    nd_user_unref(user);
    user = NULL;
    nd_cond_release(&changed);
    nd_mutex_release(&lock);
    return 0;
}

/* --- cases --- */

static void create__counts_for_who_is_an_admin_all_the_time(void **state)
{
    (void)state;
    create_user();
    alice_set("secret", true); /* a change that takes nothing */
    gate_set(false);
    answer_wait();
    assert_int_equal(status_code, 0);
    assert_int_equal(proposed, 1);
}

static void create__of_who_lost_the_right_meanwhile_is_refused(void **state)
{
    (void)state;
    create_user();
    alice_set("secret", false);
    gate_set(false);
    answer_wait();
    assert_int_equal(status_code, nd_err_grpc_status(ND_ERR_PERMISSION_DENIED));
    assert_string_equal(status_text, "admin privileges required");
    assert_int_equal(proposed, 0);
}

/* Who knows the old password cannot outrun an admin who sets a new one. */
static void password__of_who_has_another_meanwhile_is_not_set(void **state)
{
    (void)state;
    alice_set("secret", false);
    set_own_password();
    alice_set("set-by-an-admin", false);
    gate_set(false);
    answer_wait();
    assert_int_equal(status_code, nd_err_grpc_status(ND_ERR_UNAUTHENTICATED));
    assert_int_equal(proposed, 0);
}

/* Both are on their way at a time, and the admin's came first. */
static void password__of_who_was_outrun_is_not_set(void **state)
{
    (void)state;
    alice_set("secret", false);
    outrun = true;
    gate_set(false);
    set_own_password();
    answer_wait();
    assert_int_equal(status_code, nd_err_grpc_status(ND_ERR_UNAUTHENTICATED));
    assert_int_equal(proposed, 0);
}

static void password__of_who_stays_is_set(void **state)
{
    (void)state;
    alice_set("secret", false);
    set_own_password();
    gate_set(false);
    answer_wait();
    assert_int_equal(status_code, 0);
    assert_int_equal(proposed, 1);
}

/* Each costs a bcrypt, and everybody waits for those. */
static void password__of_one_user_is_changed_once_at_a_time(void **state)
{
    (void)state;
    alice_set("secret", false);
    set_own_password();
    answer_forget();

    set_own_password();
    answer_wait();
    assert_int_equal(status_code, nd_err_grpc_status(ND_ERR_OVERLOADED));
    assert_string_equal(status_text, "a change of this password is under way");
    assert_int_equal(hashing, 0);

    answer_forget();
    gate_set(false);
    answer_wait();
    assert_int_equal(status_code, 0);
    answer_forget();
    set_own_password();
    answer_wait();
    assert_int_equal(status_code, 0);
    assert_int_equal(proposed, 2);
}

/* Behind its answer a call may end, and with it the handlers that the place is of. */
static void change__gives_its_place_back_before_the_answer(void **state)
{
    (void)state;
    gate_set(false);
    create_user();
    answer_wait();
    assert_int_equal(status_code, 0);
    answer_forget();

    alice_set("secret", false);
    create_user();
    answer_wait();
    assert_int_equal(status_code, nd_err_grpc_status(ND_ERR_PERMISSION_DENIED));
    answer_forget();

    outrun = true;
    set_own_password();
    answer_wait();
    assert_int_equal(status_code, nd_err_grpc_status(ND_ERR_UNAUTHENTICATED));
    assert_int_equal(places_answered, 0);
}

/* However many changes others have under way, an admin can take a user's rights away. */
static void create__of_an_admin_has_room_that_others_cannot_take(void **state)
{
    size_t taken = 0;

    (void)state;
    while (nd_budget_take(&handlers->admin, 1)) {
        taken++;
    }
    gate_set(false);
    create_user();
    answer_wait();
    assert_int_equal(status_code, 0);
    answer_forget();

    alice_set("secret", false);
    set_own_password();
    answer_wait();
    assert_int_equal(status_code, nd_err_grpc_status(ND_ERR_OVERLOADED));
    assert_string_equal(status_text, "too many changes under way: at most 256 at a time");
    nd_budget_give(&handlers->admin, taken);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(create__counts_for_who_is_an_admin_all_the_time, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(create__of_who_lost_the_right_meanwhile_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(password__of_who_has_another_meanwhile_is_not_set, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(password__of_who_was_outrun_is_not_set, set_up, tear_down),
        cmocka_unit_test_setup_teardown(password__of_who_stays_is_set, set_up, tear_down),
        cmocka_unit_test_setup_teardown(password__of_one_user_is_changed_once_at_a_time, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(change__gives_its_place_back_before_the_answer, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(create__of_an_admin_has_room_that_others_cannot_take,
                                        set_up, tear_down),
    };
    return cmocka_run_group_tests_name("server/users_wait", tests, NULL, NULL);
}
