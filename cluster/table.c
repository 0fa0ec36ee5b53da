/* INVARIANTS
 *  1. Chunks are never empty; names ascend inside a chunk and from chunk to chunk.
 *  2. A chunk holds at most CHUNK_MAX records. One that overflows is halved; one that shrinks below
 *     CHUNK_MIN is joined with a neighbour if both fit in half a chunk. */
#include "cluster/table.h"

#include "storage/base/alloc.h"

enum { CHUNK_MAX = 128, CHUNK_MIN = 16 };

struct chunk {
    _Atomic uint32_t refs;
    uint32_t count;
    const struct nd_topic *topics[]; /* a reference each */
};

struct nd_topic_table {
    _Atomic uint32_t refs;
    size_t topics_count;
    size_t chunks_count;
    struct chunk *chunks[]; /* a reference each */
};

int nd_topic_name_compare(struct nd_slice a, struct nd_slice b)
{
    int order = memcmp(a.data, b.data, ND_MIN(a.size, b.size));
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

static struct nd_slice name_of(const struct nd_topic *topic)
{
    return nd_slice_str(topic->name);
}

/* --- chunks --- */

static struct chunk *chunk_new(const struct nd_topic *const *topics, size_t count)
{
    struct chunk *chunk = nd_xmalloc(sizeof *chunk + count * sizeof chunk->topics[0]);
    atomic_init(&chunk->refs, 1);
    chunk->count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        chunk->topics[i] = nd_topic_ref(topics[i]);
    }
    return chunk;
}

static struct chunk *chunk_ref(struct chunk *chunk)
{
    /* relaxed: whoever takes a reference already holds one */
    atomic_fetch_add_explicit(&chunk->refs, 1, memory_order_relaxed);
    return chunk;
}

