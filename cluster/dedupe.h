/* Which commands of which proposer have been applied, so that a repeat is applied once.
 *
 * A proposer (one start of one node) numbers its commands 1, 2, 3 ... and says in each from which
 * sequence on it still waits for answers (`open_from`). Outcomes below that are dropped, so a row
 * is as long as the proposer has commands in flight, and never longer than ND_DEDUPE_WINDOW. The
 * least recently heard proposer goes when ND_DEDUPE_ROWS_MAX are known. Part of the replicated
 * state: everything here is a function of the log alone. Not thread safe. */
#ifndef ND_DEDUPE_H
#define ND_DEDUPE_H

#include "storage/base/compiler.h"

enum { ND_DEDUPE_WINDOW = 1024, ND_DEDUPE_ROWS_MAX = 256 };

/* Stored in snapshots: frozen (Outcome in command.proto). */
enum nd_outcome_code {
    ND_OUTCOME_OK = 0,
    ND_OUTCOME_INVALID_ARGUMENT = 1,
    ND_OUTCOME_TOPIC_EXISTS = 2,
    ND_OUTCOME_TOPIC_NOT_FOUND = 3,
    ND_OUTCOME_CONFLICT = 4,
    ND_OUTCOME_TOO_OLD = 5, /* never stored */
    ND_OUTCOME_USER_EXISTS = 6,
    ND_OUTCOME_USER_NOT_FOUND = 7,
    ND_OUTCOME_ROOT_STAYS = 8,
    ND_OUTCOME_ROOT_GRANTS = 9,
};

struct nd_dedupe_outcome {
    uint64_t sequence;
    enum nd_outcome_code code;
};

struct nd_dedupe_row {
    uint64_t proposer;
    uint64_t open_from;
    uint64_t used_at;
    struct nd_dedupe_outcome *outcomes; /* ascending, all at or above open_from */
    uint32_t outcomes_count, outcomes_capacity;
};

struct nd_dedupe {
    struct nd_dedupe_row *rows; /* ascending by proposer */
    uint32_t rows_count;
};

enum nd_dedupe_verdict {
    ND_DEDUPE_NEW,     /* apply it, then nd_dedupe_settle() */
    ND_DEDUPE_REPEAT,  /* applied before; the outcome of then is in *code_out */
    ND_DEDUPE_TOO_OLD, /* below what the proposer itself said it waits for: never applied */
    ND_DEDUPE_BAD,     /* numbers that no proposer sends */
};

void nd_dedupe_init(struct nd_dedupe *dedupe);
void nd_dedupe_release(struct nd_dedupe *dedupe);

/* Look a command up and note that its proposer was heard at `now` (the state's count of commands).
 */
enum nd_dedupe_verdict nd_dedupe_check(struct nd_dedupe *dedupe, uint64_t proposer,
                                       uint64_t sequence, uint64_t open_from, uint64_t now,
                                       enum nd_outcome_code *code_out);
/* Note the outcome of a command that nd_dedupe_check() just called new. */
void nd_dedupe_settle(struct nd_dedupe *dedupe, uint64_t proposer, uint64_t sequence,
                      enum nd_outcome_code code);
/* Append a row, for a restore: rows and outcomes come in ascending order. */
struct nd_dedupe_row *nd_dedupe_add_row(struct nd_dedupe *dedupe, uint64_t proposer);
void nd_dedupe_add_outcome(struct nd_dedupe_row *row, uint64_t sequence, enum nd_outcome_code code);

#endif
