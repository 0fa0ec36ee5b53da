#include <inttypes.h>
#include <string.h>

#include "storage/base/alloc.h"
#include "storage/base/map.h"

#include "tests/support/nd_rand.h"
#include "tests/support/sim_impl.h"

#define WALL_MS_START ((int64_t)1767225600000) /* 2026-01-01T00:00:00Z */
#define NS_PER_S      ((uint64_t)1000000000)

/* ---- One call, from begin to end ---- */

static const char *const call_names[SIM_CALL_COUNT] = {
    [SIM_OPEN] = "open",
    [SIM_PREAD] = "read",
    [SIM_PWRITE] = "write",
    [SIM_SYNC] = "fdatasync",
    [SIM_SYNC_FS] = "syncfs",
    [SIM_SYNC_DIR] = "fsync directory",
    [SIM_TRUNCATE] = "truncate",
    [SIM_ZERO_FILL] = "zero fill",
    [SIM_DROP_CACHE] = "drop the cache of",
    [SIM_FILE_SIZE] = "file size",
    [SIM_STAT] = "stat",
    [SIM_RENAME] = "rename",
    [SIM_UNLINK] = "unlink",
    [SIM_MKDIR] = "mkdir",
    [SIM_RMDIR] = "rmdir",
    [SIM_LIST] = "list",
    [SIM_SPACE] = "statvfs",
    [SIM_LOCK] = "lock",
};

static bool fault_strikes(struct armed *armed, enum sim_call kind)
{
    if (!armed->on || (armed->call != SIM_ANY && armed->call != kind)) {
        return false;
    }
    if (armed->left > 1) {
        armed->left -= 1;
        return false;
    }
    armed->fired = true;
    armed->on = armed->lasts;
    return true;
}

static enum nd_err fault_err(enum sim_fault fault)
{
    switch (fault) {
    case SIM_FAULT_NO_SPACE: return ND_ERR_NO_SPACE;
    case SIM_FAULT_IO:
    case SIM_FAULT_SHORT_WRITE: return ND_ERR_IO;
    }
    ND_UNREACHABLE();
}

static void note_struck(const struct call *call)
{
    struct sim_env *sim = call->sim;
    const char *path = call->path;
    char *out = sim->struck, *end = sim->struck + sizeof sim->struck - 1;

    out += snprintf(out, sizeof sim->struck, "%s ", call_names[call->kind]);
    while (*path != '\0' && out < end) {
        size_t part = strcspn(path, "/."), digits = strcspn(path, "0123456789");
        if (digits < part) {
            *out++ = '#';
            path += part;
        }
        do {
            if (*path != '\0' && out < end) {
                *out++ = *path++;
            }
        } while (*path != '\0' && out < end && path[-1] != '/' && path[-1] != '.');
    }
    *out = '\0';
}

const char *sim_env_struck(const struct sim_env *sim)
{
    return sim->struck;
}

enum nd_err sim_call_begin(struct call *call)
{
    struct sim_env *sim = call->sim;

    sim->calls[call->kind] += 1;
    sim->calls[SIM_ANY] += 1;
    if (sim->is_cut) {
        return ND_ERR_IO;
    }
    if (call->is_change) {
        sim->changes += 1;
        call->cuts = sim->changes == sim->cut_at;
    }
    call->faulted = fault_strikes(&sim->armed, call->kind);
    call->fault = sim->armed.fault;
    if (call->faulted || call->cuts) {
        note_struck(call);
    }
    if (!call->faulted && call->kind == SIM_PWRITE && sim->bad_prefix != NULL) {
        call->faulted = strncmp(call->path, sim->bad_prefix, strlen(sim->bad_prefix)) == 0;
        call->fault = SIM_FAULT_IO;
    }
    return call->faulted ? fault_err(call->fault) : ND_OK;
}

static const char *reason(enum nd_err err)
{
    switch (err) {
    case ND_ERR_NOT_FOUND: return "No such file or directory";
    case ND_ERR_ALREADY_EXISTS: return "File exists";
    case ND_ERR_NO_SPACE: return "No space left on device";
    case ND_ERR_UNAVAILABLE: return "Resource temporarily unavailable";
    case ND_ERR_UNSUPPORTED: return "Invalid argument";
    default: return "Input/output error";
    }
}

enum nd_err sim_call_end(struct call *call, enum nd_err err)
{
    struct sim_env *sim = call->sim;

    if (call->cuts) {
        sim_env_power_cut(sim, nd_rand(&sim->disk_random));
        err = ND_ERR_IO;
    }
    if (err != ND_OK) {
        nd_errmsg_set(call->msg, "%s %s: %s", call_names[call->kind], call->path, reason(err));
    }
    if (sim->trace != NULL) {
        (void)fprintf(sim->trace, "%6" PRIu64 " %s %s at=%" PRIu64 " size=%" PRIu64 "%s%s %s\n",
                      call->is_change ? sim->changes : 0, call_names[call->kind], call->path,
                      call->at, call->size, call->faulted ? " FAULT" : "", call->cuts ? " CUT" : "",
                      nd_err_name(err));
    }
    return err;
}

