#include "server/rpc/budgets.h"

/* `used` and `waiting` are a store-load pair on both sides (a waiter announces itself and looks at
 * used; a giver lowers used and looks at waiting), hence sequentially consistent. */

void nd_budget_init(struct nd_budget *budget, const char *what, size_t soft, size_t hard)
{
    budget->what = what;
    atomic_init(&budget->used, 0);
    atomic_init(&budget->waiting, 0);
    budget->soft = soft;
    budget->hard = hard;
    nd_mutex_init(&budget->lock);
    nd_list_init(&budget->waiters);
}

void nd_budget_release(struct nd_budget *budget)
{
    ND_ASSERT(nd_list_empty(&budget->waiters));
    ND_ASSERT(atomic_load_explicit(&budget->used, memory_order_relaxed) ==
              0); /* after all threads */
    nd_mutex_release(&budget->lock);
}

static bool take(struct nd_budget *budget, size_t amount, size_t limit)
{
    size_t before = atomic_fetch_add_explicit(&budget->used, amount, memory_order_seq_cst);
    if (before == 0 || (before <= limit && amount <= limit - before)) {
        return true;
    }
    nd_budget_give(budget, amount);
    return false;
}

bool nd_budget_take(struct nd_budget *budget, size_t amount)
{
    return take(budget, amount, budget->soft);
}

bool nd_budget_take_hard(struct nd_budget *budget, size_t amount)
{
    return take(budget, amount, budget->hard);
}

void nd_budget_errmsg(const struct nd_budget *budget, size_t limit, struct nd_errmsg *msg)
{
    nd_errmsg_set(msg, "too many %s under way: at most %zu at a time", budget->what, limit);
}

void nd_budget_charge(struct nd_budget *budget, size_t amount)
{
    atomic_fetch_add_explicit(&budget->used, amount, memory_order_seq_cst);
}

static bool has_room(struct nd_budget *budget)
{
    return atomic_load_explicit(&budget->used, memory_order_seq_cst) < budget->soft;
}

static void remove_waiter(struct nd_budget *budget, struct nd_budget_waiter *waiter)
{
    if (!nd_list_empty(&waiter->link)) {
        nd_list_remove(&waiter->link);
        atomic_fetch_sub_explicit(&budget->waiting, 1, memory_order_seq_cst);
    }
}

void nd_budget_give(struct nd_budget *budget, size_t amount)
{
    size_t before = atomic_fetch_sub_explicit(&budget->used, amount, memory_order_seq_cst);
    ND_ASSERT(before >= amount);
    if (atomic_load_explicit(&budget->waiting, memory_order_seq_cst) == 0) {
        return;
    }
    nd_mutex_lock(&budget->lock);
    while (has_room(budget) && !nd_list_empty(&budget->waiters)) {
        struct nd_budget_waiter *waiter =
            ND_CONTAINER_OF(nd_list_first(&budget->waiters), struct nd_budget_waiter, link);
        remove_waiter(budget, waiter);
        waiter->resume(waiter);
    }
    nd_mutex_unlock(&budget->lock);
}

bool nd_budget_wait(struct nd_budget *budget, struct nd_budget_waiter *waiter)
{
    if (has_room(budget)) {
        return true;
    }
    nd_mutex_lock(&budget->lock);
    nd_list_append(&budget->waiters, &waiter->link);
    atomic_fetch_add_explicit(&budget->waiting, 1, memory_order_seq_cst);
    bool room = has_room(budget); /* given back meanwhile, by somebody who did not see us */
    if (room) {
        remove_waiter(budget, waiter);
    }
    nd_mutex_unlock(&budget->lock);
    return room;
}

void nd_budget_forget(struct nd_budget *budget, struct nd_budget_waiter *waiter)
{
    nd_mutex_lock(&budget->lock);
    remove_waiter(budget, waiter);
    nd_mutex_unlock(&budget->lock);
}
