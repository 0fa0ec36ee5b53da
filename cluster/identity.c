#include "cluster/identity.h"

#include "storage/base/alloc.h"
#include "storage/base/codec.h"
#include "storage/base/crc32c.h"

enum { MAGIC = 0x4449444E /* "NDID" */, FORMAT = 1, FILE_SIZE = 48, CRC_AT = 44 };

static void encode(uint8_t *bytes, const struct nd_identity *identity)
{
    memset(bytes, 0, FILE_SIZE);
    nd_put_u32(bytes, MAGIC);
    nd_put_u32(bytes + 4, FORMAT);
    nd_put_u64(bytes + 8, identity->member);
    memcpy(bytes + 16, identity->cluster, ND_CLUSTER_ID_SIZE);
    nd_put_u32(bytes + 32, identity->bootstrapped ? 1 : 0);
    nd_put_u32(bytes + CRC_AT, nd_crc32c(0, bytes, CRC_AT));
}

static enum nd_err decode(struct nd_slice in, struct nd_identity *out)
{
    uint8_t again[FILE_SIZE];

    if (in.size < 8 || nd_get_u32(in.data) != MAGIC) {
        return ND_ERR_CORRUPT;
    }
    if (nd_get_u32(in.data + 4) != FORMAT) {
        return ND_ERR_UNSUPPORTED;
    }
    if (in.size != FILE_SIZE) {
        return ND_ERR_CORRUPT;
    }
    out->member = nd_get_u64(in.data + 8);
    memcpy(out->cluster, in.data + 16, ND_CLUSTER_ID_SIZE);
    out->bootstrapped = nd_get_u32(in.data + 32) == 1;
    encode(again, out);
    return out->member != 0 && memcmp(again, in.data, FILE_SIZE) == 0 ? ND_OK : ND_ERR_CORRUPT;
}

enum nd_err nd_identity_load(const struct nd_env *env, const char *path, struct nd_identity *out,
                             struct nd_errmsg *msg)
{
    uint8_t *data;
    size_t size;
    struct nd_identity read;
    enum nd_err err = nd_env_read_file(env, path, 4096, &data, &size, msg);
    if (err != ND_OK) {
        return err;
    }
    err = decode(nd_slice_make(data, size), &read);
    nd_free(data);
    if (err != ND_OK) {
        nd_errmsg_set(msg, "%s: %s", path, nd_err_text(err));
        return err;
    }
    *out = read;
    return ND_OK;
}

enum nd_err nd_identity_store(const struct nd_env *env, const char *path,
                              const struct nd_identity *identity, struct nd_errmsg *msg)
{
    uint8_t bytes[FILE_SIZE];
    encode(bytes, identity);
    return nd_env_replace_file(env, path, nd_slice_make(bytes, sizeof bytes), msg);
}

struct nd_identity nd_identity_draw(const struct nd_env *env)
{
    struct nd_identity identity = {0};
    while (identity.member == 0) {
        identity.member = nd_env_random_u64(env);
    }
    env->random(env->impl, identity.cluster, sizeof identity.cluster);
    return identity;
}
