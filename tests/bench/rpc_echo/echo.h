/* The two halves of the measurement, each in a process of its own. */
#ifndef ND_BENCH_ECHO_H
#define ND_BENCH_ECHO_H

#include <stdbool.h>
#include <stdint.h>

struct echo_options {
    const char *mode; /* unary, stream */
    bool unix_socket;
    uint32_t window; /* messages in flight */
    uint32_t batch;  /* records of a message, 256 bytes each */
    uint32_t server_threads;
    double seconds;
};

/* Serve narad.v1.Bench on `address` until `stop_fd` is closed; writes the target to `ready_fd`. */
int echo_serve(const struct echo_options *options, const char *address, int ready_fd, int stop_fd);
/* Drive it; prints one JSON line. */
int echo_drive(const struct echo_options *options, const char *target);

#endif
