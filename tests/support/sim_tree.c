#include "tests/support/sim_tree.h"

#include <string.h>

#include "storage/base/alloc.h"

/* One entry set to a node, or removed (NULL). */
struct name_change {
    struct sim_node *dir;
    char *name;
    struct sim_node *node;
};

/* A call's changes survive together or not at all: a rename is atomic. */
struct tree_change {
    struct nd_list link;
    uint64_t sequence;
    struct name_change names[2];
    size_t count;
    bool marked;
};

static struct tree_change *change_of(struct nd_list *link)
{
    return ND_CONTAINER_OF(link, struct tree_change, link);
}

static struct sim_node *node_of(struct nd_list *link)
{
    return ND_CONTAINER_OF(link, struct sim_node, link);
}

static size_t names_place(const struct sim_names *names, const char *name)
{
    size_t at = 0;

    while (at < names->count && strcmp(names->entries[at].name, name) < 0) {
        at += 1;
    }
    return at;
}

struct sim_node *sim_names_get(const struct sim_names *names, const char *name)
{
    size_t at = names_place(names, name);

    if (at == names->count || strcmp(names->entries[at].name, name) != 0) {
        return NULL;
    }
    return names->entries[at].node;
}

static void names_remove(struct sim_names *names, const char *name)
{
    size_t at = names_place(names, name);

    if (at < names->count && strcmp(names->entries[at].name, name) == 0) {
        nd_free(names->entries[at].name);
        names->count -= 1;
        memmove(names->entries + at, names->entries + at + 1,
                (names->count - at) * sizeof *names->entries);
    }
}

static void names_set(struct sim_names *names, const char *name, struct sim_node *node)
{
    names_remove(names, name);
    if (node == NULL) {
        return;
    }
    size_t at = names_place(names, name);
    names->entries = nd_xrealloc(names->entries, (names->count + 1) * sizeof *names->entries);
    memmove(names->entries + at + 1, names->entries + at,
            (names->count - at) * sizeof *names->entries);
    names->entries[at] = (struct sim_entry){nd_xstrdup(name), node};
    names->count += 1;
}

static void names_release(struct sim_names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        nd_free(names->entries[i].name);
    }
    nd_free(names->entries);
    *names = (struct sim_names){0};
}

static void seen_set(struct sim_node *dir, const char *name, struct sim_node *node)
{
    struct sim_node *before = sim_names_get(&dir->seen, name);

    if (before != NULL) {
        before->names -= 1;
    }
    if (node != NULL) {
        node->names += 1;
    }
    names_set(&dir->seen, name, node);
}

static struct sim_node *node_new(struct sim_tree *tree, bool is_dir)
{
    struct sim_node *node = nd_xcalloc(1, sizeof *node);

    node->is_dir = is_dir;
    sim_file_init(&node->file);
    nd_list_append(&tree->nodes, &node->link);
    return node;
}

static void node_free(struct sim_node *node)
{
    nd_list_remove(&node->link);
    sim_file_release(&node->file);
    names_release(&node->seen);
    names_release(&node->saved);
    nd_free(node);
}

static void change_free(struct tree_change *change)
{
    nd_list_remove(&change->link);
    for (size_t i = 0; i < change->count; i++) {
        nd_free(change->names[i].name);
    }
    nd_free(change);
}

void sim_tree_init(struct sim_tree *tree)
{
    nd_list_init(&tree->nodes);
    nd_list_init(&tree->pending);
    tree->root = node_new(tree, true);
    tree->root->names = 1;
}

void sim_tree_release(struct sim_tree *tree)
{
    ND_LIST_FOREACH (&tree->pending, link) {
        change_free(change_of(link));
    }
    ND_LIST_FOREACH (&tree->nodes, link) {
        node_free(node_of(link));
    }
}

/* The next name of a path, without "." and empty ones; false at its end. */
static bool next_name(const char **path, char name_out[SIM_NAME_MAX + 1])
{
    do {
        *path += strspn(*path, "/");
        size_t size = strcspn(*path, "/");
        if (size == 0) {
            return false;
        }
        ND_ASSERT(size <= SIM_NAME_MAX);
        memcpy(name_out, *path, size);
        name_out[size] = '\0';
        *path += size;
    } while (strcmp(name_out, ".") == 0);
    ND_ASSERT(strcmp(name_out, "..") != 0);
    return true;
}

static struct sim_node *step(struct sim_node *dir, const char *name, enum nd_err *err_out)
{
    struct sim_node *next = dir->is_dir ? sim_names_get(&dir->seen, name) : NULL;

    *err_out = !dir->is_dir ? ND_ERR_IO : next == NULL ? ND_ERR_NOT_FOUND : ND_OK;
    return next;
}

struct sim_node *sim_tree_find(const struct sim_tree *tree, const char *path, enum nd_err *err_out)
{
    char name[SIM_NAME_MAX + 1];
    struct sim_node *node = tree->root;

    *err_out = ND_OK;
    while (node != NULL && next_name(&path, name)) {
        node = step(node, name, err_out);
    }
    return node;
}

struct sim_node *sim_tree_parent(const struct sim_tree *tree, const char *path,
                                 char name_out[SIM_NAME_MAX + 1], enum nd_err *err_out)
{
    char next[SIM_NAME_MAX + 1];
    struct sim_node *dir = tree->root;

    *err_out = ND_OK;
    bool named = next_name(&path, name_out);
    ND_ASSERT(named); /* the root is in no directory */
    while (next_name(&path, next)) {
        dir = step(dir, name_out, err_out);
        if (dir == NULL) {
            return NULL;
        }
        memcpy(name_out, next, sizeof next);
    }
    if (!dir->is_dir) {
        *err_out = ND_ERR_IO;
        return NULL;
    }
    return dir;
}

