/* redis_stream: XADD to one stream, a window of entries in flight that are confirmed one by one, as
 * narad bench produce-stream does it. No library: the commands are few.
 *
 *   redis_stream HOST PORT CONNECTIONS IN_FLIGHT BATCH PAYLOAD SECONDS
 *
 * IN_FLIGHT is that of all connections together: Redis takes 16 KiB a turn from each, and all that
 * it took in a turn share a sync. BATCH 1: an XADD a message. Above: MULTI, BATCH XADDs, EXEC, so
 * that a batch is stored as one, and IN_FLIGHT counts batches. Prints one JSON object. */
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { IN_SIZE = 1 << 20, OUT_SIZE = 1 << 20, SAMPLES_MAX = 1 << 22, CONNECTIONS_MAX = 256 };

struct connection {
    int file;
    uint32_t outstanding;
    uint32_t replies; /* of the first item that is not confirmed */
    char first;       /* of the line that is being read; 0: it begins */
    bool text;        /* that line is the text of the one before */
    char *out;
    size_t out_size, out_at;
    uint64_t *sent_ns; /* ring by item */
    uint64_t sent, done;
};

struct run {
    struct connection connections[CONNECTIONS_MAX];
    struct pollfd waits[CONNECTIONS_MAX];
    uint32_t count, window; /* connections; in flight of each */
    uint32_t batch, payload;
    double seconds;
    char *command; /* one item on the wire */
    size_t command_size;
    uint32_t replies_each; /* replies of an item */
    uint64_t done;
    uint32_t *samples; /* tenths of a microsecond */
    size_t samples_count;
};

static void die(const char *what)
{
    fprintf(stderr, "redis_stream: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int dial(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    int one = 1;

    if (getaddrinfo(host, port, &hints, &found) != 0) {
        die(host);
    }
    int file = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (file < 0 || connect(file, found->ai_addr, found->ai_addrlen) != 0 ||
        setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0) {
        die("connect");
    }
    freeaddrinfo(found);
    return file;
}

static size_t xadd_put(char *at, uint32_t payload)
{
    char head[80];
    int size =
        snprintf(head, sizeof head,
                 "*5\r\n$4\r\nXADD\r\n$5\r\nbench\r\n$1\r\n*\r\n$1\r\nm\r\n$%u\r\n", payload);

    memcpy(at, head, (size_t)size);
    memset(at + size, 'x', payload);
    memcpy(at + size + payload, "\r\n", 2);
    return (size_t)size + payload + 2;
}

static void command_make(struct run *run)
{
    static const char multi[] = "*1\r\n$5\r\nMULTI\r\n", exec[] = "*1\r\n$4\r\nEXEC\r\n";
    char *at = run->command = malloc((size_t)run->batch * (run->payload + 100) + 100);

    if (at == NULL) {
        die("malloc");
    }
    if (run->batch > 1) {
        memcpy(at, multi, sizeof multi - 1);
        at += sizeof multi - 1;
    }
    for (uint32_t i = 0; i < run->batch; i++) {
        at += xadd_put(at, run->payload);
    }
    if (run->batch > 1) {
        memcpy(at, exec, sizeof exec - 1);
        at += sizeof exec - 1;
    }
    run->command_size = (size_t)(at - run->command);
    /* Lines that begin a reply: +OK, BATCH x +QUEUED, *BATCH, and BATCH ids. */
    run->replies_each = run->batch > 1 ? 2 * run->batch + 2 : 1;
}

static void item_done(struct run *run, struct connection *c)
{
    uint64_t ns = now_ns() - c->sent_ns[c->done % run->window];

    c->replies = 0;
    c->done += 1;
    c->outstanding -= 1;
    run->done += 1;
    if (run->samples_count < SAMPLES_MAX) {
        run->samples[run->samples_count++] = (uint32_t)(ns / 100);
    }
}

/* A reply is a line that begins with + or *, or an id: "$15\r\n1700000000000-0\r\n", two lines. */
static void replies_take(struct run *run, struct connection *c, const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (c->first == '\0') {
            c->first = data[i];
        }
        if (data[i] != '\n') {
            continue;
        }
        if (c->first == '-' && !c->text) {
            fprintf(stderr, "redis_stream: an error was answered\n");
            exit(1);
        }
        if (c->text) {
            c->text = false;
        } else {
            c->text = c->first == '$';
            c->replies += 1;
        }
        if (!c->text && c->replies == run->replies_each) {
            item_done(run, c);
        }
        c->first = '\0';
    }
}

