/* rpc_echo: what the channel stack costs by itself. A server in a child process answers
 * narad.v1.Bench at once; the client keeps `window` messages in flight for `seconds` and prints one
 * JSON line.
 *
 *   rpc_echo unary  [-w WINDOW] [-u] [-d SECONDS] [-t SERVER_THREADS]
 *   rpc_echo stream [-w WINDOW] [-b RECORDS_A_MESSAGE] [-u] [-d SECONDS] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "echo.h"

static int usage(void)
{
    fprintf(stderr, "usage: rpc_echo unary|stream [-w window] [-b batch] [-d seconds] [-t threads] "
                    "[-u (unix socket)]\n");
    return 2;
}

static int options_read(int argc, char **argv, struct echo_options *options)
{
    int option;

    if (argc < 2 || (strcmp(argv[1], "unary") != 0 && strcmp(argv[1], "stream") != 0)) {
        return usage();
    }
    *options = (struct echo_options){
        .mode = argv[1], .window = 64, .batch = 1, .server_threads = 1, .seconds = 2};
    optind = 2;
    while ((option = getopt(argc, argv, "w:b:d:t:u")) != -1) {
        switch (option) {
        case 'w': options->window = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'b': options->batch = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'd': options->seconds = strtod(optarg, NULL); break;
        case 't': options->server_threads = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'u': options->unix_socket = true; break;
        default: return usage();
        }
    }
    bool sane = options->window >= 1 && options->window <= 65536 && options->batch >= 1 &&
                options->batch <= 1000 && options->seconds > 0 && options->server_threads >= 1;
    return sane ? 0 : usage();
}

static void server_cpu_print(void)
{
    struct rusage used;

    getrusage(RUSAGE_CHILDREN, &used);
    fprintf(stderr, "server cpu: %.2f s\n",
            (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
}

int main(int argc, char **argv)
{
    struct echo_options options;
    char directory[] = "/tmp/rpc_echo-XXXXXX", address[64] = "127.0.0.1:0", target[200];
    int ready[2], stop[2], status = 0;
    int wrong = options_read(argc, argv, &options);

    if (wrong != 0) {
        return wrong;
    }
    if (mkdtemp(directory) == NULL || pipe(ready) != 0 || pipe(stop) != 0) {
        perror("rpc_echo");
        return 1;
    }
    if (options.unix_socket) {
        snprintf(address, sizeof address, "unix:%s/s", directory);
    }
    pid_t child = fork(); /* before the stack is used: it does not live across a fork */
    if (child == 0) {
        close(stop[1]);
        _exit(echo_serve(&options, address, ready[1], stop[0]));
    }
    close(ready[1]);
    int result = 1;
    if (child > 0 && read(ready[0], target, sizeof target) == (ssize_t)sizeof target) {
        result = echo_drive(&options, target);
    }
    close(stop[1]);
    waitpid(child, &status, 0);
    server_cpu_print();
    snprintf(target, sizeof target, "%s/s", directory);
    unlink(target);
    rmdir(directory);
    return result != 0 || status != 0;
}
