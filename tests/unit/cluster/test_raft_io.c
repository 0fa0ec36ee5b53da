/* The guards around libraft 0.15.0, each with the failure that it is there for. */
#include "storage/base/alloc.h"

#include "cluster/raft_io.h"
#include "tests/support/nd_test.h"
#include "tests/support/temp_dir.h"

struct fixture {
    char *dir;
    uv_loop_t loop;
    struct nd_raft_io io;
    /* what happened */
    char fatal[64];
    int fatal_status;
    int starved, clean, put_failed;
    int done_count, done_status;
    int messages, transport_sends;
    bool stopped;
    /* what the disk below would do */
    int append_status;
    struct raft_io_append *append_request;
    struct raft_io_append *given[8]; /* all of them */
    int given_count;
    raft_io_append_cb append_done;
    raft_io_snapshot_put_cb put_done;
    struct raft_io_snapshot_put *put_request;
};

static void on_moved(void *arg)
{
    (void)arg;
}

static void on_fatal(void *arg, const char *what, int status)
{
    struct fixture *fixture = arg;
    snprintf(fixture->fatal, sizeof fixture->fatal, "%s", what);
    fixture->fatal_status = status;
}

static void on_starved(void *arg, int status, bool clean)
{
    struct fixture *fixture = arg;
    (void)status;
    fixture->starved++;
    fixture->clean += clean ? 1 : 0;
}

static void on_put_failed(void *arg, int status)
{
    ((struct fixture *)arg)->put_failed = status;
}

static int setup(void **state)
{
    struct fixture *fixture = nd_xcalloc(1, sizeof *fixture);
    const struct nd_raft_io_events events = {fixture, on_moved, on_starved, on_put_failed,
                                             on_fatal};

    fixture->dir = temp_dir_new();
    assert_int_equal(uv_loop_init(&fixture->loop), 0);
    assert_int_equal(nd_raft_io_init(&fixture->io, &fixture->loop, fixture->dir, &events), 0);
    assert_int_equal(fixture->io.io.init(&fixture->io.io, 1, "a"), 0);
    fixture->io.io.data = fixture;
    *state = fixture;
    return 0;
}

static void closed(struct raft_io *io)
{
    ((struct fixture *)io->data)->stopped = true;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    if (!fixture->io.closing) {
        fixture->io.io.close(&fixture->io.io, closed);
    }
    uv_run(&fixture->loop, UV_RUN_DEFAULT);
    assert_true(fixture->stopped);
    nd_raft_io_release_lost(&fixture->io);
    raft_uv_close(&fixture->io.io);
    assert_int_equal(uv_loop_close(&fixture->loop), 0);
    temp_dir_remove(fixture->dir);
    nd_free(fixture);
    return 0;
}

static void on_sent(struct raft_io_send *request, int status)
{
    struct fixture *fixture = request->data;
    fixture->done_count++;
    fixture->done_status = status;
}

static int send_vote(struct fixture *fixture, struct raft_io_send *request, raft_id to,
                     raft_io_send_cb done)
{
    struct raft_message message = {
        .type = RAFT_IO_REQUEST_VOTE, .server_id = to, .server_address = to == 0 ? NULL : "b"};
    request->data = fixture;
    return fixture->io.io.send(&fixture->io.io, request, &message, done);
}

static void raft_io_send__without_peers_fails_later_never_at_once(void **state)
{
    struct fixture *fixture = *state;
    struct raft_io_send requests[3];

    assert_int_equal(send_vote(fixture, &requests[0], 2, on_sent), 0);
    assert_int_equal(send_vote(fixture, &requests[1], 0, on_sent), 0); /* to nobody */
    assert_int_equal(send_vote(fixture, &requests[2], 2, NULL), 0);    /* G4 */
    assert_int_equal(fixture->done_count, 0);                          /* G0 */
    uv_run(&fixture->loop, UV_RUN_NOWAIT);

    assert_int_equal(fixture->done_count, 2);
    assert_int_equal(fixture->done_status, RAFT_NOCONNECTION);
}

/* --- a transport that keeps what it is given --- */

static int keep_start(void *impl, struct nd_raft_io *io)
{
    (void)impl;
    (void)io;
    return 0;
}

static void keep_send(void *impl, const struct raft_message *message, struct nd_raft_send *send)
{
    struct fixture *fixture = impl;
    (void)message;
    (void)send;
    fixture->transport_sends++;
}

static void keep_stop(void *impl)
{
    (void)impl;
}

