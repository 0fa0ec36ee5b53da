#include "cluster/topic.h"

#include "storage/base/alloc.h"

static const char name_pattern_text[] =
    "invalid argument: topic name must match ^[A-Za-z0-9._-]{1,255}$";

struct nd_topic *nd_topic_new(uint32_t partitions)
{
    struct nd_topic *topic = nd_xcalloc(1, sizeof *topic + partitions * sizeof(uint64_t));
    atomic_init(&topic->refs, 1);
    topic->partitions = partitions;
    topic->owners = (uint64_t *)(void *)(topic + 1);
    return topic;
}

/* A reader's record is const to it, yet its count is not: the only place where const is dropped. */
static struct nd_topic *counted(const struct nd_topic *topic)
{
    return (struct nd_topic *)(uintptr_t)topic;
}

struct nd_topic *nd_topic_ref(const struct nd_topic *topic)
{
    struct nd_topic *mine = counted(topic);
    if (mine != NULL) {
        /* relaxed: whoever takes a reference already holds one */
        atomic_fetch_add_explicit(&mine->refs, 1, memory_order_relaxed);
    }
    return mine;
}

void nd_topic_unref(const struct nd_topic *topic)
{
    struct nd_topic *mine = counted(topic);
    /* acq_rel: what others read through their references comes before the free */
    if (mine != NULL && atomic_fetch_sub_explicit(&mine->refs, 1, memory_order_acq_rel) == 1) {
        nd_free(mine);
    }
}

static bool name_byte_is_good(uint8_t byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || byte == '.' || byte == '_' || byte == '-';
}

enum nd_err nd_topic_name_check(struct nd_slice name, struct nd_errmsg *msg)
{
    if (name.size == 0) {
        nd_errmsg_set(msg, "invalid argument: name required");
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (nd_slice_equal(name, nd_slice_str(".")) || nd_slice_equal(name, nd_slice_str(".."))) {
        nd_errmsg_set(msg, "invalid argument: topic name must not be \"%.*s\"", (int)name.size,
                      (const char *)name.data);
        return ND_ERR_INVALID_ARGUMENT;
    }
    bool good = name.size <= ND_TOPIC_NAME_SIZE_MAX;
    for (size_t i = 0; good && i < name.size; i++) {
        good = name_byte_is_good(name.data[i]);
    }
    if (!good) {
        nd_errmsg_set(msg, "%s", name_pattern_text);
        return ND_ERR_INVALID_ARGUMENT;
    }
    return ND_OK;
}
