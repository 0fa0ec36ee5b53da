/* The stop of the HTTP server at the one moment at which it once lost a connection: accepted after
 * a loop looked at its arrivals, and before it looked whether it is to stop. The loop is held there
 * (in MHD_run, wrapped, see CMakeLists.txt) until both have happened. */
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "storage/base/thread.h"

#include "gateway/http_server.h"
#include "tests/support/nd_test.h"

static struct {
    struct nd_mutex lock;
    struct nd_cond changed;
    /* guarded by lock */
    bool hold;     /* the loop waits at its first step */
    bool held;     /* it does */
    bool joining;  /* the stop has told the loop, and waits for it */
    int accepted;  /* connections that are among the arrivals */
    bool one_came; /* accepted, and not among them yet */
} state;

enum MHD_Result __real_MHD_run(struct MHD_Daemon *daemon);
enum MHD_Result __wrap_MHD_run(struct MHD_Daemon *daemon);
int __real_accept4(int file, struct sockaddr *addr, socklen_t *size, int flags);
int __wrap_accept4(int file, struct sockaddr *addr, socklen_t *size, int flags);
void __real_nd_thread_join(struct nd_thread *thread);
void __wrap_nd_thread_join(struct nd_thread *thread);

enum MHD_Result __wrap_MHD_run(struct MHD_Daemon *daemon)
{
    nd_mutex_lock(&state.lock);
    if (state.hold) {
        state.held = true;
        nd_cond_broadcast(&state.changed);
        while (!state.joining) {
            nd_cond_wait(&state.changed, &state.lock);
        }
        state.hold = false;
    }
    nd_mutex_unlock(&state.lock);
    return __real_MHD_run(daemon);
}

/* The one before has been dealt out when the watch asks for the next. */
int __wrap_accept4(int file, struct sockaddr *addr, socklen_t *size, int flags)
{
    nd_mutex_lock(&state.lock);
    state.accepted += state.one_came;
    state.one_came = false;
    nd_cond_broadcast(&state.changed);
    nd_mutex_unlock(&state.lock);
    int accepted = __real_accept4(file, addr, size, flags);
    int error = errno;
    nd_mutex_lock(&state.lock);
    state.one_came = accepted >= 0;
    nd_mutex_unlock(&state.lock);
    errno = error;
    return accepted;
}

void __wrap_nd_thread_join(struct nd_thread *thread)
{
    nd_mutex_lock(&state.lock);
    state.joining = true;
    nd_cond_broadcast(&state.changed);
    nd_mutex_unlock(&state.lock);
    __real_nd_thread_join(thread);
}

static int client(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(file >= 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(file, (struct sockaddr *)&to, sizeof to), 0);
    return file;
}

/* The server's end is closed. */
static bool is_closed(int file)
{
    struct pollfd ready = {.fd = file, .events = POLLIN};
    char byte;

    return poll(&ready, 1, 0) == 1 && recv(file, &byte, 1, MSG_DONTWAIT) <= 0;
}

static void stop__closes_what_was_accepted_at_the_last_moment(void **state_unused)
{
    struct nd_http_server_options options = {.addr = "127.0.0.1:0", .threads = 1};
    struct nd_http_server *server;
    struct nd_errmsg msg = {""};
    int port;

    (void)state_unused;
    nd_mutex_init(&state.lock);
    nd_cond_init(&state.changed);
    state.hold = true;
    assert_int_equal(nd_http_server_start(&server, &options, &port, &msg), ND_OK);
    nd_mutex_lock(&state.lock);
    while (!state.held) {
        nd_cond_wait(&state.changed, &state.lock);
    }
    nd_mutex_unlock(&state.lock);
    int late = client(port);
    nd_mutex_lock(&state.lock);
    while (state.accepted < 1) {
        nd_cond_wait(&state.changed, &state.lock);
    }
    nd_mutex_unlock(&state.lock);

    nd_http_server_stop(server);

    assert_true(is_closed(late));
    close(late);
    nd_cond_release(&state.changed);
    nd_mutex_release(&state.lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop__closes_what_was_accepted_at_the_last_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