static void raft_io_close__finishes_messages_still_under_way(void **state)
{
    struct fixture *fixture = *state;
    struct raft_io_send requests[5];
    fixture->io.transport = (struct nd_raft_transport){fixture, keep_start, keep_send, keep_stop};
    for (size_t i = 0; i < ND_ARRAY_SIZE(requests); i++) {
        send_vote(fixture, &requests[i], 2, on_sent);
    }
    uv_run(&fixture->loop, UV_RUN_NOWAIT);
    assert_int_equal(fixture->transport_sends, 5);
    assert_int_equal(fixture->done_count, 0);

    fixture->io.io.close(&fixture->io.io, closed);

    assert_int_equal(fixture->done_count, 5);
    assert_int_equal(fixture->done_status, RAFT_CANCELED);
    uv_run(&fixture->loop, UV_RUN_DEFAULT);
    assert_true(fixture->stopped);
}

static void on_message(struct raft_io *io, struct raft_message *message)
{
    (void)message;
    ((struct fixture *)io->data)->messages++;
}

static struct raft_message append_message(void)
{
    struct raft_message message = {
        .type = RAFT_IO_APPEND_ENTRIES, .server_id = 2, .server_address = "b"};
    struct raft_entry *entry = raft_calloc(1, sizeof *entry);
    entry->batch = raft_calloc(1, 16);
    entry->buf = (struct raft_buffer){entry->batch, 16};
    message.append_entries.entries = entry;
    message.append_entries.n_entries = 1;
    return message;
}

static struct raft_message install_message(void)
{
    struct raft_message message = {
        .type = RAFT_IO_INSTALL_SNAPSHOT, .server_id = 2, .server_address = "b"};
    raft_configuration_init(&message.install_snapshot.conf);
    assert_int_equal(raft_configuration_add(&message.install_snapshot.conf, 2, "b", RAFT_VOTER), 0);
    message.install_snapshot.data = (struct raft_buffer){raft_calloc(1, 64), 64};
    return message;
}

/* What a dropped message points to is freed: LeakSanitizer would know. */
static void raft_io_receive__drops_what_comes_before_the_start_and_after_the_close(void **state)
{
    struct fixture *fixture = *state;
    struct raft_message message = append_message();
    fixture->io.receive = on_message;

    nd_raft_io_receive(&fixture->io, &message);
    message = install_message();
    nd_raft_io_receive(&fixture->io, &message);
    fixture->io.started = true;
    message = (struct raft_message){.type = RAFT_IO_REQUEST_VOTE, .server_id = 2};
    nd_raft_io_receive(&fixture->io, &message);
    fixture->io.io.close(&fixture->io.io, closed);
    message = append_message();
    nd_raft_io_receive(&fixture->io, &message);

    assert_int_equal(fixture->messages, 1);
}

/* --- a disk that fails --- */

static int disk_append(struct raft_io *io, struct raft_io_append *request,
                       const struct raft_entry entries[], unsigned n, raft_io_append_cb done)
{
    struct fixture *fixture = io->data;
    (void)entries;
    (void)n;
    fixture->append_request = request;
    fixture->given[fixture->given_count] = request;
    fixture->given_count++;
    fixture->append_done = done;
    return fixture->append_status;
}

static int disk_put(struct raft_io *io, unsigned trailing, struct raft_io_snapshot_put *request,
                    const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb done)
{
    struct fixture *fixture = io->data;
    (void)trailing;
    (void)snapshot;
    fixture->put_request = request;
    fixture->put_done = done;
    return 0;
}

/* What raft hands to append(), made as raft 0.15.0 makes it: its callback frees both. */
struct raft_append {
    struct raft_io_append request;
    struct raft_entry *entries;
    struct fixture *fixture;
};

static void on_appended(struct raft_io_append *request, int status)
{
    struct raft_append *append = request->data;
    struct fixture *fixture = append->fixture;
    fixture->done_count++;
    fixture->done_status = status;
    raft_free(append->entries);
    raft_free(append);
}

static void on_put(struct raft_io_snapshot_put *request, int status)
{
    struct fixture *fixture = request->data;
    fixture->done_count++;
    fixture->done_status = status;
}

static struct raft_append *raft_append_new(struct fixture *fixture, size_t size)
{
    struct raft_append *append = raft_malloc(sizeof *append);
    *append = (struct raft_append){.entries = raft_calloc(1, sizeof(struct raft_entry)),
                                   .fixture = fixture};
    append->request.data = append;
    append->entries[0].buf.len = size;
    return append;
}

