/* Which member owns a partition: partition p goes to the (p mod n)-th of the alive members in order
 * of their node ids. Assignments are sticky: only partitions without an owner are given one. Pure.
 */
#ifndef ND_CLUSTER_PLACEMENT_H
#define ND_CLUSTER_PLACEMENT_H

#include "cluster/command.h"

struct nd_member {
    uint64_t member;
    bool alive;
    char node_id[ND_NODE_ID_SIZE_MAX + 1];
    char address[ND_ADDRESS_SIZE_MAX + 1];
};

enum { ND_MEMBERS_MAX = 256 };

/* Fill the zeros of owners[0..partitions). Without an alive member nothing changes. */
void nd_placement_assign(const struct nd_member *members, uint32_t members_count,
                         uint32_t partitions, uint64_t *owners);

#endif
