/* ENCODING, little-endian
 *    0 u16 version 1      2 u16 topic size       4 u32 partition
 *    8 u64 applied sequence                     16 u64 incarnation
 *   24 u64 frontier                             32 u64 next offset
 *   40 u64 flushed offset                       48 u64 log start
 *   56 i64 last commit time, ms
 *   64 u32 ahead count   68 u32 attempts count  72 u32 tokens count  76 u32 cursors count
 *   80 topic | ahead: u64 first, u64 last | attempts: u64 offset, u32 count
 *      | tokens: u64 member, u64 writer, u64 sequence
 *      | cursors: u64 child incarnation, u64 epoch, u64 fork, u64 next offset
 * Nothing follows. To change it see storage/README.md. */
#include "storage/positions.h"

#include "storage/base/alloc.h"
#include "storage/base/codec.h"

enum {
    VERSION = 1,
    RANGE_SIZE = 16,
    ATTEMPT_SIZE = 12,
    TOKEN_SIZE = 24,
    CURSOR_SIZE = 32,
    AT_TOPIC_SIZE = 2,
    AT_PARTITION = 4,
    AT_INCARNATION = 16,
    AT_TOPIC = 80,
};

void nd_positions_init(struct nd_positions *positions)
{
    memset(positions, 0, sizeof *positions);
}

void nd_positions_release(struct nd_positions *positions)
{
    nd_free(positions->ahead);
    nd_free(positions->attempts);
    nd_free(positions->tokens);
    nd_free(positions->cursors);
    nd_positions_init(positions);
}

static void *array_copy(const void *from, size_t count, size_t size)
{
    void *to = NULL;

    if (count > 0) {
        to = nd_xmalloc(count * size);
        memcpy(to, from, count * size);
    }
    return to;
}

void nd_positions_copy(struct nd_positions *to, const struct nd_positions *from)
{
    struct nd_positions copy = *from;

    copy.ahead = array_copy(from->ahead, from->ahead_count, sizeof *from->ahead);
    copy.attempts = array_copy(from->attempts, from->attempts_count, sizeof *from->attempts);
    copy.tokens = array_copy(from->tokens, from->tokens_count, sizeof *from->tokens);
    copy.cursors = array_copy(from->cursors, from->cursors_count, sizeof *from->cursors);
    nd_positions_release(to);
    *to = copy;
}

bool nd_topic_name_is_sane(struct nd_slice topic)
{
    return topic.size >= 1 && topic.size <= ND_TOPIC_NAME_SIZE_MAX &&
           !nd_slice_equal(topic, nd_slice_str(".")) &&
           !nd_slice_equal(topic, nd_slice_str("..")) &&
           memchr(topic.data, '/', topic.size) == NULL &&
           memchr(topic.data, '\0', topic.size) == NULL;
}

/* What every encoding holds, whichever side of the disk it is on. */
static bool arrays_are_sane(const struct nd_positions *p)
{
    for (uint32_t i = 0; i < p->ahead_count; i++) {
        uint64_t below = i == 0 ? p->frontier : p->ahead[i - 1].last + 1;
        if (p->ahead[i].first <= below || p->ahead[i].last < p->ahead[i].first ||
            p->ahead[i].last == UINT64_MAX) {
            return false;
        }
    }
    for (uint32_t i = 1; i < p->attempts_count; i++) {
        if (p->attempts[i].offset <= p->attempts[i - 1].offset) {
            return false;
        }
    }
    return true;
}