static int append_of(struct fixture *fixture, size_t size)
{
    struct raft_io *io = &fixture->io.io;
    struct raft_append *append = raft_append_new(fixture, size);
    return io->append(io, &append->request, append->entries, 1, on_appended);
}

static int append_one(struct fixture *fixture)
{
    return append_of(fixture, 64);
}

/* G3: raft is never told, for it would free its log twice. */
static void raft_io_append__that_fails_is_fatal_and_never_reaches_raft(void **state)
{
    struct fixture *fixture = *state;
    fixture->io.uv_append = disk_append;

    assert_int_equal(append_one(fixture), 0);
    assert_true(nd_raft_io_is_busy(&fixture->io));
    fixture->append_done(fixture->append_request, 0);
    assert_int_equal(fixture->done_count, 1);
    assert_false(nd_raft_io_is_busy(&fixture->io));
    assert_string_equal(fixture->fatal, "");

    assert_int_equal(append_one(fixture), 0);
    fixture->append_done(fixture->append_request, RAFT_IOERR);
    assert_string_equal(fixture->fatal, "append to the raft log");
    assert_int_equal(fixture->fatal_status, RAFT_IOERR);
    assert_false(nd_raft_io_is_busy(&fixture->io));
    assert_int_equal(fixture->done_count, 1);
    assert_int_equal(fixture->starved, 0);
}

static void raft_io_append__refused_at_once_is_fatal_too(void **state)
{
    struct fixture *fixture = *state;
    fixture->io.uv_append = disk_append;
    fixture->append_status = RAFT_IOERR;

    assert_int_equal(append_one(fixture), 0); /* anything else would have raft free twice */

    assert_string_equal(fixture->fatal, "append to the raft log");
    assert_false(nd_raft_io_is_busy(&fixture->io));
}

/* W6 */
static void raft_io_append__without_room_starves_and_nothing_follows_it(void **state)
{
    struct fixture *fixture = *state;
    fixture->io.uv_append = disk_append;
    assert_int_equal(append_one(fixture), 0);
    snprintf(fixture->io.io.errmsg, sizeof fixture->io.io.errmsg, "create segment open-5: full");

    fixture->append_done(fixture->append_request, RAFT_NOSPACE);
    assert_int_equal(fixture->starved, 1);
    assert_int_equal(fixture->clean, 1);
    fixture->append_request = NULL;
    assert_int_equal(append_one(fixture), 0); /* behind the hole */

    assert_null(fixture->append_request);
    assert_int_equal(fixture->starved, 2);
    assert_false(nd_raft_io_is_busy(&fixture->io));
    assert_int_equal(fixture->done_count, 0);
    assert_string_equal(fixture->fatal, "");
}

/* G18: a close behind a failed append would never call back. Half a segment has 8192 bytes; each of
 * these takes 2032. */
static void raft_io_append__gives_at_most_half_a_segment_at_once(void **state)
{
    struct fixture *fixture = *state;
    fixture->io.uv_append = disk_append;
    nd_raft_io_set_segment_size(&fixture->io, 16384);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(append_of(fixture, 2000), 0);
    }
    assert_int_equal(fixture->given_count, 4);

    fixture->append_done(fixture->given[0], 0);
    assert_int_equal(fixture->given_count, 5); /* one makes room for one */
    assert_int_equal(append_of(fixture, 8), 0);
    assert_int_equal(fixture->given_count, 5); /* a small one waits for its turn, too */
    for (int i = 1; i < 5; i++) {
        fixture->append_done(fixture->given[i], 0);
    }
    assert_int_equal(fixture->given_count, 7);
    assert_true(nd_raft_io_is_busy(&fixture->io));
    fixture->append_done(fixture->given[5], 0);
    fixture->append_done(fixture->given[6], 0);
    assert_false(nd_raft_io_is_busy(&fixture->io));
    assert_int_equal(fixture->done_count, 7);

    assert_int_equal(append_of(fixture, 12000), 0); /* a large one goes alone */
    assert_int_equal(fixture->given_count, 8);
    fixture->append_done(fixture->given[7], 0);
    assert_int_equal(fixture->done_count, 8);
}