/* Everything that the window allows, in one write where the socket takes it. */
static void pump(struct run *run, struct connection *c)
{
    while (c->outstanding < run->window && c->out_size + run->command_size <= OUT_SIZE) {
        memcpy(c->out + c->out_size, run->command, run->command_size);
        c->out_size += run->command_size;
        c->sent_ns[c->sent++ % run->window] = now_ns();
        c->outstanding += 1;
    }
    while (c->out_at < c->out_size) {
        ssize_t put =
            send(c->file, c->out + c->out_at, c->out_size - c->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (put < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (put < 0) {
            die("send");
        }
        c->out_at += (size_t)put;
    }
    c->out_at = c->out_size = 0;
}

static void receive(struct run *run, struct connection *c)
{
    static char in[IN_SIZE];
    ssize_t got = recv(c->file, in, sizeof in, MSG_DONTWAIT);

    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        die("recv");
    }
    if (got > 0) {
        replies_take(run, c, in, (size_t)got);
    }
}

static double work(struct run *run)
{
    uint64_t began = now_ns(), until = began + (uint64_t)(run->seconds * 1e9);

    while (now_ns() < until) {
        for (uint32_t i = 0; i < run->count; i++) {
            struct connection *c = &run->connections[i];
            pump(run, c);
            run->waits[i] = (struct pollfd){
                .fd = c->file, .events = (short)(POLLIN | (c->out_size > 0 ? POLLOUT : 0))};
        }
        if (poll(run->waits, run->count, 1000) < 0 && errno != EINTR) {
            die("poll");
        }
        for (uint32_t i = 0; i < run->count; i++) {
            if ((run->waits[i].revents & ~POLLOUT) != 0) {
                receive(run, &run->connections[i]);
            }
        }
    }
    return (double)(now_ns() - began) / 1e9;
}

static int compare(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return left < right ? -1 : left > right;
}

static void *must(void *memory)
{
    if (memory == NULL) {
        die("memory");
    }
    return memory;
}

static bool options_read(int argc, char **argv, struct run *run)
{
    if (argc != 8) {
        return false;
    }
    uint32_t in_flight = (uint32_t)strtoul(argv[4], NULL, 10);
    run->count = (uint32_t)strtoul(argv[3], NULL, 10);
    run->batch = (uint32_t)strtoul(argv[5], NULL, 10);
    run->payload = (uint32_t)strtoul(argv[6], NULL, 10);
    run->seconds = strtod(argv[7], NULL);
    if (run->count == 0 || run->count > CONNECTIONS_MAX) {
        return false;
    }
    run->window = in_flight / run->count;
    return run->window > 0 && run->batch > 0 && run->payload > 0 && run->seconds > 0;
}

int main(int argc, char **argv)
{
    struct run *run = must(calloc(1, sizeof *run));

    if (!options_read(argc, argv, run)) {
        fprintf(stderr,
                "usage: redis_stream HOST PORT CONNECTIONS IN_FLIGHT BATCH PAYLOAD SECONDS\n");
        return 2;
    }
    command_make(run);
    run->samples = must(calloc(SAMPLES_MAX, sizeof *run->samples));
    for (uint32_t i = 0; i < run->count; i++) {
        struct connection *c = &run->connections[i];
        c->file = dial(argv[1], argv[2]);
        c->out = must(malloc(OUT_SIZE));
        c->sent_ns = must(calloc(run->window, sizeof *c->sent_ns));
    }
    double seconds = work(run);
    qsort(run->samples, run->samples_count, sizeof *run->samples, compare);
    printf("{\"per_s\": %.0f, \"p50_us\": %.1f, \"p99_us\": %.1f}\n",
           (double)run->done * run->batch / seconds,
           run->samples_count == 0 ? 0.0 : run->samples[run->samples_count / 2] / 10.0,
           run->samples_count == 0 ? 0.0 : run->samples[run->samples_count * 99 / 100] / 10.0);
    return 0;
}
