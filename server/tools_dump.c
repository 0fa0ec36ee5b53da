#include <stdio.h>
#include <string.h>

#include "cluster/inspect.h"
#include "server/tools.h"
#include "storage/dump.h"

static const char usage[] =
    "Usage: narad dump FILE... [--json] [--records]\n"
    "\n"
    "Shows what files of a data directory hold: files of the log and spares, segments, indexes,\n"
    "`state`, FORMAT, what is in quarantine, and of metastore/ `identity`, `view`, Raft's "
    "segments,\n"
    "terms and snapshots. A damaged file is shown as far as it goes: a line \"damage\" says which\n"
    "bytes are not what they should be. Nothing is changed. Files that a running node writes may\n"
    "look torn.\n"
    "\n"
    "  --json      one JSON object a line; \"kind\" says what it is of\n"
    "  --records   a line for every record too, with key and payload\n"
    "\n"
    "Exit status: 0 all is whole, 1 damage was found, 2 wrong usage, 3 a file could not be read "
    "or\n"
    "is none that is known.\n";

enum { EXIT_WHOLE = 0, EXIT_DAMAGE = 1, EXIT_USAGE = 2, EXIT_UNREAD = 3 };

static void line_write(void *arg, const char *line, size_t size)
{
    (void)arg;
    (void)fwrite(line, 1, size, stdout);
}

static int file_dump(struct nd_report *report, const char *path, bool records)
{
    struct nd_dump_options options = {
        .env = nd_env_posix(), .path = path, .report = report, .records = records};
    struct nd_errmsg msg = {{0}};
    uint64_t damages = 0;

    nd_report_begin(report, "file");
    nd_report_text(report, "path", path);
    nd_report_end(report);
    enum nd_err err = nd_inspect_file(options.env, path, report, &damages, &msg);
    if (err == ND_ERR_UNSUPPORTED) {
        err = nd_dump_file(&options, &damages, &msg);
    }
    if (err != ND_OK) {
        (void)fflush(stdout);
        fprintf(stderr, "narad dump: %s: %s\n", nd_err_text(err), msg.text);
        return EXIT_UNREAD;
    }
    return damages > 0 ? EXIT_DAMAGE : EXIT_WHOLE;
}

int nd_dump_main(int argc, const char *const *argv)
{
    struct nd_report report;
    bool json = false, records = false;
    int files = 0, status = EXIT_WHOLE;

    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            return EXIT_WHOLE;
        }
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (strcmp(argv[i], "--records") == 0) {
            records = true;
        } else if (argv[i][0] == '-') {
            fprintf(stderr, "narad dump: unexpected argument \"%s\"\n\n%s", argv[i], usage);
            return EXIT_USAGE;
        } else {
            files += 1;
        }
    }
    if (files == 0) {
        fprintf(stderr, "narad dump: which files?\n\n%s", usage);
        return EXIT_USAGE;
    }
    nd_report_init(&report, json, line_write, NULL);
    for (int i = 0; i < argc; i++) {
        if (argv[i][0] != '-') {
            int own = file_dump(&report, argv[i], records);
            status = own > status ? own : status;
        }
    }
    nd_report_release(&report);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fputs("narad dump: standard output cannot be written\n", stderr);
        return EXIT_UNREAD;
    }
    return status;
}
