/* Work for the channel's thread after a pause. The core has no public timer; watching the channel's
 * connectivity with a deadline is one that a change of the state may end early, so it is begun
 * again until the time has come. It is begun in slices, because a watch cannot be called off. */
#include "storage/base/alloc.h"

#include "proto/rpc/channel.h"

enum { SLICE_MS = 50 };

struct later {
    struct nd_rpc_tag tag;
    struct nd_rpc_channel *channel;
    gpr_timespec due;
    void (*run)(void *data);
    void *data;
};

static void later_watch_locked(struct later *later) ND_REQUIRES(later->channel->lock)
{
    struct nd_rpc_channel *channel = later->channel;
    gpr_timespec slice =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(SLICE_MS, GPR_TIMESPAN));

    ND_RPC_TAG_RELEASE(&later->tag);
    grpc_channel_watch_connectivity_state(
        channel->core, grpc_channel_check_connectivity_state(channel->core, 0),
        gpr_time_min(slice, later->due), channel->queue, &later->tag);
}

static void on_slice(struct nd_rpc_tag *tag, bool ok)
{
    struct later *later = ND_CONTAINER_OF(tag, struct later, tag);
    struct nd_rpc_channel *channel = later->channel;

    (void)ok;
    nd_mutex_lock(&later->channel->lock);
    bool wait = !channel->closing && gpr_time_cmp(gpr_now(GPR_CLOCK_MONOTONIC), later->due) < 0;
    if (wait) {
        later_watch_locked(later);
    }
    nd_mutex_unlock(&later->channel->lock);
    if (wait) {
        return;
    }
    later->run(later->data);
    nd_free(later);
    nd_rpc_channel_busy_drop(channel);
}

void nd_rpc_channel_post_after(struct nd_rpc_channel *channel, uint32_t delay_ms,
                               void (*run)(void *data), void *data)
{
    struct later *later = nd_xcalloc(1, sizeof *later);

    later->tag.run = on_slice;
    later->channel = channel;
    later->due =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(delay_ms, GPR_TIMESPAN));
    later->run = run;
    later->data = data;
    nd_mutex_lock(&later->channel->lock);
    channel->busy += 1;
    later_watch_locked(later);
    nd_mutex_unlock(&later->channel->lock);
}