void nd_positions_put(struct nd_buf *out, const struct nd_positions *p)
{
    size_t topic_size = strlen(p->id.topic);

    ND_ASSERT(nd_topic_name_is_sane(nd_slice_str(p->id.topic)));
    ND_ASSERT(arrays_are_sane(p));
    nd_buf_put_u16(out, VERSION);
    nd_buf_put_u16(out, (uint16_t)topic_size);
    nd_buf_put_u32(out, p->id.partition);
    nd_buf_put_u64(out, p->applied_sequence);
    nd_buf_put_u64(out, p->id.incarnation);
    nd_buf_put_u64(out, p->frontier);
    nd_buf_put_u64(out, p->next_offset);
    nd_buf_put_u64(out, p->flushed_offset);
    nd_buf_put_u64(out, p->log_start);
    nd_buf_put_u64(out, (uint64_t)p->last_commit_ms);
    nd_buf_put_u32(out, p->ahead_count);
    nd_buf_put_u32(out, p->attempts_count);
    nd_buf_put_u32(out, p->tokens_count);
    nd_buf_put_u32(out, p->cursors_count);
    nd_buf_put(out, p->id.topic, topic_size);
    for (uint32_t i = 0; i < p->ahead_count; i++) {
        nd_buf_put_u64(out, p->ahead[i].first);
        nd_buf_put_u64(out, p->ahead[i].last);
    }
    for (uint32_t i = 0; i < p->attempts_count; i++) {
        nd_buf_put_u64(out, p->attempts[i].offset);
        nd_buf_put_u32(out, p->attempts[i].count);
    }
    for (uint32_t i = 0; i < p->tokens_count; i++) {
        nd_buf_put_u64(out, p->tokens[i].member);
        nd_buf_put_u64(out, p->tokens[i].writer);
        nd_buf_put_u64(out, p->tokens[i].sequence);
    }
    for (uint32_t i = 0; i < p->cursors_count; i++) {
        nd_buf_put_u64(out, p->cursors[i].child_incarnation);
        nd_buf_put_u64(out, p->cursors[i].epoch);
        nd_buf_put_u64(out, p->cursors[i].fork);
        nd_buf_put_u64(out, p->cursors[i].next_offset);
    }
}

/* Fixed part and counts; the counts are checked against what is left before anything is allocated.
 */
static enum nd_err fixed_get(struct nd_reader *in, struct nd_positions *p)
{
    uint16_t version = nd_read_u16(in);
    uint16_t topic_size = nd_read_u16(in);

    p->id.partition = nd_read_u32(in);
    p->applied_sequence = nd_read_u64(in);
    p->id.incarnation = nd_read_u64(in);
    p->frontier = nd_read_u64(in);
    p->next_offset = nd_read_u64(in);
    p->flushed_offset = nd_read_u64(in);
    p->log_start = nd_read_u64(in);
    p->last_commit_ms = (int64_t)nd_read_u64(in);
    p->ahead_count = nd_read_u32(in);
    p->attempts_count = nd_read_u32(in);
    p->tokens_count = nd_read_u32(in);
    p->cursors_count = nd_read_u32(in);
    struct nd_slice topic = nd_read_slice(in, topic_size);
    uint64_t arrays =
        (uint64_t)p->ahead_count * RANGE_SIZE + (uint64_t)p->attempts_count * ATTEMPT_SIZE +
        (uint64_t)p->tokens_count * TOKEN_SIZE + (uint64_t)p->cursors_count * CURSOR_SIZE;
    if (in->failed || version != VERSION || !nd_topic_name_is_sane(topic) ||
        nd_reader_left(in) != arrays) {
        return ND_ERR_CORRUPT;
    }
    memcpy(p->id.topic, topic.data, topic.size);
    p->id.topic[topic.size] = '\0';
    return ND_OK;
}

bool nd_positions_id(struct nd_slice in, struct nd_partition_id *out)
{
    if (in.size < AT_TOPIC) {
        return false;
    }
    size_t topic_size = nd_get_u16(in.data + AT_TOPIC_SIZE);
    struct nd_slice topic = nd_slice_make(in.data + AT_TOPIC, topic_size);
    if (topic_size > in.size - AT_TOPIC || !nd_topic_name_is_sane(topic)) {
        return false;
    }
    out->incarnation = nd_get_u64(in.data + AT_INCARNATION);
    out->partition = nd_get_u32(in.data + AT_PARTITION);
    memcpy(out->topic, topic.data, topic.size);
    out->topic[topic.size] = '\0';
    return true;
}

static void *array_new(uint32_t count, size_t size)
{
    return count == 0 ? NULL : nd_xmalloc(count * size);
}

