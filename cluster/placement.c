#include "cluster/placement.h"

void nd_placement_assign(const struct nd_member *members, uint32_t members_count,
                         uint32_t partitions, uint64_t *owners)
{
    const struct nd_member *alive[ND_MEMBERS_MAX];
    uint32_t alive_count = 0;

    ND_ASSERT(members_count <= ND_MEMBERS_MAX);
    for (uint32_t i = 0; i < members_count; i++) {
        if (!members[i].alive) {
            continue;
        }
        uint32_t at = alive_count++;
        for (; at > 0 && strcmp(alive[at - 1]->node_id, members[i].node_id) > 0; at--) {
            alive[at] = alive[at - 1];
        }
        alive[at] = &members[i];
    }
    for (uint32_t p = 0; alive_count > 0 && p < partitions; p++) {
        if (owners[p] == 0) {
            owners[p] = alive[p % alive_count]->member;
        }
    }
}
