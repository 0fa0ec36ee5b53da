/* A metastore on a real directory, and changes that wait for their answer. */
#ifndef ND_TESTS_CLUSTER_META_H
#define ND_TESTS_CLUSTER_META_H

#include "storage/base/thread.h"

#include "cluster/metastore.h"

/* What topic_changed told, as lines "+name incarnation", "~name", "-name". Guarded by lock. */
struct meta_story {
    struct nd_mutex lock;
    struct nd_buf text;
};

struct meta {
    char *dir; /* of the metastore; the test's own */
    struct nd_metastore_options options;
    struct nd_metastore *store;
    struct meta_story story;
};

/* The options of a small node in `dir`, not opened. */
void meta_init(struct meta *meta, const char *dir);
void meta_release(struct meta *meta);
/* Open and wait until it is caught up. */
void meta_open(struct meta *meta);
void meta_close(struct meta *meta);
void meta_wait_caught_up(struct meta *meta);

struct meta_answer {
    enum nd_err err;
    char text[256];
    uint64_t incarnation, version;
    uint32_t partitions;
    uint64_t owner_first, owner_last;     /* of the partitions */
    char user[ND_USER_NAME_SIZE_MAX + 1]; /* name of the record that came with it, or "" */
};

struct nd_topic_create meta_topic(const char *name, uint32_t partitions);
struct meta_answer meta_create(struct meta *meta, const char *name, uint32_t partitions);
struct meta_answer meta_alter(struct meta *meta, const struct nd_topic_alter *alter);
struct meta_answer meta_delete(struct meta *meta, const char *name);
/* A pattern that is NULL: no grants; else a grant to produce. */
struct meta_answer meta_create_user(struct meta *meta, const char *name, const char *hash,
                                    const char *pattern);
struct meta_answer meta_seed_root(struct meta *meta, const char *hash);
struct meta_answer meta_set_grants(struct meta *meta, const char *name, const char *pattern);
struct meta_answer meta_set_grants_of(struct meta *meta, const char *name,
                                      const struct nd_grant *grants, uint32_t count);
struct meta_answer meta_set_password(struct meta *meta, const char *name, const char *hash);
struct meta_answer meta_replace_password(struct meta *meta, const char *name, const char *hash,
                                         const char *replaces);
struct meta_answer meta_delete_user(struct meta *meta, const char *name);
size_t meta_users_count(struct meta *meta);
/* NOT_FOUND style errors as they come; *gone_out only on ND_OK. */
enum nd_err meta_confirm_gone(struct meta *meta, const char *name, uint64_t incarnation,
                              bool *gone_out);
/* What was told since the last call; the caller's to free with nd_free(). */
char *meta_story_take(struct meta *meta);

/* Many changes under way: at most `window` at once. */
struct meta_gate {
    struct nd_mutex lock;
    struct nd_cond changed;
    uint32_t in_flight;
    uint64_t ok, refused;
};
void meta_gate_init(struct meta_gate *gate);
void meta_gate_release(struct meta_gate *gate);
void meta_gate_create(struct meta *meta, struct meta_gate *gate, const char *name, uint32_t window);
void meta_gate_create_user(struct meta *meta, struct meta_gate *gate, const char *name,
                           uint32_t window);
void meta_gate_seed(struct meta *meta, struct meta_gate *gate, const char *hash);
void meta_gate_wait(struct meta_gate *gate, uint32_t in_flight_max);

#endif
