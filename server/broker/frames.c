#include "server/broker/frames.h"

#include "storage/base/alloc.h"

struct frame {
    struct nd_list recent;       /* in shard->frames */
    struct nd_list of_partition; /* in partition->frames */
    struct nd_shard *shard;
    struct nd_frame_data data;
    uint32_t cursor; /* index of the record at cursor_at: reads go upwards */
    size_t cursor_at;
};

static size_t frame_bytes(const struct frame *frame)
{
    return frame->data.block->size + sizeof *frame;
}

static void frame_free(struct frame *frame)
{
    frame->shard->frames_bytes -= frame_bytes(frame);
    nd_list_remove(&frame->recent);
    nd_list_remove(&frame->of_partition);
    nd_block_unref(frame->data.block);
    nd_free(frame);
}

bool nd_frames_read(struct nd_partition *partition, uint64_t offset, struct nd_record_view *view,
                    struct nd_block **block)
{
    struct nd_shard *shard = partition->topic->shard;

    ND_LIST_FOREACH (&partition->frames, link) {
        struct frame *frame = ND_CONTAINER_OF(link, struct frame, of_partition);
        if (offset < frame->data.base_offset ||
            offset - frame->data.base_offset >= frame->data.count) {
            continue;
        }
        uint32_t index = (uint32_t)(offset - frame->data.base_offset);
        if (index < frame->cursor) {
            frame->cursor = 0;
            frame->cursor_at = 0;
        }
        struct nd_slice rest = nd_slice_make(frame->data.records.data + frame->cursor_at,
                                             frame->data.records.size - frame->cursor_at);
        size_t at = nd_run_seek(rest, index - frame->cursor), size;
        frame->cursor = index;
        frame->cursor_at += at;
        nd_list_remove(&frame->recent);
        nd_list_append(&shard->frames, &frame->recent);
        *block = frame->data.block;
        return nd_record_get(nd_slice_make(rest.data + at, rest.size - at), view, &size) == ND_OK;
    }
    return false;
}

void nd_frames_add(struct nd_partition *partition, const struct nd_frame_data *data)
{
    struct nd_shard *shard = partition->topic->shard;
    struct frame *frame = nd_xcalloc(1, sizeof *frame);

    frame->shard = shard;
    frame->data = *data;
    nd_list_append(&shard->frames, &frame->recent);
    nd_list_append(&partition->frames, &frame->of_partition);
    shard->frames_bytes += frame_bytes(frame);
}

void nd_frames_drop(struct nd_partition *partition)
{
    struct nd_list *link;

    while ((link = nd_list_first(&partition->frames)) != NULL) {
        frame_free(ND_CONTAINER_OF(link, struct frame, of_partition));
    }
}

/* One flushed run of the partition whose flush is the longest ago. */
static void drop_cached_run(struct nd_shard *shard)
{
    struct nd_list *link = nd_list_first(&shard->cached);
    struct nd_partition *partition = ND_CONTAINER_OF(link, struct nd_partition, cached_link);

    if (nd_tail_drop_cached(&partition->tail) == 0) {
        nd_list_remove(link);
        return;
    }
    nd_partition_account(partition);
    if (partition->cached == 0) {
        nd_list_remove(link);
    }
}

void nd_frames_trim(struct nd_shard *shard)
{
    const struct nd_broker_options *options = &shard->broker->options;
    size_t budget = options->cache_bytes / options->shards;

    while (shard->cached_bytes + shard->frames_bytes > budget) {
        struct nd_list *link = nd_list_first(&shard->frames);
        if (link != NULL && (shard->frames_bytes > budget / 2 || nd_list_empty(&shard->cached))) {
            frame_free(ND_CONTAINER_OF(link, struct frame, recent));
        } else if (!nd_list_empty(&shard->cached)) {
            drop_cached_run(shard);
        } else {
            break;
        }
    }
}
