#include <stdio.h>
#include <string.h>

#include "server/tools.h"
#include "storage/wal_repair.h"

static const char usage[] =
    "Usage: narad wal-repair DIR [--new]\n"
    "\n"
    "Repairs the write-ahead log of a stopped node whose data directory is DIR. Use it when the\n"
    "node refuses to start because of a damaged log file. Every damaged file is copied to\n"
    "DIR/quarantine first; what is lost is said line by line.\n"
    "\n"
    "  --new   no log file is left: begin a new log; what only the old one held is lost\n"
    "\n"
    "Exit status: 0 the log opens now, 1 it does not, 2 wrong usage.\n";

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

static void print_line(void *arg, const char *line)
{
    unsigned long *lines = arg;

    *lines += 1;
    printf("%s\n", line);
}

int nd_wal_repair_main(int argc, const char *const *argv)
{
    unsigned long lines = 0;
    struct nd_wal_repair_options options = {
        .env = nd_env_posix(), .report = print_line, .report_arg = &lines};
    struct nd_errmsg msg = {{0}};

    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            return EXIT_DONE;
        }
        if (strcmp(argv[i], "--new") == 0) {
            options.make_new = true;
        } else if (argv[i][0] == '-' || options.data_dir != NULL) {
            fprintf(stderr, "narad wal-repair: unexpected argument \"%s\"\n\n%s", argv[i], usage);
            return EXIT_USAGE;
        } else {
            options.data_dir = argv[i];
        }
    }
    if (options.data_dir == NULL) {
        fprintf(stderr, "narad wal-repair: which data directory?\n\n%s", usage);
        return EXIT_USAGE;
    }
    enum nd_err err = nd_wal_repair(&options, &msg);
    if (err != ND_OK) {
        fprintf(stderr, "narad wal-repair: %s: %s\n", nd_err_text(err), msg.text);
        return EXIT_FAILED;
    }
    puts(lines == 0 ? "The log is in order; nothing was changed." : "The log opens now.");
    return EXIT_DONE;
}