static void raft_io_append__that_waits_is_lost_with_the_one_in_front(void **state)
{
    struct fixture *fixture = *state;
    fixture->io.uv_append = disk_append;
    nd_raft_io_set_segment_size(&fixture->io, 16384);
    assert_int_equal(append_of(fixture, 8000), 0);
    assert_int_equal(append_of(fixture, 8000), 0);
    assert_int_equal(fixture->given_count, 1);
    snprintf(fixture->io.io.errmsg, sizeof fixture->io.io.errmsg, "create segment open-5: full");

    fixture->append_done(fixture->given[0], RAFT_NOSPACE);

    assert_int_equal(fixture->given_count, 1);
    assert_false(nd_raft_io_is_busy(&fixture->io));
    assert_int_equal(fixture->starved, 1);
    assert_int_equal(fixture->done_count, 0); /* released behind the close */
}

/* A write cut short may have left something; a segment that was never made cannot. */
static void raft_io_append__knows_what_cannot_be_in_the_log(void **state)
{
    struct fixture *fixture = *state;
    fixture->io.uv_append = disk_append;
    assert_int_equal(append_one(fixture), 0);
    snprintf(fixture->io.io.errmsg, sizeof fixture->io.io.errmsg, "short write");

    fixture->append_done(fixture->append_request, RAFT_NOSPACE);

    assert_int_equal(fixture->starved, 1);
    assert_int_equal(fixture->clean, 0);
}

/* G17: raft would free its log twice. */
static void raft_io_append__cancelled_by_the_close_never_reaches_raft(void **state)
{
    struct fixture *fixture = *state;
    struct raft_io *io = &fixture->io.io;
    fixture->io.uv_append = disk_append;
    assert_int_equal(append_one(fixture), 0);

    io->close(io, closed);
    fixture->append_done(fixture->append_request, RAFT_CANCELED);

    assert_int_equal(fixture->done_count, 0);
    assert_int_equal(fixture->starved, 0);
    assert_string_equal(fixture->fatal, "");
}

static void raft_io_snapshot_put__is_fatal_only_when_it_is_an_install(void **state)
{
    struct fixture *fixture = *state;
    struct raft_io *io = &fixture->io.io;
    struct raft_io_snapshot_put request = {.data = fixture};
    fixture->io.uv_snapshot_put = disk_put;

    assert_int_equal(io->snapshot_put(io, 10, &request, NULL, on_put), 0);
    assert_true(nd_raft_io_is_busy(&fixture->io));
    fixture->put_done(fixture->put_request, RAFT_NOSPACE);
    assert_string_equal(fixture->fatal, "");
    assert_int_equal(fixture->put_failed, RAFT_NOSPACE);
    assert_int_equal(fixture->done_status, RAFT_NOSPACE);

    assert_int_equal(io->snapshot_put(io, 0, &request, NULL, on_put), 0);
    fixture->put_done(fixture->put_request, RAFT_IOERR);
    assert_string_equal(fixture->fatal, "install a snapshot");
    assert_false(nd_raft_io_is_busy(&fixture->io));
}

static void raft_status_err__tells_definite_from_unknown(void **state)
{
    (void)state;
    assert_int_equal(nd_raft_status_err(0), ND_OK);
    assert_int_equal(nd_raft_status_err(RAFT_NOTLEADER), ND_ERR_NOT_LEADER);
    assert_int_equal(nd_raft_status_err(RAFT_LEADERSHIPLOST), ND_ERR_UNKNOWN_OUTCOME);
    assert_int_equal(nd_raft_status_err(RAFT_CANCELED), ND_ERR_UNKNOWN_OUTCOME);
    assert_int_equal(nd_raft_status_err(RAFT_CORRUPT), ND_ERR_CORRUPT);
    assert_int_equal(nd_raft_status_err(RAFT_NOSPACE), ND_ERR_NO_SPACE);
    assert_int_equal(nd_raft_status_err(12345), ND_ERR_INTERNAL);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(raft_io_send__without_peers_fails_later_never_at_once),
        CASE(raft_io_close__finishes_messages_still_under_way),
        CASE(raft_io_receive__drops_what_comes_before_the_start_and_after_the_close),
        CASE(raft_io_append__that_fails_is_fatal_and_never_reaches_raft),
        CASE(raft_io_append__refused_at_once_is_fatal_too),
        CASE(raft_io_append__without_room_starves_and_nothing_follows_it),
        CASE(raft_io_append__gives_at_most_half_a_segment_at_once),
        CASE(raft_io_append__that_waits_is_lost_with_the_one_in_front),
        CASE(raft_io_append__knows_what_cannot_be_in_the_log),
        CASE(raft_io_append__cancelled_by_the_close_never_reaches_raft),
        CASE(raft_io_snapshot_put__is_fatal_only_when_it_is_an_install),
        cmocka_unit_test(raft_status_err__tells_definite_from_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