static struct tree_change *pending_add(struct sim_tree *tree, uint64_t sequence)
{
    struct tree_change *change = nd_xcalloc(1, sizeof *change);

    change->sequence = sequence;
    nd_list_append(&tree->pending, &change->link);
    return change;
}

/* Part of a call: seen now, saved with the rest of `change`. */
static void change_name(struct tree_change *change, struct sim_node *dir, const char *name,
                        struct sim_node *node)
{
    change->names[change->count++] = (struct name_change){dir, nd_xstrdup(name), node};
    seen_set(dir, name, node);
}

struct sim_node *sim_tree_create(struct sim_tree *tree, uint64_t sequence, struct sim_node *dir,
                                 const char *name, bool is_dir)
{
    struct sim_node *node = node_new(tree, is_dir);

    change_name(pending_add(tree, sequence), dir, name, node);
    return node;
}

void sim_tree_unlink(struct sim_tree *tree, uint64_t sequence, struct sim_node *dir,
                     const char *name)
{
    change_name(pending_add(tree, sequence), dir, name, NULL);
}

void sim_tree_rename(struct sim_tree *tree, uint64_t sequence, const struct sim_entry from,
                     const struct sim_entry to)
{
    struct tree_change *change = pending_add(tree, sequence);
    struct sim_node *node = sim_names_get(&from.node->seen, from.name);

    change_name(change, from.node, from.name, NULL);
    change_name(change, to.node, to.name, node);
}

static void save(struct tree_change *change)
{
    for (size_t i = 0; i < change->count; i++) {
        names_set(&change->names[i].dir->saved, change->names[i].name, change->names[i].node);
    }
}

static bool touches_marked(const struct tree_change *change)
{
    for (size_t i = 0; i < change->count; i++) {
        if (change->names[i].dir->marked) {
            return true;
        }
    }
    return false;
}

/* Backwards: what is saved takes with it all earlier changes of every directory it touches. */
static void mark_for_sync(struct sim_tree *tree)
{
    for (struct nd_list *link = tree->pending.prev; link != &tree->pending; link = link->prev) {
        struct tree_change *change = change_of(link);
        change->marked = touches_marked(change);
        for (size_t i = 0; change->marked && i < change->count; i++) {
            change->names[i].dir->marked = true;
        }
    }
}

void sim_tree_sync(struct sim_tree *tree, const struct sim_node *dir)
{
    ND_LIST_FOREACH (&tree->nodes, link) {
        node_of(link)->marked = dir == NULL || node_of(link) == dir;
    }
    mark_for_sync(tree);
    ND_LIST_FOREACH (&tree->pending, link) {
        if (change_of(link)->marked) {
            save(change_of(link));
            change_free(change_of(link));
        }
    }
}

void sim_tree_cut(struct sim_tree *tree, struct sim_choice *choice)
{
    ND_LIST_FOREACH (&tree->pending, link) {
        struct tree_change *change = change_of(link);
        if (sim_choice_keeps(choice, choice->names, change->sequence)) {
            save(change);
        }
        change_free(change);
    }
    ND_LIST_FOREACH (&tree->nodes, link) {
        struct sim_node *node = node_of(link);
        names_release(&node->seen);
        node->names = node == tree->root ? 1 : 0;
    }
    ND_LIST_FOREACH (&tree->nodes, link) {
        struct sim_node *dir = node_of(link);
        for (size_t i = 0; i < dir->saved.count; i++) {
            seen_set(dir, dir->saved.entries[i].name, dir->saved.entries[i].node);
        }
    }
}

void sim_tree_pending_range(const struct sim_tree *tree, uint64_t *low, uint64_t *high)
{
    ND_LIST_FOREACH (&tree->pending, link) {
        *low = ND_MIN(*low, change_of(link)->sequence);
        *high = ND_MAX(*high, change_of(link)->sequence);
    }
    ND_LIST_FOREACH (&tree->nodes, link) {
        sim_file_pending_range(&node_of(link)->file, low, high);
    }
}

static bool mark(struct sim_node *node)
{
    bool is_new = node != NULL && !node->marked;

    if (is_new) {
        node->marked = true;
    }
    return is_new;
}

static bool mark_names(const struct sim_names *names)
{
    bool is_new = false;

    for (size_t i = 0; i < names->count; i++) {
        is_new = mark(names->entries[i].node) || is_new;
    }
    return is_new;
}

void sim_tree_sweep(struct sim_tree *tree)
{
    ND_LIST_FOREACH (&tree->nodes, link) {
        node_of(link)->marked = node_of(link) == tree->root || node_of(link)->opens > 0;
    }
    ND_LIST_FOREACH (&tree->pending, link) {
        const struct tree_change *change = change_of(link);
        for (size_t i = 0; i < change->count; i++) {
            (void)mark(change->names[i].dir);
            (void)mark(change->names[i].node);
        }
    }
    for (bool again = true; again;) { /* as often as the tree is deep, at most */
        again = false;
        ND_LIST_FOREACH (&tree->nodes, link) {
            const struct sim_node *node = node_of(link);
            if (node->marked) {
                again = mark_names(&node->seen) || again;
                again = mark_names(&node->saved) || again;
            }
        }
    }
    ND_LIST_FOREACH (&tree->nodes, link) {
        struct sim_node *node = node_of(link);
        for (size_t i = 0; !node->marked && i < node->seen.count; i++) {
            node->seen.entries[i].node->names -= 1;
        }
    }
    ND_LIST_FOREACH (&tree->nodes, link) {
        if (!node_of(link)->marked) {
            node_free(node_of(link));
        }
    }
}
