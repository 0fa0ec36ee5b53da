#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cluster/inspect.h"
#include "server/tools.h"
#include "storage/verify.h"

static const char usage[] =
    "Usage: narad verify DIR [--json]\n"
    "\n"
    "Checks the data directory DIR of a stopped node: every frame and checksum of the log and of\n"
    "the segments, indexes, `state` files, the metadata's files, and whether they agree with each\n"
    "other. Nothing is changed. A line a finding: \"damage\" is what the node refuses, cannot "
    "serve\n"
    "or has lost, \"note\" what costs nothing. Progress is shown on a terminal.\n"
    "\n"
    "  --json   one JSON object a line; the last one, of kind \"summary\", counts what was seen\n"
    "\n"
    "Exit status: 0 nothing is damaged, 1 damage was found, 2 wrong usage, 3 it could not be\n"
    "checked: a node runs on the directory, it is no data directory, or reading failed.\n";

enum { EXIT_WHOLE = 0, EXIT_DAMAGE = 1, EXIT_USAGE = 2, EXIT_UNCHECKED = 3 };

static const uint64_t progress_ns = 1000000000;

struct progress {
    const struct nd_env *env;
    uint64_t shown_ns;
    bool wanted, shown;
};

static void line_write(void *arg, const char *line, size_t size)
{
    struct progress *progress = arg;

    if (progress->shown) { /* the line of progress makes room */
        fputs("\r\033[K", stderr);
        progress->shown = false;
    }
    (void)fwrite(line, 1, size, stdout);
}

static void progress_show(void *arg, const char *path, uint64_t bytes_done)
{
    struct progress *progress = arg;
    uint64_t now_ns = progress->env->mono_ns(progress->env->impl);

    if (progress->wanted && now_ns >= progress->shown_ns + progress_ns) {
        fprintf(stderr, "\r\033[K%llu MiB, %.200s", (unsigned long long)(bytes_done >> 20), path);
        (void)fflush(stderr);
        progress->shown_ns = now_ns;
        progress->shown = true;
    }
}

static void summary_report(struct nd_report *report, const struct nd_verify_result *r)
{
    nd_report_begin(report, "summary");
    nd_report_u64(report, "damages", r->damages);
    nd_report_u64(report, "notes", r->notes);
    nd_report_u64(report, "wal_files", r->wal_files);
    nd_report_u64(report, "wal_entries", r->wal_entries);
    nd_report_u64(report, "partitions", r->partitions);
    nd_report_u64(report, "segments", r->segments);
    nd_report_u64(report, "frames", r->frames);
    nd_report_u64(report, "records", r->records);
    nd_report_u64(report, "bytes", r->bytes);
    nd_report_end(report);
}

struct metadata {
    const struct nd_env *env;
    const char *dir;
    struct nd_report *report;
    struct nd_state topics;
    struct nd_inspect_result result;
};

static enum nd_err metadata_check(void *arg, struct nd_errmsg *msg)
{
    struct metadata *m = arg;

    return nd_inspect_metadata(m->env, m->dir, m->report, &m->topics, &m->result, msg);
}

static bool topic_is_live(void *arg, const char *topic, uint64_t incarnation)
{
    const struct metadata *m = arg;
    const struct nd_topic *found = nd_topic_table_find(m->topics.table, nd_slice_str(topic));

    return found != NULL && found->incarnation == incarnation;
}

static enum nd_err check(const char *dir, struct nd_report *report, struct progress *progress,
                         struct nd_verify_result *result, struct nd_errmsg *msg)
{
    struct metadata metadata = {.env = progress->env, .dir = dir, .report = report};
    struct nd_verify_options options = {.env = progress->env,
                                        .data_dir = dir,
                                        .report = report,
                                        .locked = metadata_check,
                                        .locked_arg = &metadata,
                                        .is_live = topic_is_live,
                                        .is_live_arg = &metadata,
                                        .progress = progress_show,
                                        .progress_arg = progress};

    nd_state_init(&metadata.topics);
    enum nd_err err = nd_verify(&options, result, msg);
    result->damages += metadata.result.damages;
    result->bytes += metadata.result.bytes;
    nd_state_release(&metadata.topics);
    return err;
}

static int dir_verify(const char *dir, bool json)
{
    struct progress progress = {.env = nd_env_posix(), .wanted = isatty(STDERR_FILENO) == 1};
    struct nd_verify_result result = {0};
    struct nd_errmsg msg = {{0}};
    struct nd_report report;

    nd_report_init(&report, json, line_write, &progress);
    enum nd_err err = check(dir, &report, &progress, &result, &msg);
    if (err == ND_OK) {
        summary_report(&report, &result);
    }
    nd_report_release(&report);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fputs("narad verify: standard output cannot be written\n", stderr);
        return EXIT_UNCHECKED;
    }
    if (err != ND_OK) {
        fprintf(stderr, "narad verify: %s: %s\n", nd_err_text(err), msg.text);
        return EXIT_UNCHECKED;
    }
    return result.damages > 0 ? EXIT_DAMAGE : EXIT_WHOLE;
}

int nd_verify_main(int argc, const char *const *argv)
{
    const char *dir = NULL;
    bool json = false;

    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            return EXIT_WHOLE;
        }
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (argv[i][0] == '-' || dir != NULL) {
            fprintf(stderr, "narad verify: unexpected argument \"%s\"\n\n%s", argv[i], usage);
            return EXIT_USAGE;
        } else {
            dir = argv[i];
        }
    }
    if (dir == NULL) {
        fprintf(stderr, "narad verify: which data directory?\n\n%s", usage);
        return EXIT_USAGE;
    }
    return dir_verify(dir, json);
}
