#include "cluster/user.h"

#include <string.h>

#include "storage/base/alloc.h"
#include "storage/base/wipe.h"

static const char name_text[] = "username must match ^[A-Za-z0-9._-]{1,64}$";

/* --- the record: one block, so that one free is all; grants, then pointers, then texts --- */

struct layout {
    size_t patterns_count, texts_size;
};

static struct layout layout_of(const struct nd_grant *grants, uint32_t grants_count)
{
    struct layout layout = {0};

    for (uint32_t i = 0; i < grants_count; i++) {
        layout.patterns_count += grants[i].patterns_count;
        for (uint32_t j = 0; j < grants[i].patterns_count; j++) {
            layout.texts_size += strlen(grants[i].patterns[j]) + 1;
        }
    }
    return layout;
}

static void grants_copy(struct nd_grant *to, char **pointers, char *texts,
                        const struct nd_user *user, const struct nd_grant *from)
{
    for (uint32_t i = 0; i < user->grants_count; i++) {
        to[i].action = from[i].action;
        to[i].patterns_count = from[i].patterns_count;
        to[i].patterns = pointers;
        for (uint32_t j = 0; j < from[i].patterns_count; j++) {
            size_t size = strlen(from[i].patterns[j]) + 1;
            memcpy(texts, from[i].patterns[j], size);
            *pointers++ = texts;
            texts += size;
        }
    }
}

struct nd_user *nd_user_new(const char *name, const struct nd_grant *grants, uint32_t grants_count)
{
    const struct layout layout = layout_of(grants, grants_count);
    size_t grants_size = grants_count * sizeof grants[0];
    size_t pointers_size = layout.patterns_count * sizeof(char *);
    struct nd_user *user =
        nd_xcalloc(1, sizeof *user + grants_size + pointers_size + layout.texts_size);
    uint8_t *memory = (uint8_t *)(user + 1);
    size_t name_size = strlen(name);

    atomic_init(&user->refs, 1);
    if (name_size < sizeof user->name) {
        memcpy(user->name, name, name_size);
    }
    user->grants_count = grants_count;
    user->grants = (struct nd_grant *)(void *)memory;
    grants_copy(user->grants, (char **)(void *)(memory + grants_size),
                (char *)memory + grants_size + pointers_size, user, grants);
    return user;
}

/* A reader's record is const to it, yet its count is not: the only place where const is dropped. */
static struct nd_user *counted(const struct nd_user *user)
{
    return (struct nd_user *)(uintptr_t)user;
}

struct nd_user *nd_user_ref(const struct nd_user *user)
{
    struct nd_user *mine = counted(user);
    if (mine != NULL) {
        /* relaxed: whoever takes a reference already holds one */
        atomic_fetch_add_explicit(&mine->refs, 1, memory_order_relaxed);
    }
    return mine;
}

void nd_user_unref(const struct nd_user *user)
{
    struct nd_user *mine = counted(user);
    /* acq_rel: what others read through their references comes before the free */
    if (mine != NULL && atomic_fetch_sub_explicit(&mine->refs, 1, memory_order_acq_rel) == 1) {
        nd_wipe(mine->hash, sizeof mine->hash);
        nd_free(mine);
    }
}

/* --- what may be in it --- */

static bool name_byte_is_good(uint8_t byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || byte == '.' || byte == '_' || byte == '-';
}

static bool name_is_good(struct nd_slice name, size_t size_max)
{
    bool good = name.size <= size_max;

    for (size_t i = 0; good && i < name.size; i++) {
        good = name_byte_is_good(name.data[i]);
    }
    return good;
}

enum nd_err nd_user_name_check(struct nd_slice name, struct nd_errmsg *msg)
{
    if (name.size == 0 || !name_is_good(name, ND_USER_NAME_SIZE_MAX)) {
        nd_errmsg_set(msg, "%s", name_text);
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (nd_slice_equal(name, nd_slice_str(".")) || nd_slice_equal(name, nd_slice_str(".."))) {
        nd_errmsg_set(msg, "%s and not be \".\" or \"..\"", name_text);
        return ND_ERR_INVALID_ARGUMENT;
    }
    return ND_OK;
}

enum nd_err nd_user_hash_check(struct nd_slice hash, struct nd_errmsg *msg)
{
    bool good = hash.size > 0 && hash.size <= ND_USER_HASH_SIZE_MAX;