static void chunk_unref(struct chunk *chunk)
{
    /* acq_rel: what others read through their references comes before the free */
    if (atomic_fetch_sub_explicit(&chunk->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (uint32_t i = 0; i < chunk->count; i++) {
        nd_topic_unref(chunk->topics[i]);
    }
    nd_free(chunk);
}

/* The first place whose name is not below `name`; *found tells whether it is that name. */
static size_t chunk_search(const struct chunk *chunk, struct nd_slice name, bool *found)
{
    size_t low = 0;
    size_t high = chunk->count;

    *found = false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = nd_topic_name_compare(name_of(chunk->topics[middle]), name);
        if (order == 0) {
            *found = true;
            return middle;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* --- tables --- */

static struct nd_topic_table *table_alloc(size_t chunks_count)
{
    struct nd_topic_table *table = nd_xcalloc(1, sizeof *table + chunks_count * sizeof(void *));
    atomic_init(&table->refs, 1);
    table->chunks_count = chunks_count;
    return table;
}

struct nd_topic_table *nd_topic_table_new(void)
{
    return table_alloc(0);
}

struct nd_topic_table *nd_topic_table_build(const struct nd_topic *const *topics, size_t count)
{
    const size_t each = CHUNK_MAX / 2;
    struct nd_topic_table *table = table_alloc((count + each - 1) / each);

    for (size_t i = 0; i < table->chunks_count; i++) {
        table->chunks[i] = chunk_new(topics + i * each, ND_MIN(each, count - i * each));
    }
    table->topics_count = count;
    return table;
}

struct nd_topic_table *nd_topic_table_ref(struct nd_topic_table *table)
{
    /* relaxed: whoever takes a reference already holds one */
    atomic_fetch_add_explicit(&table->refs, 1, memory_order_relaxed);
    return table;
}

void nd_topic_table_unref(struct nd_topic_table *table)
{
    if (table == NULL ||
        /* acq_rel: what others read through their references comes before the free */
        atomic_fetch_sub_explicit(&table->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (size_t i = 0; i < table->chunks_count; i++) {
        chunk_unref(table->chunks[i]);
    }
    nd_free(table);
}

size_t nd_topic_table_count(const struct nd_topic_table *table)
{
    return table->topics_count;
}

/* The chunk in which `name` is or would be: the last one that starts at or below it; 0 if none
 * does. */
static size_t table_search(const struct nd_topic_table *table, struct nd_slice name)
{
    size_t low = 0;
    size_t high = table->chunks_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (nd_topic_name_compare(name_of(table->chunks[middle]->topics[0]), name) <= 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low == 0 ? 0 : low - 1;
}

const struct nd_topic *nd_topic_table_find(const struct nd_topic_table *table, struct nd_slice name)
{
    if (table->chunks_count == 0) {
        return NULL;
    }
    const struct chunk *chunk = table->chunks[table_search(table, name)];
    bool found;
    size_t at = chunk_search(chunk, name, &found);
    return found ? chunk->topics[at] : NULL;
}

/* `table` with `old_count` chunks from `at` on replaced by the `new_count` given, which are handed
 * over. */
static struct nd_topic_table *table_splice(const struct nd_topic_table *table, size_t at,
                                           size_t old_count, struct chunk *const *chunks,
                                           size_t new_count)
{
    struct nd_topic_table *made = table_alloc(table->chunks_count - old_count + new_count);
    size_t to = 0;

    for (size_t i = 0; i < at; i++) {
        made->chunks[to++] = chunk_ref(table->chunks[i]);
    }
    for (size_t i = 0; i < new_count; i++) {
        made->chunks[to++] = chunks[i];
    }
    for (size_t i = at + old_count; i < table->chunks_count; i++) {
        made->chunks[to++] = chunk_ref(table->chunks[i]);
    }
    ND_ASSERT(to == made->chunks_count);
    return made;
}

struct nd_topic_table *nd_topic_table_with(const struct nd_topic_table *table,
                                           const struct nd_topic *topic)
{
    const struct nd_topic *topics[CHUNK_MAX + 1];
    struct chunk *chunks[2];
    size_t where = table_search(table, name_of(topic));
    size_t old_count = table->chunks_count == 0 ? 0 : 1;
    size_t count = 0;
    size_t at = 0;
    bool found = false;

    if (old_count == 1) {
        const struct chunk *old = table->chunks[where];
        at = chunk_search(old, name_of(topic), &found);
        count = old->count;
        memcpy(topics, old->topics, count * sizeof topics[0]);
    }
    if (!found) {
        memmove(topics + at + 1, topics + at, (count - at) * sizeof topics[0]);
        count++;
    }
    topics[at] = topic;

    size_t new_count = count > CHUNK_MAX ? 2 : 1;
    size_t first = count / new_count;
    chunks[0] = chunk_new(topics, first);
    if (new_count == 2) {
        chunks[1] = chunk_new(topics + first, count - first);
    }
    struct nd_topic_table *made = table_splice(table, where, old_count, chunks, new_count);
    made->topics_count = table->topics_count + (found ? 0 : 1);
    return made;
}

struct nd_topic_table *nd_topic_table_without(const struct nd_topic_table *table,
                                              struct nd_slice name)
{
    const struct nd_topic *topics[CHUNK_MAX];
    struct chunk *joined[1];
    ND_ASSERT(table->chunks_count > 0);
    size_t where = table_search(table, name);
    const struct chunk *old = table->chunks[where];
    bool found;
    size_t at = chunk_search(old, name, &found);
    ND_ASSERT(found);

    size_t count = old->count - 1;
    memcpy(topics, old->topics, at * sizeof topics[0]);
    memcpy(topics + at, old->topics + at + 1, (count - at) * sizeof topics[0]);
    size_t old_count = 1;
    if (count > 0 && count < CHUNK_MIN && where + 1 < table->chunks_count &&
        count + table->chunks[where + 1]->count <= CHUNK_MAX / 2) {
        const struct chunk *next = table->chunks[where + 1];
        memcpy(topics + count, next->topics, next->count * sizeof topics[0]);
        count += next->count;
        old_count = 2;
    }
    size_t new_count = count == 0 ? 0 : 1;
    if (new_count == 1) {
        joined[0] = chunk_new(topics, count);
    }
    struct nd_topic_table *made = table_splice(table, where, old_count, joined, new_count);
    made->topics_count = table->topics_count - 1;
    return made;
}

/* --- walking --- */

struct nd_topic_walk nd_topic_table_walk(const struct nd_topic_table *table, struct nd_slice after)
{
    struct nd_topic_walk walk = {table, 0, 0};
    if (after.size > 0 && table->chunks_count > 0) {
        bool found;
        walk.chunk = table_search(table, after);
        walk.index = chunk_search(table->chunks[walk.chunk], after, &found);
        walk.index += found ? 1 : 0;
    }
    return walk;
}

const struct nd_topic *nd_topic_walk_next(struct nd_topic_walk *walk)
{
    while (walk->chunk < walk->table->chunks_count) {
        const struct chunk *chunk = walk->table->chunks[walk->chunk];
        if (walk->index < chunk->count) {
            return chunk->topics[walk->index++];
        }
        walk->chunk++;
        walk->index = 0;
    }
    return NULL;
}
