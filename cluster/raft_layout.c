#include "cluster/raft_layout.h"

#include <string.h>

#include "storage/base/codec.h"

enum { INDEX_DIGITS = 16, DIGITS_MAX = 19 };

/* --- names --- */

/* Digits from *at on; at least one, and exactly `count` when that is not 0. */
static bool digits_get(const char **at, size_t count, uint64_t *out)
{
    size_t size = strspn(*at, "0123456789");

    if (size == 0 || size > DIGITS_MAX || (count != 0 && size != count)) {
        return false;
    }
    *out = 0;
    for (size_t i = 0; i < size; i++) {
        *out = *out * 10 + (uint64_t)((*at)[i] - '0');
    }
    *at += size;
    return true;
}

static enum nd_raft_kind snapshot_name_get(const char *at, struct nd_raft_name *out)
{
    if (!digits_get(&at, 0, &out->term) || *at++ != '-' || !digits_get(&at, 0, &out->last) ||
        *at++ != '-' || !digits_get(&at, 0, &out->time)) {
        return ND_RAFT_NONE;
    }
    if (*at == '\0') {
        return ND_RAFT_SNAPSHOT;
    }
    return strcmp(at, ND_RAFT_META_SUFFIX) == 0 ? ND_RAFT_META : ND_RAFT_NONE;
}

struct nd_raft_name nd_raft_name_get(const char *name)
{
    struct nd_raft_name out = {.kind = ND_RAFT_NONE};
    const char *at = name;

    if (strcmp(name, "metadata1") == 0 || strcmp(name, "metadata2") == 0) {
        out.kind = ND_RAFT_TERM;
    } else if (strncmp(name, "snapshot-", 9) == 0) {
        out.kind = snapshot_name_get(name + 9, &out);
    } else if (strncmp(name, "open-", 5) == 0) {
        at += 5;
        out.kind = digits_get(&at, 0, &out.number) && *at == '\0' ? ND_RAFT_OPEN : ND_RAFT_NONE;
    } else if (digits_get(&at, INDEX_DIGITS, &out.first) && *at++ == '-' &&
               digits_get(&at, INDEX_DIGITS, &out.last) && *at == '\0') {
        out.kind = ND_RAFT_CLOSED;
    }
    return out;
}

/* --- bytes --- */

uint32_t nd_raft_crc(struct nd_slice bytes)
{
    static const uint32_t of_nibble[16] = {0x00000000, 0x04c11db7, 0x09823b6e, 0x0d4326d9,
                                           0x130476dc, 0x17c56b6b, 0x1a864db2, 0x1e475005,
                                           0x2608edb8, 0x22c9f00f, 0x2f8ad6d6, 0x2b4bcb61,
                                           0x350c9b64, 0x31cd86d3, 0x3c8ea00a, 0x384fbdbd};
    uint32_t crc = 0;

    for (size_t i = 0; i < bytes.size; i++) {
        crc ^= (uint32_t)bytes.data[i] << 24;
        crc = (crc << 4) ^ of_nibble[crc >> 28];
        crc = (crc << 4) ^ of_nibble[crc >> 28];
    }
    return crc;
}

size_t nd_raft_batch_size(struct nd_slice in, uint64_t *entries_out)
{
    if (in.size < ND_RAFT_BATCH_HEAD_SIZE) {
        return 0;
    }
    uint64_t count = nd_get_u64(in.data + 8);
    if (count == 0 || count > (in.size - ND_RAFT_BATCH_HEAD_SIZE) / ND_RAFT_ENTRY_HEAD_SIZE) {
        return 0;
    }
    size_t head = ND_RAFT_BATCH_HEAD_SIZE + (size_t)count * ND_RAFT_ENTRY_HEAD_SIZE;
    uint64_t data = 0;
    for (size_t i = ND_RAFT_BATCH_HEAD_SIZE; i < head; i += ND_RAFT_ENTRY_HEAD_SIZE) {
        data += nd_raft_padded(nd_get_u32(in.data + i + 12));
    }
    if (data > in.size - head ||
        nd_raft_crc(nd_slice_make(in.data + 8, head - 8)) != nd_get_u32(in.data) ||
        nd_raft_crc(nd_slice_make(in.data + head, (size_t)data)) != nd_get_u32(in.data + 4)) {
        return 0;
    }
    *entries_out = count;
    return head + (size_t)data;
}
