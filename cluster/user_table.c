#include "cluster/user_table.h"

#include <string.h>

#include "storage/base/alloc.h"

struct nd_user_table {
    _Atomic uint32_t refs;
    size_t count;
    const struct nd_user *users[]; /* a reference each, names ascend */
};

static struct nd_user_table *table_alloc(size_t count)
{
    struct nd_user_table *table = nd_xcalloc(1, sizeof *table + count * sizeof table->users[0]);
    atomic_init(&table->refs, 1);
    table->count = count;
    return table;
}

static void users_copy(const struct nd_user **to, const struct nd_user *const *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[i] = nd_user_ref(from[i]);
    }
}

struct nd_user_table *nd_user_table_build(const struct nd_user *const *users, size_t count)
{
    struct nd_user_table *table = table_alloc(count);
    users_copy(table->users, users, count);
    return table;
}

struct nd_user_table *nd_user_table_ref(struct nd_user_table *table)
{
    /* relaxed: whoever takes a reference already holds one */
    atomic_fetch_add_explicit(&table->refs, 1, memory_order_relaxed);
    return table;
}

void nd_user_table_unref(struct nd_user_table *table)
{
    if (table == NULL ||
        /* acq_rel: what others read through their references comes before the free */
        atomic_fetch_sub_explicit(&table->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (size_t i = 0; i < table->count; i++) {
        nd_user_unref(table->users[i]);
    }
    nd_free(table);
}

size_t nd_user_table_count(const struct nd_user_table *table)
{
    return table->count;
}

const struct nd_user *nd_user_table_at(const struct nd_user_table *table, size_t index)
{
    ND_ASSERT(index < table->count);
    return table->users[index];
}

static int name_compare(const struct nd_user *user, struct nd_slice name)
{
    size_t size = strlen(user->name);
    size_t common = ND_MIN(size, name.size);
    int order = common == 0 ? 0 : memcmp(user->name, name.data, common);
    return order != 0 ? order : (size > name.size) - (size < name.size);
}

/* The first place whose name is not below `name`; *found tells whether it is that name. */
static size_t table_search(const struct nd_user_table *table, struct nd_slice name, bool *found)
{
    size_t low = 0;
    size_t high = table->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (name_compare(table->users[middle], name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *found = low < table->count && name_compare(table->users[low], name) == 0;
    return low;
}

const struct nd_user *nd_user_table_find(const struct nd_user_table *table, struct nd_slice name)
{
    bool found;
    size_t at = table_search(table, name, &found);
    return found ? table->users[at] : NULL;
}

struct nd_user_table *nd_user_table_with(const struct nd_user_table *table,
                                         const struct nd_user *user)
{
    bool found;
    size_t at = table_search(table, nd_slice_str(user->name), &found);
    size_t rest = at + (found ? 1 : 0);
    struct nd_user_table *made = table_alloc(table->count + (found ? 0 : 1));

    users_copy(made->users, table->users, at);
    made->users[at] = nd_user_ref(user);
    users_copy(made->users + at + 1, table->users + rest, table->count - rest);
    return made;
}

struct nd_user_table *nd_user_table_without(const struct nd_user_table *table, struct nd_slice name)
{
    bool found;
    size_t at = table_search(table, name, &found);
    ND_ASSERT(found);
    struct nd_user_table *made = table_alloc(table->count - 1);

    users_copy(made->users, table->users, at);
    users_copy(made->users + at, table->users + at + 1, table->count - at - 1);
    return made;
}
