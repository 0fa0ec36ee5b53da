/* Many HTTP clients in one thread, against a gateway that runs already and has the topic.
 *
 *   bench_http --addr HOST:PORT --topic NAME --mode produce|batch|pairs|park [--connections N]
 *              [--seconds S] [--warm S] [--payload BYTES] [--batch N] [--rounds N]
 *              [--header LINE]
 *
 * produce: a message a request. batch: N messages a request. pairs: consume, then ack; fill the
 * topic before. park: all connections hold a long poll; then one message after the other is
 * produced, and timed until one of them has it. --header: in every request, e.g. credentials.
 * Prints one JSON object. Closed loop: each connection has one request under way. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "storage/base/alloc.h"
#include "storage/base/buf.h"

enum { IN_MAX = 64 << 10, HIST = 64 * 16, EVENTS = 512 };

enum mode { PRODUCE, BATCH, PAIRS, PARK };
static const char *const mode_names[] = {"produce", "batch", "pairs", "park"};

struct conn {
    int file;
    const uint8_t *out; /* what is being sent */
    size_t out_size, out_at;
    uint64_t begun_ns;
    char ack[512]; /* PAIRS: the request that acks what came */
    bool acking;
    size_t in_size;
    char in[IN_MAX];
};

struct bench {
    struct sockaddr_in address;
    const char *topic;
    char *header; /* "Name: value\r\n", or "" */
    enum mode mode;
    uint32_t connections, payload, batch, rounds;
    double seconds, warm;
    int epoll;
    struct conn *conns;
    struct conn *producer; /* PARK */
    struct nd_buf request; /* what most requests are */
    struct nd_buf one;     /* PARK: a produce */
    uint64_t counted_from_ns;
    uint64_t done, messages, empty, errors;
    uint64_t hist[HIST];
};