    for (size_t i = 0; good && i < hash.size; i++) {
        good = hash.data[i] > ' ' && hash.data[i] < 0x7f;
    }
    if (!good) {
        nd_errmsg_set(msg, "a password hash has 1 to %d visible characters", ND_USER_HASH_SIZE_MAX);
        return ND_ERR_INVALID_ARGUMENT;
    }
    return ND_OK;
}

static enum nd_err pattern_check(const char *action, const char *pattern, struct nd_errmsg *msg)
{
    size_t size = strlen(pattern);

    if (size == 0) {
        nd_errmsg_set(msg, "grant \"%s\" has an empty pattern", action);
        return ND_ERR_INVALID_ARGUMENT;
    }
    size_t name_size = pattern[size - 1] == '*' ? size - 1 : size;
    if (!name_is_good(nd_slice_make(pattern, name_size), ND_USER_PATTERN_SIZE_MAX - 1)) {
        nd_errmsg_set(msg,
                      "grant \"%s\" pattern \"%s\" must be a topic name with an optional "
                      "trailing '*'",
                      action, pattern);
        return ND_ERR_INVALID_ARGUMENT;
    }
    return ND_OK;
}

/* Adds what its patterns take to *bytes. */
static enum nd_err grant_check(const struct nd_grant *grant, size_t *bytes, struct nd_errmsg *msg)
{
    if ((unsigned)grant->action > ND_ACTION_ADMIN) {
        nd_errmsg_set(msg, "unknown grant action \"%u\"", (unsigned)grant->action);
        return ND_ERR_INVALID_ARGUMENT;
    }
    const char *action = nd_action_name(grant->action);
    if (grant->action == ND_ACTION_ADMIN) {
        if (grant->patterns_count != 0) {
            nd_errmsg_set(msg, "admin grants are global and must not carry patterns");
            return ND_ERR_INVALID_ARGUMENT;
        }
        return ND_OK;
    }
    if (grant->patterns_count == 0) {
        nd_errmsg_set(msg, "grant \"%s\" requires at least one topic pattern", action);
        return ND_ERR_INVALID_ARGUMENT;
    }
    if (grant->patterns_count > ND_USER_GRANT_PATTERNS_MAX) {
        nd_errmsg_set(msg, "grant \"%s\" has more than %d patterns", action,
                      ND_USER_GRANT_PATTERNS_MAX);
        return ND_ERR_INVALID_ARGUMENT;
    }
    for (uint32_t i = 0; i < grant->patterns_count; i++) {
        enum nd_err err = pattern_check(action, grant->patterns[i], msg);
        if (err != ND_OK) {
            return err;
        }
        *bytes += strlen(grant->patterns[i]) + ND_USER_PATTERN_OVERHEAD;
    }
    return ND_OK;
}

enum nd_err nd_grants_check(const struct nd_grant *grants, uint32_t count, struct nd_errmsg *msg)
{
    size_t bytes = 0;

    if (count > ND_USER_GRANTS_MAX) {
        nd_errmsg_set(msg, "a user has at most %d grants", ND_USER_GRANTS_MAX);
        return ND_ERR_INVALID_ARGUMENT;
    }
    for (uint32_t i = 0; i < count; i++) {
        enum nd_err err = grant_check(&grants[i], &bytes, msg);
        if (err != ND_OK) {
            return err;
        }
    }
    if (bytes > ND_USER_GRANTS_BYTES_MAX) {
        nd_errmsg_set(msg, "the patterns of a user's grants have at most %d bytes, %d added each",
                      ND_USER_GRANTS_BYTES_MAX, ND_USER_PATTERN_OVERHEAD);
        return ND_ERR_INVALID_ARGUMENT;
    }
    return ND_OK;
}

/* --- actions --- */

const char *nd_action_name(enum nd_action action)
{
    switch (action) {
    case ND_ACTION_PRODUCE: return "produce";
    case ND_ACTION_CONSUME: return "consume";
    case ND_ACTION_CREATE: return "create";
    case ND_ACTION_ADMIN: return "admin";
    }
    ND_UNREACHABLE();
}

bool nd_action_by_name(struct nd_slice name, enum nd_action *out)
{
    for (int i = ND_ACTION_PRODUCE; i <= ND_ACTION_ADMIN; i++) {
        if (nd_slice_equal(name, nd_slice_str(nd_action_name((enum nd_action)i)))) {
            *out = (enum nd_action)i;
            return true;
        }
    }
    return false;
}