/* ---- Open files ---- */

static struct handle *handle_find(struct sim_env *sim, int file)
{
    for (size_t i = 0; i < sim->handles_count; i++) {
        if (sim->handles[i].number == file && sim->handles[i].node != NULL) {
            return &sim->handles[i];
        }
    }
    return NULL;
}

struct handle *sim_handle_get(struct sim_env *sim, int file)
{
    struct handle *handle = handle_find(sim, file);

    ND_ASSERT(handle != NULL || file < sim->number_first);
    return handle;
}

int sim_handle_add(struct sim_env *sim, struct sim_node *node, int flags, const char *path)
{
    size_t at = 0;

    while (at < sim->handles_count && sim->handles[at].node != NULL) {
        at += 1;
    }
    if (at == sim->handles_count) {
        ND_ASSERT(at < HANDLES_MAX); /* files are leaking */
        sim->handles = nd_xrealloc(sim->handles, (at + 1) * sizeof *sim->handles);
        sim->handles_count += 1;
    }
    sim->handles[at] = (struct handle){
        .node = node, .number = sim->number_next++, .flags = flags, .path = nd_xstrdup(path)};
    node->opens += 1;
    return sim->handles[at].number;
}

void sim_handle_close(struct handle *handle)
{
    handle->node->opens -= 1;
    if (handle->locks) {
        handle->node->locked = false;
    }
    handle->node = NULL;
    nd_free(handle->path);
    handle->path = NULL;
}

static uint64_t blocks_used(const struct sim_env *sim)
{
    uint64_t used = 0;

    ND_LIST_FOREACH (&sim->tree.nodes, link) {
        const struct sim_node *node = ND_CONTAINER_OF(link, struct sim_node, link);
        used += node->names > 0 || node->opens > 0 ? node->file.blocks_used : 0;
    }
    return used;
}

uint64_t sim_blocks_free(const struct sim_env *sim)
{
    uint64_t total = sim->space_total / SIM_BLOCK, used = blocks_used(sim);

    return used < total ? total - used : 0;
}

/* ---- For tests ---- */

struct sim_env *sim_env_new(uint64_t seed)
{
    struct sim_env *sim = nd_xcalloc(1, sizeof *sim);

    sim->env = sim_calls;
    sim->env.impl = sim;
    sim_tree_init(&sim->tree);
    sim->env_random = seed;
    sim->disk_random = ~seed;
    sim->mono_ns = 1000 * NS_PER_S;
    sim->boot_ns = 2000 * NS_PER_S;
    sim->wall_ns = (uint64_t)WALL_MS_START * NS_PER_MS;
    sim->space_total = (uint64_t)1 << 30;
    sim->direct = true;
    sim->number_next = sim->number_first = 1000; /* not those of the process */
    return sim;
}

void sim_env_free(struct sim_env *sim)
{
    for (size_t i = 0; i < sim->handles_count; i++) {
        if (sim->handles[i].node != NULL) {
            sim_handle_close(&sim->handles[i]);
        }
    }
    nd_free(sim->handles);
    sim_tree_release(&sim->tree);
    nd_free(sim);
}

const struct nd_env *sim_env_get(struct sim_env *sim)
{
    return &sim->env;
}

void sim_env_advance_ns(struct sim_env *sim, uint64_t ns)
{
    sim->mono_ns += ns;
    sim->boot_ns += ns;
    sim->wall_ns += ns;
}

void sim_env_advance_ms(struct sim_env *sim, uint64_t ms)
{
    sim_env_advance_ns(sim, ms * NS_PER_MS);
}

void sim_env_suspend_ms(struct sim_env *sim, uint64_t ms)
{
    sim->boot_ns += ms * NS_PER_MS;
    sim->wall_ns += ms * NS_PER_MS;
}

void sim_env_set_wall_ms(struct sim_env *sim, int64_t wall_ms)
{
    ND_ASSERT(wall_ms >= 0);
    sim->wall_ns = (uint64_t)wall_ms * NS_PER_MS;
}

void sim_env_set_space(struct sim_env *sim, uint64_t bytes_total)
{
    sim->space_total = bytes_total;
}

uint64_t sim_env_space_used(const struct sim_env *sim)
{
    return blocks_used(sim) * SIM_BLOCK;
}

void sim_env_set_direct(struct sim_env *sim, bool supported)
{
    sim->direct = supported;
}

void sim_env_trace(struct sim_env *sim, FILE *out)
{
    sim->trace = out;
}