static void die(const char *what)
{
    fprintf(stderr, "bench_http: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- latencies: 16 steps an octave --- */

static void note(struct bench *b, uint64_t ns)
{
    uint32_t power = 63 - (uint32_t)__builtin_clzll(ns | 16);
    b->hist[power * 16 + (uint32_t)(ns >> (power - 4) & 15)]++;
}

static double quantile_us(const struct bench *b, double share)
{
    uint64_t total = 0, seen = 0;
    for (uint32_t i = 0; i < HIST; i++) {
        total += b->hist[i];
    }
    for (uint32_t i = 0; i < HIST && total > 0; i++) {
        seen += b->hist[i];
        if ((double)seen >= share * (double)total) {
            return (double)((UINT64_C(16) + i % 16) << (i / 16)) / 16 / 1000;
        }
    }
    return 0;
}

/* --- connections --- */

static void send_rest(struct conn *conn)
{
    while (conn->out_at < conn->out_size) {
        ssize_t size =
            send(conn->file, conn->out + conn->out_at, conn->out_size - conn->out_at, MSG_NOSIGNAL);
        if (size < 0 && errno == EAGAIN) {
            return;
        }
        if (size < 0) {
            die("send");
        }
        conn->out_at += (size_t)size;
    }
}

static void request(struct conn *conn, const void *bytes, size_t size)
{
    conn->out = bytes;
    conn->out_size = size;
    conn->out_at = 0;
    conn->in_size = 0;
    conn->begun_ns = now_ns();
    send_rest(conn);
}

static void conn_open(struct bench *b, struct conn *conn)
{
    int yes = 1;
    conn->file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (conn->file < 0 ||
        connect(conn->file, (const struct sockaddr *)&b->address, sizeof b->address) != 0) {
        die("connect");
    }
    (void)setsockopt(conn->file, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    (void)fcntl(conn->file, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = conn};
    if (epoll_ctl(b->epoll, EPOLL_CTL_ADD, conn->file, &event) != 0) {
        die("epoll_ctl");
    }
}

/* --- answers --- */

/* The status of a whole answer in `in`, 0 when more is to come. */
static int whole(struct conn *conn)
{
    conn->in[conn->in_size] = '\0';
    char *end = strstr(conn->in, "\r\n\r\n");
    if (end == NULL) {
        return 0;
    }
    char *length = strcasestr(conn->in, "\r\nContent-Length:");
    size_t body = length != NULL && length < end ? strtoul(length + 17, NULL, 10) : 0;
    return (size_t)(end + 4 - conn->in) + body <= conn->in_size
               ? (int)strtol(conn->in + sizeof "HTTP/1.1", NULL, 10)
               : 0;
}

static bool make_ack(struct bench *b, struct conn *conn)
{
    static const char name[] = "\"receipt_handle\":\"";
    const char *handle = strstr(conn->in, name);
    if (handle == NULL) {
        return false;
    }
    handle += sizeof name - 1;
    int size = snprintf(conn->ack, sizeof conn->ack,
                        "POST /v1/topics/%s/ack?receipt_handle=%.*s HTTP/1.1\r\nHost: b\r\n"
                        "%sContent-Length: 0\r\n\r\n",
                        b->topic, (int)strcspn(handle, "\""), handle, b->header);
    return size > 0 && (size_t)size < sizeof conn->ack;
}

static void count(struct bench *b, struct conn *conn, bool good, uint32_t messages)
{
    uint64_t now = now_ns();
    if (now < b->counted_from_ns) {
        return;
    }
    b->errors += !good;
    b->done++;
    b->messages += good ? messages : 0;
    note(b, now - conn->begun_ns);
}

/* One answer is there: count it, ask for the next. */
static void answered(struct bench *b, struct conn *conn, int status)
{
    if (b->mode == PRODUCE || b->mode == BATCH) {
        count(b, conn, status == 202, b->mode == BATCH ? b->batch : 1);
    } else if (b->mode == PAIRS && conn->acking) {
        count(b, conn, status == 204, 1);
        conn->acking = false;
    } else if (status == 200 && b->mode == PAIRS && make_ack(b, conn)) {
        uint64_t begun_ns = conn->begun_ns;
        conn->acking = true;
        request(conn, conn->ack, strlen(conn->ack));
        conn->begun_ns = begun_ns; /* a pair is timed as one */
        return;
    } else {
        b->empty += status == 204;
        b->errors += status != 204 && status != 200;
        b->messages += b->mode == PARK && status == 200;
    }
    request(conn, b->request.data, b->request.size);
}

static void readable(struct bench *b, struct conn *conn)
{
    for (;;) {
        ssize_t size = recv(conn->file, conn->in + conn->in_size, IN_MAX - 1 - conn->in_size, 0);
        if (size < 0 && errno == EAGAIN) {
            return;
        }
        if (size <= 0) {
            fprintf(stderr,
                    "bench_http: the gateway closed connection %td of %u; last answer: %.*s\n",
                    conn - b->conns, b->connections, (int)conn->in_size, conn->in);
            exit(1);
        }
        conn->in_size += (size_t)size;
        int status = whole(conn);
        if (status != 0 && conn == b->producer) {
            b->errors += status != 202;
            conn->in_size = 0;
        } else if (status != 0) {
            answered(b, conn, status);
        }
    }
}

static void step(struct bench *b, int wait_ms)
{
    struct epoll_event events[EVENTS];
    int ready = epoll_wait(b->epoll, events, EVENTS, wait_ms);
    for (int i = 0; i < ready; i++) {
        struct conn *conn = events[i].data.ptr;
        send_rest(conn);
        readable(b, conn);
    }
}

/* --- requests --- */

static void put_post(struct nd_buf *out, const struct bench *b, const char *path,
                     const struct nd_buf *body)
{
    nd_buf_printf(out, "POST /v1/topics/%s/%s HTTP/1.1\r\nHost: b\r\n%sContent-Length: %zu\r\n\r\n",
                  b->topic, path, b->header, body->size);
    nd_buf_put_slice(out, nd_buf_slice(body));
}

static void put_payload(struct nd_buf *out, uint32_t size, bool json)
{
    nd_buf_put_text(out, json ? "\"" : "");
    for (uint32_t i = json ? 2 : 0; i < size; i++) {
        nd_buf_put_u8(out, (uint8_t)('a' + i % 26));
    }
    nd_buf_put_text(out, json ? "\"" : "");
}

static void make_requests(struct bench *b)
{
    struct nd_buf body;
    nd_buf_init(&body, 64 << 20);
    nd_buf_init(&b->request, 64 << 20);
    nd_buf_init(&b->one, 64 << 20);
    put_payload(&body, b->payload, false);
    put_post(&b->one, b, "produce", &body);
    if (b->mode == PRODUCE) {
        nd_buf_put_slice(&b->request, nd_buf_slice(&b->one));
    } else if (b->mode == BATCH) {
        nd_buf_reset(&body);
        nd_buf_put_text(&body, "{\"messages\":[");
        for (uint32_t i = 0; i < b->batch; i++) {
            nd_buf_put_text(&body, i == 0 ? "{\"payload\":" : ",{\"payload\":");
            put_payload(&body, b->payload, true);
            nd_buf_put_text(&body, "}");
        }
        nd_buf_put_text(&body, "]}");
        put_post(&b->request, b, "produce/batch", &body);
    } else {
        nd_buf_printf(&b->request,
                      "GET /v1/topics/%s/consume?wait=30s HTTP/1.1\r\nHost: b\r\n%s\r\n", b->topic,
                      b->header);
    }
    nd_buf_release(&body);
}

/* --- the run --- */

static void run_until(struct bench *b, uint64_t end_ns)
{
    while (now_ns() < end_ns) {
        step(b, 10);
    }
}

static void run_rounds(struct bench *b)
{
    for (uint32_t i = 0; i < b->rounds; i++) {
        uint64_t before = b->messages, begun_ns = now_ns();
        request(b->producer, b->one.data, b->one.size);
        while (b->messages == before && now_ns() - begun_ns < UINT64_C(30000000000)) {
            step(b, 10);
        }
        note(b, now_ns() - begun_ns);
        run_until(b, now_ns() + 2000000);
    }
}

static void run(struct bench *b)
{
    b->epoll = epoll_create1(EPOLL_CLOEXEC);
    b->conns = nd_xcalloc(b->connections + 1, sizeof *b->conns);
    b->counted_from_ns = now_ns() + (uint64_t)(b->warm * 1e9);
    for (uint32_t i = 0; i < b->connections; i++) {
        conn_open(b, &b->conns[i]);
        request(&b->conns[i], b->request.data, b->request.size);
    }
    if (b->mode == PARK) {
        run_until(b, b->counted_from_ns);
        b->producer = &b->conns[b->connections];
        conn_open(b, b->producer); /* not before: one that asks nothing is cut */
        run_rounds(b);
    } else {
        run_until(b, b->counted_from_ns + (uint64_t)(b->seconds * 1e9));
    }
    printf("{\"mode\":\"%s\",\"connections\":%u,\"requests_per_s\":%.0f,\"messages_per_s\":%.0f,"
           "\"p50_us\":%.0f,\"p99_us\":%.0f,\"empty\":%llu,\"errors\":%llu}\n",
           mode_names[b->mode], b->connections, (double)b->done / b->seconds,
           (double)b->messages / b->seconds, quantile_us(b, 0.5), quantile_us(b, 0.99),
           (unsigned long long)b->empty, (unsigned long long)b->errors);
}

static void usage(void)
{
    fputs("usage: bench_http --addr HOST:PORT --topic NAME --mode produce|batch|pairs|park "
          "[--connections N]\n       [--seconds S] [--warm S] [--payload BYTES] [--batch N] "
          "[--rounds N] [--header LINE]\n",
          stderr);
    exit(1);
}

static void read_option(struct bench *b, const char *name, const char *value)
{
    char host[64];
    const char *colon = strrchr(value, ':');
    if (strcmp(name, "--addr") == 0 && colon != NULL) {
        snprintf(host, sizeof host, "%.*s", (int)(colon - value), value);
        b->address.sin_family = AF_INET;
        b->address.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
        if (inet_pton(AF_INET, host, &b->address.sin_addr) != 1) {
            usage();
        }
    } else if (strcmp(name, "--topic") == 0) {
        b->topic = value;
    } else if (strcmp(name, "--header") == 0) {
        nd_free(b->header);
        b->header = nd_xasprintf("%s\r\n", value);
    } else if (strcmp(name, "--mode") == 0) {
        while (strcmp(mode_names[b->mode], value) != 0) {
            if (++b->mode > PARK) {
                usage();
            }
        }
    } else if (strcmp(name, "--connections") == 0) {
        b->connections = (uint32_t)strtoul(value, NULL, 10);
    } else if (strcmp(name, "--payload") == 0) {
        b->payload = (uint32_t)strtoul(value, NULL, 10);
    } else if (strcmp(name, "--batch") == 0) {
        b->batch = (uint32_t)strtoul(value, NULL, 10);
    } else if (strcmp(name, "--rounds") == 0) {
        b->rounds = (uint32_t)strtoul(value, NULL, 10);
    } else if (strcmp(name, "--seconds") == 0) {
        b->seconds = strtod(value, NULL);
    } else if (strcmp(name, "--warm") == 0) {
        b->warm = strtod(value, NULL);
    } else {
        usage();
    }
}

int main(int argc, char **argv)
{
    struct bench bench = {.header = nd_xstrdup(""),
                          .mode = PRODUCE,
                          .connections = 64,
                          .payload = 256,
                          .batch = 100,
                          .rounds = 200,
                          .seconds = 5,
                          .warm = 1};
    struct rlimit files;
    if (argc % 2 == 0) {
        usage();
    }
    for (int i = 1; i + 1 < argc; i += 2) {
        read_option(&bench, argv[i], argv[i + 1]);
    }
    if (bench.topic == NULL || bench.address.sin_port == 0 || bench.seconds <= 0) {
        usage();
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    make_requests(&bench);
    run(&bench);
    nd_buf_release(&bench.request);
    nd_buf_release(&bench.one);
    nd_free(bench.conns);
    nd_free(bench.header);
    return bench.errors == 0 ? 0 : 1;
}
