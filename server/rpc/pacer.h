/* Those who took more than their rate allows go on when they may: a subscription, a replay. One
 * thread with a clock, only where a rate is set (limits.consume_messages_per_second). */
#ifndef ND_PACER_H
#define ND_PACER_H

#include "storage/base/heap.h"

struct nd_pacer;

struct nd_pace {
    struct nd_heap_node node; /* guarded by the pacer's lock */
    /* On the pacer's thread, without its lock, once for each nd_pacer_after(). */
    void (*run)(struct nd_pace *pace);
};

/* NULL: the thread did not start. */
struct nd_pacer *nd_pacer_new(void);
void nd_pacer_free(struct nd_pacer *pacer); /* nobody waits; NULL passes */

static inline void nd_pace_init(struct nd_pace *pace, void (*run)(struct nd_pace *pace))
{
    nd_heap_node_init(&pace->node);
    pace->run = run;
}
/* Run in `delay_ms`; one that waits already waits for that instead. @thread any */
void nd_pacer_after(struct nd_pacer *pacer, struct nd_pace *pace, uint32_t delay_ms);
/* It does not wait any more, and does not run any more when this returns. Not by `run` itself, nor
 * with a lock that `run` takes. A NULL pacer passes. @thread any */
void nd_pacer_forget(struct nd_pacer *pacer, struct nd_pace *pace);

#endif
