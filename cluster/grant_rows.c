#include "cluster/grant_rows.h"

#include "storage/base/alloc.h"

#define PB(name)        Narad__Cluster__V1__##name
#define PB_ACTION(name) NARAD__CLUSTER__V1__ACTION__ACTION_##name

/* The stored number of an action is one more than ours: 0 is "not said". */
#define ACTION_IS_FROZEN(name)                                                                     \
    _Static_assert((int)ND_ACTION_##name + 1 == (int)PB_ACTION(name), "frozen")
ACTION_IS_FROZEN(PRODUCE);
ACTION_IS_FROZEN(CONSUME);
ACTION_IS_FROZEN(CREATE);
ACTION_IS_FROZEN(ADMIN);

PB(Grant) * *nd_grant_rows_fill(const struct nd_grant *grants, uint32_t count)
{
    PB(Grant) **pointers = nd_xmalloc(count * (sizeof(PB(Grant) *) + sizeof(PB(Grant))) + 1);
    PB(Grant) *rows = (PB(Grant) *)(void *)(pointers + count);

    for (uint32_t i = 0; i < count; i++) {
        narad__cluster__v1__grant__init(&rows[i]);
        rows[i].action = (PB(Action))(grants[i].action + 1);
        rows[i].n_patterns = grants[i].patterns_count;
        rows[i].patterns = grants[i].patterns;
        pointers[i] = &rows[i];
    }
    return pointers;
}

enum nd_err nd_grant_rows_read(PB(Grant) *const *rows, size_t count, struct nd_grant **out)
{
    struct nd_grant *grants = nd_xcalloc(count + 1, sizeof grants[0]);

    for (size_t i = 0; i < count; i++) {
        int action = (int)rows[i]->action;
        if (rows[i]->base.n_unknown_fields != 0 || action < (int)PB_ACTION(PRODUCE) ||
            action > (int)PB_ACTION(ADMIN)) {
            nd_free(grants);
            return ND_ERR_UNSUPPORTED;
        }
        grants[i].action = (enum nd_action)(action - 1);
        grants[i].patterns_count = (uint32_t)rows[i]->n_patterns;
        grants[i].patterns = rows[i]->patterns;
    }
    *out = grants;
    return ND_OK;
}
