/* A thread's inbox (T2): others push messages, the owner takes all of them at once under the lock
 * and works without it. A wake-up is sent only when the owner sleeps.
 *
 *             wait                    push, wake, deadline
 *   working ────────► asleep ──────────────────────────────────────────► working
 *                       │ ▲ ▲
 *             push_help │ │ └ nothing left, no earlier deadline: asleep as before
 *                       ▼ │
 *                      lent ── more to do, or the deadline passed ─────► working
 *
 * The owner's place is one: who is in it has all that is the owner's to itself, and the lock hands
 * it over.
 *
 * A message is embedded in the sender's request; it belongs to the receiver from the push until its
 * run() is called, and run() may free or re-push it. */
#ifndef ND_BASE_INBOX_H
#define ND_BASE_INBOX_H

#include "storage/base/list.h"
#include "storage/base/thread.h"

struct nd_msg {
    struct nd_list link;
    /* Runs on the owner's thread. `owner` is what the owner passes to nd_inbox_run(). */
    void (*run)(struct nd_msg *msg, void *owner);
};

struct nd_inbox {
    struct nd_mutex lock;
    struct nd_bell bell;
    struct nd_list messages; /* guarded by lock */
    bool sleeping;           /* guarded by lock */
    bool woken;              /* guarded by lock: nd_inbox_wake() since the last take */
    bool lent;               /* guarded by lock: a pusher works in the sleeping owner's place */
    bool overdue;            /* guarded by lock: the owner's deadline passed meanwhile */
    uint64_t deadline_ns;    /* guarded by lock: of the sleeping owner */
    /* What a pusher may do in a sleeping owner's place (nd_inbox_push_help): what the owner does
     * between two waits, as it would itself. True: there may be more to do at once; *next_ns: when
     * there is something to do without a message. Set once, before the first push; NULL: the owner
     * lends nothing. */
    bool (*step)(void *step_data, uint64_t *next_ns);
    void *step_data;
    /* Replaces the condition for owners that sleep elsewhere (a uv loop, a completion queue). Set
     * once, before the first push. Called on the pusher's thread without the lock, only when the
     * inbox was empty and no wake-up was pending, so the owner answers each call with
     * nd_inbox_run(). What notify_data points to outlives every push. NULL: the condition. */
    void (*notify)(void *notify_data);
    void *notify_data;
};

void nd_inbox_init(struct nd_inbox *inbox);
/* Must be empty, and no push may begin from here on; one that is returning is waited for. */
void nd_inbox_release(struct nd_inbox *inbox);

/* @thread any */
void nd_inbox_push(struct nd_inbox *inbox, struct nd_msg *msg);
/* Push all links (of struct nd_msg) of `messages`, in order, with one lock and one wake-up. */
void nd_inbox_push_all(struct nd_inbox *inbox, struct nd_list *messages);
/* The same; a sleeping owner that lends its place is not woken: the caller works in it, a few
 * steps at most, and gives it back. It saves the crossing to another thread and back. `run` of the
 * messages and all that the step calls then happen on this thread: hold no lock that they take. */
void nd_inbox_push_help(struct nd_inbox *inbox, struct nd_list *messages);
/* Make the owner's nd_inbox_wait() return, now or when it is next called, with or without messages.
 */
void nd_inbox_wake(struct nd_inbox *inbox);

/* @thread the owner's */
/* Take what is there and run it in order; returns how many ran. What is pushed meanwhile, also by
 * the messages themselves, stays for the next call. */
size_t nd_inbox_run(struct nd_inbox *inbox, void *owner);
bool nd_inbox_empty(struct nd_inbox *inbox);
/* Sleep until there is a message, a wake-up, or `deadline_ns` (CLOCK_MONOTONIC; UINT64_MAX: none).
 */
void nd_inbox_wait(struct nd_inbox *inbox, uint64_t deadline_ns);

#endif
