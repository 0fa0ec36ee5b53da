/* The names of the simulated disk: directories as readers see them and as they are saved, and the
 * pending changes between the two. Used by sim_env.c only. */
#ifndef ND_TESTS_SUPPORT_SIM_TREE_H
#define ND_TESTS_SUPPORT_SIM_TREE_H

#include "storage/base/err.h"

#include "tests/support/sim_file.h"

enum { SIM_NAME_MAX = 255 };

struct sim_node;

struct sim_entry {
    char *name;
    struct sim_node *node;
};

/* Ordered by name. */
struct sim_names {
    struct sim_entry *entries;
    size_t count;
};

/* A file or a directory; lives while a name, a pending change or an open file refers to it. */
struct sim_node {
    struct nd_list link; /* of sim_tree.nodes */
    bool is_dir;
    bool marked;    /* by a sweep */
    bool locked;    /* by an open file */
    uint32_t opens; /* open files */
    uint32_t names; /* entries that readers see; the root has one more */
    int64_t mtime_ms;
    struct sim_file file;         /* of a file */
    struct sim_names seen, saved; /* of a directory */
};

struct sim_tree {
    struct nd_list nodes;
    struct sim_node *root;
    struct nd_list pending; /* struct tree_change, in order */
};

void sim_tree_init(struct sim_tree *tree);
void sim_tree_release(struct sim_tree *tree);

/* NULL: not there. `*err_out` says why: NOT_FOUND, or IO when a file stands where a directory
 * should. */
struct sim_node *sim_tree_find(const struct sim_tree *tree, const char *path, enum nd_err *err_out);
/* The directory that holds, or would hold, the last name of `path`; NULL as above. */
struct sim_node *sim_tree_parent(const struct sim_tree *tree, const char *path,
                                 char name_out[SIM_NAME_MAX + 1], enum nd_err *err_out);
struct sim_node *sim_names_get(const struct sim_names *names, const char *name);

/* Each is seen at once and pending under `sequence`. The checks are the caller's. */
struct sim_node *sim_tree_create(struct sim_tree *tree, uint64_t sequence, struct sim_node *dir,
                                 const char *name, bool is_dir);
void sim_tree_unlink(struct sim_tree *tree, uint64_t sequence, struct sim_node *dir,
                     const char *name);
/* A name that is in the way is replaced. */
void sim_tree_rename(struct sim_tree *tree, uint64_t sequence, const struct sim_entry from,
                     const struct sim_entry to);

/* Saves the pending changes that touch `dir` (NULL: all), and those they build on. */
void sim_tree_sync(struct sim_tree *tree, const struct sim_node *dir);
/* A choice of the pending changes survives; readers see what is saved afterwards. */
void sim_tree_cut(struct sim_tree *tree, struct sim_choice *choice);
void sim_tree_pending_range(const struct sim_tree *tree, uint64_t *low, uint64_t *high);
/* Frees the nodes that nothing refers to. */
void sim_tree_sweep(struct sim_tree *tree);

#endif
