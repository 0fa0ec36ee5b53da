#include "cluster/view.h"

#include "storage/base/alloc.h"

#include "cluster/snapshot.h"

enum nd_err nd_view_load(const struct nd_env *env, const char *path, struct nd_state *state,
                         struct nd_errmsg *msg)
{
    uint8_t *data;
    size_t size;
    enum nd_err err = nd_env_read_file(env, path, ND_SNAPSHOT_SIZE_MAX, &data, &size, msg);
    if (err != ND_OK) {
        return err;
    }
    err = nd_snapshot_get(nd_slice_make(data, size), state, msg);
    nd_free(data);
    if (err != ND_OK) {
        nd_errmsg_wrap(msg, "%s (only a copy of what Raft holds: may be moved away)", path);
    }
    return err;
}

enum nd_err nd_view_store(const struct nd_env *env, const char *path, struct nd_slice snapshot,
                          struct nd_errmsg *msg)
{
    return nd_env_replace_file(env, path, snapshot, msg);
}
