/* The commands of `narad` that talk to a node, on top of libnarad.
 *
 * To add a command: write cmd_<name>.c with a `struct cli_command`, and add its line to the table
 * in cli.c. Help, flags, the connection and errors come from here. */
#ifndef ND_CLI_H
#define ND_CLI_H

#include <jansson.h>
#include <stdio.h>

#include "storage/base/compiler.h"

#include "clients/c/include/narad/client.h"
#include "clients/cli/connect.h"

/* Exit codes: what scripts may rely on. */
enum {
    CLI_OK = 0,
    CLI_FAILED = 1,  /* wrong words, refused, or not done in whole; the text is on standard error */
    CLI_NOTHING = 3, /* consume: no message within the wait */
};

/* Is argv[1] one of ours (or `client` followed by one)? */
bool nd_cli_knows(const char *command);
/* argv as main got it. */
int nd_cli_main(int argc, char **argv);
/* The commands for `narad help`, one a line. */
void nd_cli_usage(FILE *out);

/* --- for the commands --- */
enum cli_kind { CLI_FLAG, CLI_TEXT, CLI_SECRET, CLI_U32, CLI_U64, CLI_DURATION, CLI_REPEAT };

/* An option says where in a struct of values it is put: a bool, const char *, uint32_t, uint64_t,
 * uint64_t (ms) or struct cli_texts, by kind; a secret is a char * by cli_secret_take. */
struct cli_option {
    const char *name; /* "--key" */
    char letter;      /* 's' for -s, or 0 */
    enum cli_kind kind;
    size_t value;     /* offset */
    size_t given;     /* offset of a bool set to true, or CLI_UNMARKED */
    const char *what; /* "K" in the help */
    const char *help;
};
#define CLI_UNMARKED SIZE_MAX

struct cli_texts {
    const char *items[64];
    size_t count;
};

struct cli {
    const char *command; /* "topics create" */
    bool json;
    uint64_t timeout_ms;
    const struct cli_flags *flags;   /* of the command line */
    const struct cli_target *target; /* where `client` leads */
    struct narad_client *client;     /* NULL for a command that is offline */
    const void *values;              /* the command's options: its struct of values */
    const char *args[8];             /* positional */
    size_t args_count;
};

struct cli_command {
    const char *name;      /* "topics create" */
    const char *arguments; /* "NAME" */
    const char *summary;   /* one line */
    const char *details;   /* more for --help; may be NULL */
    size_t args_min, args_max;
    const struct cli_option *options; /* ends with name NULL; may be NULL */
    size_t values_size;               /* of their struct of values, */
    const void *defaults;             /* which begins as a copy of this; NULL: zeros */
    bool offline;                     /* asks no node */
    int (*run)(struct cli *cli);
};

/* "narad: <text>" on standard error; returns CLI_FAILED. */
int cli_fail(const char *format, ...) ND_PRINTF(1, 2);
int cli_usage_error(const struct cli *cli, const char *format, ...) ND_PRINTF(2, 3);
/* The same from what the library said: "narad: <doing>: NOT_FOUND: topic not found". */
int cli_fail_code(const char *doing, int code, const char *text);
/* What was done: an object when --json asks for it, else a word on standard error. Frees `json`. */
void cli_done(const struct cli *cli, json_t *json, const char *word);
/* Print and free: two-space indent and a line feed, or one line. */
void cli_print_json(json_t *json, bool compact);
json_t *cli_topic_json(const Narad__V1__Topic *topic);
/* A message as an object of the REST API (3.3, 3.4), printed; `compact`: on one line. */
void cli_print_message_json(const char *topic, const Narad__V1__Message *message, bool compact);
/* "[p0 @12] key=k 2026-01-02T03:04:05Z payload"; bytes that are not text as hex, one line
 * end after the payload left out. */
void cli_print_message(const Narad__V1__Message *message);
/* A whole file ("-": standard input) of at most size_max bytes into nd_malloc'ed memory; false:
 * told. */
bool cli_read_file(const char *path, size_t size_max, uint8_t **data, size_t *size);

/* A line on standard error that is rewritten in place, at most ten times a second, when it is a
 * terminal; silent otherwise. */
struct cli_progress {
    uint64_t last_ns;
    bool shown;
};
void cli_progress(struct cli_progress *progress, const char *format, ...) ND_PRINTF(2, 3);
void cli_progress_end(struct cli_progress *progress);

/* How long a command looks for a node before it says that none answers. */
enum { CLI_CONNECT_MS = 1000 };

/* Does a node answer? For commands whose own calls would wait for one; tells when not. */
int cli_node_ask(const struct cli *cli, const char *doing);
/* Did all that was printed so far get out? Ask before a message is acked. */
bool cli_output_flush(void);
uint64_t cli_now_ns(void);
/* Set by the first SIGINT or SIGTERM of a command that calls cli_catch_signals; the second ends it.
 */
void cli_catch_signals(void);
bool cli_interrupted(void);

#endif