uint64_t sim_env_calls(const struct sim_env *sim, enum sim_call call)
{
    return sim->calls[call];
}

uint64_t sim_env_changes(const struct sim_env *sim)
{
    return sim->changes;
}

static void arm(struct sim_env *sim, enum sim_call call, uint64_t nth, enum sim_fault fault)
{
    ND_ASSERT(nth > 0);
    sim->armed = (struct armed){.on = true, .call = call, .fault = fault, .left = nth};
}

void sim_env_fail_nth(struct sim_env *sim, enum sim_call call, uint64_t nth, enum sim_fault fault)
{
    arm(sim, call, nth, fault);
}

void sim_env_fail_from(struct sim_env *sim, enum sim_call call, uint64_t nth, enum sim_fault fault)
{
    arm(sim, call, nth, fault);
    sim->armed.lasts = true;
}

void sim_env_fail_clear(struct sim_env *sim)
{
    sim->armed.on = false;
}

void sim_env_fail_writes_under(struct sim_env *sim, const char *prefix)
{
    sim->bad_prefix = prefix;
}

bool sim_env_fault_fired(const struct sim_env *sim)
{
    return sim->armed.fired;
}

void sim_env_damage(struct sim_env *sim, const char *path, uint64_t at, uint8_t xor_mask)
{
    enum nd_err err;
    struct sim_node *node = sim_tree_find(&sim->tree, path, &err);

    ND_ASSERT(node != NULL && !node->is_dir);
    sim_file_damage(&node->file, at, xor_mask);
}

void sim_env_cut_at(struct sim_env *sim, uint64_t k)
{
    sim->cut_at = k == 0 ? 0 : sim->changes + k;
}

/* Half of the cuts treat data, sizes and names alike, the others mix them: a name without its
 * content is as likely as content without its name. */
static struct sim_choice choose(struct sim_env *sim, uint64_t seed)
{
    struct sim_choice choice = {.random = seed};
    uint64_t low = UINT64_MAX, high = 0;

    choice.data = (enum sim_keep)nd_rand_below(&choice.random, SIM_KEEP_COUNT);
    choice.sizes = choice.names = choice.data;
    if (nd_rand_below(&choice.random, 2) == 0) {
        choice.sizes = (enum sim_keep)nd_rand_below(&choice.random, SIM_KEEP_COUNT);
        choice.names = (enum sim_keep)nd_rand_below(&choice.random, SIM_KEEP_COUNT);
    }
    sim_tree_pending_range(&sim->tree, &low, &high);
    if (low <= high) {
        choice.sequence = low + nd_rand_below(&choice.random, high - low + 1);
    }
    return choice;
}

void sim_env_power_cut(struct sim_env *sim, uint64_t seed)
{
    if (sim->is_cut) {
        return;
    }
    struct sim_choice choice = choose(sim, seed);
    sim->is_cut = true;
    ND_LIST_FOREACH (&sim->tree.nodes, link) {
        sim_file_cut(&ND_CONTAINER_OF(link, struct sim_node, link)->file, &choice);
    }
    sim_tree_cut(&sim->tree, &choice);
    sim_tree_sweep(&sim->tree);
}

bool sim_env_is_cut(const struct sim_env *sim)
{
    return sim->is_cut;
}

void sim_env_restart(struct sim_env *sim)
{
    for (size_t i = 0; i < sim->handles_count; i++) {
        if (sim->handles[i].node != NULL) {
            sim_handle_close(&sim->handles[i]);
        }
    }
    sim->number_first = sim->number_next;
    sim_tree_sweep(&sim->tree);
    if (sim->is_cut) { /* the machine has booted */
        sim->mono_ns = sim->boot_ns = 10 * NS_PER_S;
        sim->is_cut = false;
    }
    sim->cut_at = 0;
    sim_env_fail_clear(sim);
}

static uint64_t digest_node(uint64_t digest, const char *name, const struct sim_node *node)
{
    uint64_t key[2] = {digest, node->is_dir};
    size_t size = (size_t)node->file.cache_size;
    uint8_t *content = nd_xmalloc(size);

    (void)sim_file_read(&node->file, 0, content, size, false);
    digest = nd_siphash(key, nd_slice_str(name));
    key[0] = digest;
    digest = nd_siphash(key, nd_slice_make(content, size));
    nd_free(content);
    for (size_t i = 0; i < node->seen.count; i++) { /* a test's tree is a few levels deep */
        digest = digest_node(digest, node->seen.entries[i].name, node->seen.entries[i].node);
    }
    return nd_siphash(key, nd_slice_make(&digest, sizeof digest));
}

uint64_t sim_env_digest(struct sim_env *sim)
{
    return digest_node(0, "", sim->tree.root);
}