static void arrays_get(struct nd_reader *in, struct nd_positions *p)
{
    p->ahead = array_new(p->ahead_count, sizeof *p->ahead);
    p->attempts = array_new(p->attempts_count, sizeof *p->attempts);
    p->tokens = array_new(p->tokens_count, sizeof *p->tokens);
    p->cursors = array_new(p->cursors_count, sizeof *p->cursors);
    for (uint32_t i = 0; i < p->ahead_count; i++) {
        p->ahead[i].first = nd_read_u64(in);
        p->ahead[i].last = nd_read_u64(in);
    }
    for (uint32_t i = 0; i < p->attempts_count; i++) {
        p->attempts[i].offset = nd_read_u64(in);
        p->attempts[i].count = nd_read_u32(in);
    }
    for (uint32_t i = 0; i < p->tokens_count; i++) {
        p->tokens[i].member = nd_read_u64(in);
        p->tokens[i].writer = nd_read_u64(in);
        p->tokens[i].sequence = nd_read_u64(in);
    }
    for (uint32_t i = 0; i < p->cursors_count; i++) {
        p->cursors[i].child_incarnation = nd_read_u64(in);
        p->cursors[i].epoch = nd_read_u64(in);
        p->cursors[i].fork = nd_read_u64(in);
        p->cursors[i].next_offset = nd_read_u64(in);
    }
}

enum nd_err nd_positions_get(struct nd_slice in, struct nd_positions *out)
{
    struct nd_reader reader = nd_reader_make(in);
    struct nd_positions read;

    nd_positions_init(&read);
    enum nd_err err = fixed_get(&reader, &read);
    if (err != ND_OK) {
        return err;
    }
    arrays_get(&reader, &read);
    ND_ASSERT(!reader.failed);
    if (!arrays_are_sane(&read)) {
        nd_positions_release(&read);
        return ND_ERR_CORRUPT;
    }
    nd_positions_release(out);
    *out = read;
    return ND_OK;
}

/* First range of `ahead` that ends at or above `offset`. */
static uint32_t ahead_find(const struct nd_positions *p, uint64_t offset)
{
    uint32_t low = 0, high = p->ahead_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (p->ahead[middle].last < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void ahead_remove(struct nd_positions *p, uint32_t from, uint32_t count)
{
    if (count > 0) {
        memmove(p->ahead + from, p->ahead + from + count,
                (p->ahead_count - from - count) * sizeof *p->ahead);
        p->ahead_count -= count;
    }
}

static void ahead_insert(struct nd_positions *p, uint32_t at, struct nd_offset_range range)
{
    p->ahead = nd_xrealloc(p->ahead, (p->ahead_count + 1) * sizeof *p->ahead);
    memmove(p->ahead + at + 1, p->ahead + at, (p->ahead_count - at) * sizeof *p->ahead);
    p->ahead[at] = range;
    p->ahead_count += 1;
}

static void attempts_trim(struct nd_positions *p)
{
    uint32_t gone = 0;

    while (gone < p->attempts_count && p->attempts[gone].offset < p->frontier) {
        gone += 1;
    }
    if (gone > 0) {
        memmove(p->attempts, p->attempts + gone, (p->attempts_count - gone) * sizeof *p->attempts);
        p->attempts_count -= gone;
    }
}

void nd_positions_settle(struct nd_positions *p, uint64_t first, uint64_t last)
{
    ND_ASSERT(first <= last && last < UINT64_MAX);
    if (last < p->frontier) {
        return;
    }
    first = ND_MAX(first, p->frontier);
    /* Everything that overlaps or touches [first, last] melts into one range. */
    uint32_t from = ahead_find(p, first == 0 ? 0 : first - 1);
    uint32_t to = from;
    while (to < p->ahead_count && p->ahead[to].first <= last + 1) {
        first = ND_MIN(first, p->ahead[to].first);
        last = ND_MAX(last, p->ahead[to].last);
        to += 1;
    }
    if (first == p->frontier) {
        ahead_remove(p, from, to - from);
        p->frontier = last + 1;
        attempts_trim(p);
    } else if (to > from) {
        p->ahead[from] = (struct nd_offset_range){first, last};
        ahead_remove(p, from + 1, to - from - 1);
    } else {
        ahead_insert(p, from, (struct nd_offset_range){first, last});
    }
}
