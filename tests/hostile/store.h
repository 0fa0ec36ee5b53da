/* The small store whose bytes are damaged, and what its clients know of it: two topics of one
 * partition each, "warm" (open, with records in segments and in the log) and "cold" (evicted: its
 * positions are only in `state`). */
#ifndef ND_TESTS_HOSTILE_STORE_H
#define ND_TESTS_HOSTILE_STORE_H

#include "tests/hostile/image.h"
#include "tests/unit/broker/node.h"

enum { STORE_WARM, STORE_COLD, STORE_TOPICS, STORE_MESSAGES_MAX = 64 };

struct store_message {
    char payload[NODE_PAYLOAD_MAX];
    bool acked;
    bool acked_before;  /* when the older copies were taken */
    bool in_last_group; /* of the log */
};

struct store {
    struct image image; /* as it was when the process was killed */
    /* Copies of some time before: the last file of the log as it was between two groups, and all
     * else as it was between two evictions of "cold". */
    struct image older;
    uint32_t older_count; /* messages of "warm" when that file was copied */
    struct store_message messages[STORE_TOPICS][STORE_MESSAGES_MAX]; /* by offset */
    uint32_t counts[STORE_TOPICS];
    char last_log[64];      /* path of the last file of the log */
    uint64_t last_group_at; /* where its last group begins */
    /* Frames of segments, to know what a hit may cost. */
    struct store_frame {
        char path[128];
        uint32_t topic;
        uint64_t from, to;   /* bytes */
        uint64_t first, end; /* offsets */
    } frames[64];
    uint32_t frames_count;
};

void store_make(struct store *store);
void store_release(struct store *store);
/* A node for a copy of it: options and topics. */
void store_node_init(struct node *node, struct sim_env *sim);

#endif
