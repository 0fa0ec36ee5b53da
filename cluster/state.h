/* The replicated state and its one way to change: applying a command.
 *
 * Deterministic (I-86): what a command does depends on the state and the command alone, so every
 * member that applied the same log holds the same bytes (snapshot.h). A refusal (exists, not found,
 * ...) is an outcome like any other and counts as applied; it changes nothing but the counters and
 * the proposer's window. Versions move only on success and are never used twice, also across delete
 * and re-create. Not thread safe: one thread applies; readers hold the table. */
#ifndef ND_STATE_H
#define ND_STATE_H

#include "cluster/dedupe.h"
#include "cluster/placement.h"
#include "cluster/table.h"
#include "cluster/user_table.h"

enum { ND_USERS_MAX = 10000 };

struct nd_state {
    struct nd_topic_table *table; /* a reference */
    struct nd_user_table *users;  /* a reference */
    struct nd_member *members;    /* ascending by number */
    uint32_t members_count;
    struct nd_dedupe dedupe;
    uint64_t applied_index; /* Raft index of the last command */
    uint64_t commands;      /* applied, refused ones too */
    uint64_t changes;       /* made; the source of versions */
};

/* What a command came to. Release it with nd_outcome_release(). */
struct nd_outcome {
    enum nd_err err;  /* ND_OK, INVALID_ARGUMENT, TOPIC_EXISTS, TOPIC_NOT_FOUND, CONFLICT,
                         ALREADY_EXISTS, NOT_FOUND, PERMISSION_DENIED (these three: a user), or
                         UNKNOWN_OUTCOME (a sequence that its proposer had given up) */
    const char *text; /* "" or why; inside `msg`, or static */
    bool repeat;      /* was applied before; nothing changed now */
    bool members_changed;
    /* The record that changed, a reference each: before NULL: created; after NULL: deleted; both
     * NULL: no topic changed. */
    const struct nd_topic *before, *after;
    const struct nd_user *user_before, *user_after; /* the same of users */
    struct nd_errmsg msg;
};

void nd_state_init(struct nd_state *state); /* empty */
void nd_state_release(struct nd_state *state);

/* Apply the command of Raft index `index`. */
void nd_state_apply(struct nd_state *state, const struct nd_command *command, uint64_t index,
                    struct nd_outcome *out);
void nd_outcome_release(struct nd_outcome *outcome);

const struct nd_member *nd_state_member(const struct nd_state *state,
                                        uint64_t member); /* or NULL */

#endif
