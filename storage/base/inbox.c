#include "storage/base/inbox.h"

/* Steps of a helper before the owner is woken after all: a helper has work of its own. */
enum { HELP_STEPS_MAX = 4 };

void nd_inbox_init(struct nd_inbox *inbox)
{
    nd_mutex_init(&inbox->lock);
    nd_bell_init(&inbox->bell);
    nd_list_init(&inbox->messages);
    inbox->sleeping = false;
    inbox->woken = false;
    inbox->lent = false;
    inbox->overdue = false;
    inbox->deadline_ns = UINT64_MAX;
    inbox->step = NULL;
    inbox->step_data = NULL;
    inbox->notify = NULL;
    inbox->notify_data = NULL;
}

void nd_inbox_release(struct nd_inbox *inbox)
{
    /* The lock waits for a push that has delivered its last message but not returned yet. */
    nd_mutex_lock(&inbox->lock);
    ND_ASSERT(nd_list_empty(&inbox->messages) && !inbox->sleeping);
    nd_mutex_unlock(&inbox->lock);
    nd_mutex_release(&inbox->lock);
}

/* Once the lock is free the owner may take the message and release the inbox: what is to be done
 * then must be known, and only the bell's address is used. True: wake it. */
static bool ring_locked(struct nd_inbox *inbox) ND_REQUIRES(inbox->lock)
{
    bool sleeping = inbox->sleeping && !inbox->lent; /* a helper looks before it leaves */

    if (sleeping) {
        inbox->sleeping = false; /* once is enough, however many pushes come before it runs */
        nd_bell_ring(&inbox->bell);
    }
    return sleeping;
}

static bool quiet_locked(const struct nd_inbox *inbox)
{
    return nd_list_empty(&inbox->messages) && !inbox->woken;
}

void nd_inbox_push(struct nd_inbox *inbox, struct nd_msg *msg)
{
    struct nd_list one = ND_LIST_INIT(one);

    nd_list_append(&one, &msg->link);
    nd_inbox_push_all(inbox, &one);
}

void nd_inbox_push_all(struct nd_inbox *inbox, struct nd_list *messages)
{
    void (*notify)(void *) = NULL;
    void *notify_data = NULL;

    if (nd_list_empty(messages)) {
        return;
    }
    nd_mutex_lock(&inbox->lock);
    if (quiet_locked(inbox)) {
        notify = inbox->notify;
        notify_data = inbox->notify_data;
    }
    nd_list_move(&inbox->messages, messages);
    bool wake = ring_locked(inbox);
    nd_mutex_unlock(&inbox->lock);
    if (wake) {
        nd_bell_wake(&inbox->bell);
    }
    if (notify != NULL) {
        notify(notify_data);
    }
}

/* The helper's place back to the owner. False: there is more to do, and the helper may go on. */
static bool give_back(struct nd_inbox *inbox, bool more, uint64_t next_ns, bool may_go_on)
{
    nd_mutex_lock(&inbox->lock);
    more = more || !quiet_locked(inbox);
    if (more && may_go_on) {
        nd_mutex_unlock(&inbox->lock);
        return false;
    }
    inbox->lent = false;
    bool wake = more || inbox->overdue || next_ns < inbox->deadline_ns;
    if (wake) {
        inbox->woken = true; /* also without a message: its wait ends */
        (void)ring_locked(inbox);
    }
    nd_mutex_unlock(&inbox->lock);
    if (wake) {
        nd_bell_wake(&inbox->bell);
    }
    return true;
}

void nd_inbox_push_help(struct nd_inbox *inbox, struct nd_list *messages)
{
    uint64_t next_ns = UINT64_MAX;
    int steps = 0;
    bool more;

    if (nd_list_empty(messages)) {
        return;
    }
    nd_mutex_lock(&inbox->lock);
    bool mine = inbox->step != NULL && inbox->sleeping && !inbox->lent;
    if (mine) {
        inbox->lent = true;
        nd_list_move(&inbox->messages, messages);
    }
    nd_mutex_unlock(&inbox->lock);
    if (!mine) {
        nd_inbox_push_all(inbox, messages);
        return;
    }
    do {
        more = inbox->step(inbox->step_data, &next_ns);
    } while (!give_back(inbox, more, next_ns, ++steps < HELP_STEPS_MAX));
}

void nd_inbox_wake(struct nd_inbox *inbox)
{
    void (*notify)(void *) = NULL;
    void *notify_data = NULL;

    nd_mutex_lock(&inbox->lock);
    if (quiet_locked(inbox)) {
        notify = inbox->notify;
        notify_data = inbox->notify_data;
    }
    inbox->woken = true;
    bool wake = ring_locked(inbox);
    nd_mutex_unlock(&inbox->lock);
    if (wake) {
        nd_bell_wake(&inbox->bell);
    }
    if (notify != NULL) {
        notify(notify_data);
    }
}

size_t nd_inbox_run(struct nd_inbox *inbox, void *owner)
{
    struct nd_list mine = ND_LIST_INIT(mine);
    size_t count = 0;

    nd_mutex_lock(&inbox->lock);
    nd_list_move(&mine, &inbox->messages);
    inbox->woken = false;
    nd_mutex_unlock(&inbox->lock);

    for (struct nd_list *link; (link = nd_list_pop(&mine)) != NULL; count++) {
        struct nd_msg *msg = ND_CONTAINER_OF(link, struct nd_msg, link);
        msg->run(msg, owner);
    }
    return count;
}

bool nd_inbox_empty(struct nd_inbox *inbox)
{
    nd_mutex_lock(&inbox->lock);
    bool empty = nd_list_empty(&inbox->messages);
    nd_mutex_unlock(&inbox->lock);
    return empty;
}

void nd_inbox_wait(struct nd_inbox *inbox, uint64_t deadline_ns)
{
    bool in_time = true;

    nd_mutex_lock(&inbox->lock);
    inbox->deadline_ns = deadline_ns;
    while (inbox->lent || (in_time && quiet_locked(inbox))) {
        inbox->sleeping = true;
        uint64_t until_ns = in_time ? deadline_ns : UINT64_MAX; /* a helper gives the place back */
        uint32_t seen = nd_bell_count(&inbox->bell);
        nd_mutex_unlock(&inbox->lock);
        in_time = nd_bell_wait_until(&inbox->bell, seen, until_ns) && in_time;
        nd_mutex_lock(&inbox->lock);
        inbox->overdue = !in_time;
    }
    inbox->sleeping = false;
    inbox->woken = false;
    inbox->overdue = false;
    nd_mutex_unlock(&inbox->lock);
}
