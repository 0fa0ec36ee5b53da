/* Budgets (T1): what the requests of one kind may hold at a time, in bytes or by number. They are
 * taken where a request enters and given back with its answer, so that nothing behind that edge has
 * to block or refuse. A unary call over the budget is refused; a stream over it is not read any
 * further until there is room. */
#ifndef ND_BUDGETS_H
#define ND_BUDGETS_H

#include <stdatomic.h>

#include "storage/base/err.h"
#include "storage/base/list.h"
#include "storage/base/thread.h"

/* A stream that waits for room. `resume` runs once, under the budget's lock, on the thread that
 * gave room back; it may start a read and nothing more. */
struct nd_budget_waiter {
    struct nd_list link; /* guarded by the budget's lock; unlinked: not waiting */
    void (*resume)(struct nd_budget_waiter *waiter);
};

struct nd_budget {
    const char *what; /* "polls": for people; static */
    _Atomic size_t used;
    size_t soft; /* unary calls are refused and streams not read beyond it */
    size_t hard; /* one message more per stream was read: refused beyond this */
    _Atomic uint32_t waiting;
    struct nd_mutex lock;
    struct nd_list waiters; /* guarded by lock */
};

void nd_budget_init(struct nd_budget *budget, const char *what, size_t soft, size_t hard);
void nd_budget_release(struct nd_budget *budget); /* nobody waits, nothing is used */
/* False, and nothing is taken: used + amount would pass the soft (hard) limit. An amount above the
 * limit alone fits into an empty budget: a single large request must be possible. @thread any */
ND_CHECKED bool nd_budget_take(struct nd_budget *budget, size_t amount);
ND_CHECKED bool nd_budget_take_hard(struct nd_budget *budget, size_t amount);
/* "too many polls under way: at most 65536 at a time"; `limit`: which of the two was met. */
void nd_budget_errmsg(const struct nd_budget *budget, size_t limit, struct nd_errmsg *msg);
/* Taken without a question: for what is there already and cannot be refused. @thread any */
void nd_budget_charge(struct nd_budget *budget, size_t amount);
void nd_budget_give(struct nd_budget *budget, size_t amount); /* @thread any */
/* True: below the soft limit, go on reading. False: `waiter` is queued and resumes later. */
ND_CHECKED bool nd_budget_wait(struct nd_budget *budget, struct nd_budget_waiter *waiter);
/* Not waiting any more, whether it was or not; no resume runs after it returned. */
void nd_budget_forget(struct nd_budget *budget, struct nd_budget_waiter *waiter);

#endif
