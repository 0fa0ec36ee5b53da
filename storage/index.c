#include "storage/index.h"

#include "storage/base/alloc.h"
#include "storage/base/codec.h"
#include "storage/base/crc32c.h"

enum { MAGIC = 0x5849444e, FORMAT = 1, HEADER_SIZE = 88, ANCHOR_SIZE = 16, CRC_FROM = 8 };

void nd_index_init(struct nd_index *index)
{
    *index = (struct nd_index){0};
}

void nd_index_release(struct nd_index *index)
{
    nd_free(index->anchors);
    nd_index_init(index);
}

static void anchor_push(struct nd_index *index, uint64_t offset, uint64_t at)
{
    if (index->count == index->capacity) {
        index->capacity = index->capacity == 0 ? 16 : index->capacity * 2;
        index->anchors = nd_xrealloc(index->anchors, index->capacity * sizeof index->anchors[0]);
    }
    index->anchors[index->count++] = (struct nd_anchor){offset, at};
}

void nd_index_add(struct nd_index *index, uint64_t offset, uint64_t at, uint32_t stride)
{
    if (index->count > 0) {
        const struct nd_anchor *last = &index->anchors[index->count - 1];
        ND_ASSERT(offset > last->offset && at > last->at);
        if (at - last->at < stride) {
            return;
        }
    }
    anchor_push(index, offset, at);
}

uint64_t nd_index_find(const struct nd_index *index, uint64_t offset)
{
    uint32_t low = 0, high = index->count; /* the first anchor above the offset */

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (index->anchors[middle].offset > offset) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low > 0 ? index->anchors[low - 1].at : 0;
}

void nd_index_put(struct nd_buf *out, const struct nd_index *index,
                  const struct nd_segment_summary *summary)
{
    size_t from = out->size;

    nd_buf_put_u32(out, MAGIC);
    nd_buf_put_u32(out, 0);
    nd_buf_put_u32(out, FORMAT);
    nd_buf_put_u32(out, index->count);
    nd_buf_put(out, summary->store_id, sizeof summary->store_id);
    nd_buf_put_u64(out, summary->base_offset);
    nd_buf_put_u64(out, summary->epoch);
    nd_buf_put_u64(out, summary->end_offset);
    nd_buf_put_u64(out, summary->records);
    nd_buf_put_u64(out, summary->size);
    nd_buf_put_u64(out, (uint64_t)summary->first_ms);
    nd_buf_put_u64(out, (uint64_t)summary->last_ms);
    for (uint32_t i = 0; i < index->count; i++) {
        nd_buf_put_u64(out, index->anchors[i].offset);
        nd_buf_put_u64(out, index->anchors[i].at);
    }
    if (!nd_buf_failed(out)) {
        uint8_t *p = out->data + from;
        nd_put_u32(p + 4, nd_crc32c(0, p + CRC_FROM, out->size - from - CRC_FROM));
    }
}

bool nd_index_ids(struct nd_slice in, struct nd_segment_summary *out)
{
    struct nd_reader r = nd_reader_make(in);

    if (in.size < HEADER_SIZE || nd_read_u32(&r) != MAGIC) {
        return false;
    }
    (void)nd_read_slice(&r, 12);
    memcpy(out->store_id, nd_read_slice(&r, sizeof out->store_id).data, sizeof out->store_id);
    out->base_offset = nd_read_u64(&r);
    out->epoch = nd_read_u64(&r);
    return true;
}

static enum nd_err anchors_get(struct nd_reader *r, uint32_t count, struct nd_index *out,
                               const struct nd_segment_summary *summary)
{
    uint64_t offset_min = summary->base_offset, at_min = 1;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t offset = nd_read_u64(r);
        uint64_t at = nd_read_u64(r);
        if (offset < offset_min || offset >= summary->end_offset || at < at_min ||
            at >= summary->size) {
            return ND_ERR_CORRUPT;
        }
        anchor_push(out, offset, at);
        offset_min = offset + 1;
        at_min = at + 1;
    }
    return ND_OK;
}

enum nd_err nd_index_get(struct nd_slice in, struct nd_index *index_out,
                         struct nd_segment_summary *summary_out)
{
    struct nd_reader r = nd_reader_make(in);
    struct nd_segment_summary s = *summary_out;

    if (in.size < HEADER_SIZE || nd_read_u32(&r) != MAGIC ||
        nd_read_u32(&r) != nd_crc32c(0, in.data + CRC_FROM, in.size - CRC_FROM) ||
        nd_read_u32(&r) != FORMAT) {
        return ND_ERR_CORRUPT;
    }
    uint32_t count = nd_read_u32(&r);
    struct nd_slice store_id = nd_read_slice(&r, sizeof s.store_id);
    if (count != (in.size - HEADER_SIZE) / ANCHOR_SIZE ||
        (in.size - HEADER_SIZE) % ANCHOR_SIZE != 0 ||
        !nd_slice_equal(store_id, nd_slice_make(s.store_id, sizeof s.store_id)) ||
        nd_read_u64(&r) != s.base_offset || nd_read_u64(&r) != s.epoch) {
        return ND_ERR_CORRUPT;
    }
    s.end_offset = nd_read_u64(&r);
    s.records = nd_read_u64(&r);
    s.size = nd_read_u64(&r);
    s.first_ms = (int64_t)nd_read_u64(&r);
    s.last_ms = (int64_t)nd_read_u64(&r);
    if (s.end_offset < s.base_offset || s.records > s.end_offset - s.base_offset) {
        return ND_ERR_CORRUPT;
    }
    enum nd_err err = anchors_get(&r, count, index_out, &s);
    if (err != ND_OK) {
        nd_index_release(index_out);
        return err;
    }
    *summary_out = s;
    return ND_OK;
}
