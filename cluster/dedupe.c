#include "cluster/dedupe.h"

#include <string.h>

#include "storage/base/alloc.h"

void nd_dedupe_init(struct nd_dedupe *dedupe)
{
    *dedupe = (struct nd_dedupe){0};
}

void nd_dedupe_release(struct nd_dedupe *dedupe)
{
    for (uint32_t i = 0; i < dedupe->rows_count; i++) {
        nd_free(dedupe->rows[i].outcomes);
    }
    nd_free(dedupe->rows);
    nd_dedupe_init(dedupe);
}

/* --- rows --- */

/* The first row whose proposer is not below `proposer`. */
static uint32_t row_search(const struct nd_dedupe *dedupe, uint64_t proposer)
{
    uint32_t low = 0;
    uint32_t high = dedupe->rows_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (dedupe->rows[middle].proposer < proposer) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct nd_dedupe_row *row_find(const struct nd_dedupe *dedupe, uint64_t proposer)
{
    uint32_t at = row_search(dedupe, proposer);
    return at < dedupe->rows_count && dedupe->rows[at].proposer == proposer ? &dedupe->rows[at]
                                                                            : NULL;
}

static void row_evict_oldest(struct nd_dedupe *dedupe)
{
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < dedupe->rows_count; i++) {
        if (dedupe->rows[i].used_at < dedupe->rows[oldest].used_at) {
            oldest = i;
        }
    }
    nd_free(dedupe->rows[oldest].outcomes);
    dedupe->rows_count--;
    memmove(dedupe->rows + oldest, dedupe->rows + oldest + 1,
            (dedupe->rows_count - oldest) * sizeof dedupe->rows[0]);
}

struct nd_dedupe_row *nd_dedupe_add_row(struct nd_dedupe *dedupe, uint64_t proposer)
{
    if (dedupe->rows == NULL) {
        dedupe->rows = nd_xcalloc(ND_DEDUPE_ROWS_MAX, sizeof dedupe->rows[0]);
    }
    if (dedupe->rows_count == ND_DEDUPE_ROWS_MAX) {
        row_evict_oldest(dedupe);
    }
    uint32_t at = row_search(dedupe, proposer);
    struct nd_dedupe_row *row = &dedupe->rows[at];
    memmove(row + 1, row, (dedupe->rows_count - at) * sizeof *row);
    dedupe->rows_count++;
    *row = (struct nd_dedupe_row){.proposer = proposer, .open_from = 1};
    return row;
}

/* --- outcomes --- */

/* The first outcome whose sequence is not below `sequence`. */
static uint32_t outcome_search(const struct nd_dedupe_row *row, uint64_t sequence)
{
    uint32_t low = 0;
    uint32_t high = row->outcomes_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (row->outcomes[middle].sequence < sequence) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void nd_dedupe_add_outcome(struct nd_dedupe_row *row, uint64_t sequence, enum nd_outcome_code code)
{
    ND_ASSERT(row->outcomes_count < ND_DEDUPE_WINDOW);
    if (row->outcomes_count == row->outcomes_capacity) {
        row->outcomes_capacity = row->outcomes_capacity == 0 ? 4 : row->outcomes_capacity * 2;
        row->outcomes =
            nd_xrealloc(row->outcomes, row->outcomes_capacity * sizeof row->outcomes[0]);
    }
    uint32_t at = outcome_search(row, sequence);
    memmove(row->outcomes + at + 1, row->outcomes + at,
            (row->outcomes_count - at) * sizeof row->outcomes[0]);
    row->outcomes[at] = (struct nd_dedupe_outcome){sequence, code};
    row->outcomes_count++;
}

static void row_raise_open_from(struct nd_dedupe_row *row, uint64_t open_from)
{
    if (open_from <= row->open_from) {
        return;
    }
    uint32_t keep_from = outcome_search(row, open_from);
    row->outcomes_count -= keep_from;
    if (row->outcomes_count > 0) {
        memmove(row->outcomes, row->outcomes + keep_from,
                row->outcomes_count * sizeof row->outcomes[0]);
    }
    row->open_from = open_from;
}

enum nd_dedupe_verdict nd_dedupe_check(struct nd_dedupe *dedupe, uint64_t proposer,
                                       uint64_t sequence, uint64_t open_from, uint64_t now,
                                       enum nd_outcome_code *code_out)
{
    if (proposer == 0 || open_from == 0 || open_from > sequence ||
        sequence - open_from >= ND_DEDUPE_WINDOW) {
        return ND_DEDUPE_BAD;
    }
    struct nd_dedupe_row *row = row_find(dedupe, proposer);
    if (row == NULL) {
        row = nd_dedupe_add_row(dedupe, proposer);
    }
    row->used_at = now;
    row_raise_open_from(row, open_from);
    if (sequence < row->open_from) {
        return ND_DEDUPE_TOO_OLD;
    }
    uint32_t at = outcome_search(row, sequence);
    if (at < row->outcomes_count && row->outcomes[at].sequence == sequence) {
        *code_out = row->outcomes[at].code;
        return ND_DEDUPE_REPEAT;
    }
    return ND_DEDUPE_NEW;
}

void nd_dedupe_settle(struct nd_dedupe *dedupe, uint64_t proposer, uint64_t sequence,
                      enum nd_outcome_code code)
{
    struct nd_dedupe_row *row = row_find(dedupe, proposer);
    ND_ASSERT(row != NULL && sequence >= row->open_from);
    nd_dedupe_add_outcome(row, sequence, code);
}
