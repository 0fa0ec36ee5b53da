/* Damage at rest, exhaustively: every bit of a small store flipped once; every file cut at every
 * byte, zeroed whole and by sectors; older copies of the last file of the log and of `state` put in
 * place. After each the store is checked offline, then started, read whole and used.
 *
 *   either  it starts, and at most the frame that was hit is unreadable
 *   or      it refuses, names the file, and has changed nothing
 *
 * Never a wrong byte, an acked message again, an offset twice, a later message skipped, or a
 * segment that is gone. In the last group of the log damage may count as torn: that group may be
 * missing. `verify` must find whatever the node refuses or cannot serve, and nothing in what is
 * whole.
 *
 *   hostile_disk [--stride N] [--workers N] [--padding N]
 *
 * tries every N-th damage, spread over processes; in padding one bit of every N bytes.
 *
 * Prints what was tried. Exit 1 with the damage that broke a promise. */
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "storage/base/alloc.h"

#include "storage/dump.h"
#include "storage/layout.h"
#include "storage/verify.h"
#include "tests/hostile/store.h"

enum { SECTOR = 512, WORKERS_MAX = 16, ZEROS_STEP = 513, ZEROS_NEAR = 16 };

static uint64_t padding_step = 7;

enum damage_kind { FLIP, CUT, ZERO, ZERO_SECTOR, OLDER };

static const char *const kind_names[] = {"bits flipped", "cuts", "files zeroed", "sectors zeroed",
                                         "older copies"};
enum { KINDS = 5 };

/* One damage: bytes [from, to) of a file of the image are hit. */
struct damage {
    enum damage_kind kind;
    size_t file;
    uint64_t from, to;
    unsigned bit;
};

struct counts {
    uint64_t tried[KINDS], refused, started, lossy, unavailable, found;
};

struct trial {
    const struct store *store;
    const struct damage *damage;
    struct image_file *hit; /* of the damaged image */
    const struct image *image;
    struct sim_env *sim;
    struct node node;
    struct nd_layout layout;
    bool has_layout;
    char problem[512];
    struct counts *counts;
    uint64_t verify_damages;
    char verify_first[512];
    bool lossy, unavailable;
};

static void problem(struct trial *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void problem(struct trial *t, const char *format, ...)
{
    va_list args;

    if (t->problem[0] == '\0') {
        va_start(args, format);
        vsnprintf(t->problem, sizeof t->problem, format, args);
        va_end(args);
    }
}

/* --- what a damage may cost --- */

static bool path_has(const struct trial *t, const char *part)
{
    return strstr(t->hit->path, part) != NULL;
}

static bool hits_last_group(const struct trial *t)
{
    return strcmp(t->hit->path, t->store->last_log) == 0 &&
           (t->damage->kind == OLDER || t->damage->from >= t->store->last_group_at);
}

/* May this message be unreadable? */
static bool may_be_lost(const struct trial *t, uint32_t topic, uint64_t offset)
{
    const struct store_message *message = &t->store->messages[topic][offset];

    if (hits_last_group(t)) {
        return topic == STORE_WARM && (t->damage->kind == OLDER ? offset >= t->store->older_count
                                                                : message->in_last_group);
    }
    for (uint32_t i = 0; i < t->store->frames_count; i++) {
        const struct store_frame *frame = &t->store->frames[i];
        bool is_hit = strcmp(frame->path, t->hit->path) == 0 && t->damage->from < frame->to &&
                      t->damage->to > frame->from;
        if (is_hit && frame->topic == topic && frame->first <= offset && offset < frame->end) {
            return true;
        }
    }
    return false;
}

/* A partition is refused by name when both copies of its `state` are damaged, and when segments end
 * before what was flushed as if there had never been more. */
static bool may_be_unavailable(const struct trial *t, uint32_t topic)
{
    enum damage_kind kind = t->damage->kind;
    bool is_own = path_has(t, topic == STORE_COLD ? "/cold/" : "/warm/");

    return is_own && ((path_has(t, "/state") && (kind == ZERO || kind == CUT)) ||
                      (path_has(t, ".log") && kind != FLIP));
}

/* An older copy forgets what was acked since. */
static bool may_come_back(const struct trial *t, uint32_t topic, uint64_t offset)
{
    bool forgets = topic == STORE_COLD ? path_has(t, "cold/0000000000001001/p00000/state")
                                       : strcmp(t->hit->path, t->store->last_log) == 0;

    return t->damage->kind == OLDER && forgets && !t->store->messages[topic][offset].acked_before;
}

/* --- reading and using the store --- */

static void record_check(struct trial *t, uint32_t topic, const struct node_delivery *record)
{
    const struct store_message *message = &t->store->messages[topic][record->offset];

    if (record->offset >= t->store->counts[topic]) {
        problem(t, "topic %u offset %llu: nobody sent that", topic,
                (unsigned long long)record->offset);
    } else if (strcmp(message->payload, record->payload) != 0 ||
               record->payload_size != strlen(message->payload)) {
        problem(t, "topic %u offset %llu: wrong bytes", topic, (unsigned long long)record->offset);
    }
}

/* Every record by replay, which says CORRUPT for one that it cannot read. */
static void stored_check(struct trial *t, uint32_t topic, bool seen[STORE_MESSAGES_MAX])
{
    uint64_t offset = 0;

    for (bool more = true; more && t->problem[0] == '\0';) {
        struct node_replay *replay = node_replay(&t->node, topic, 0, offset, ND_POLL_MESSAGES_MAX);
        for (uint32_t i = 0; i < replay->count; i++) {
            record_check(t, topic, &replay->list[i]);
            seen[replay->list[i].offset % STORE_MESSAGES_MAX] = true;
        }
        bool unreadable = replay->err == ND_ERR_CORRUPT;
        more = replay->err == ND_OK ? replay->count > 0 : unreadable;
        if (replay->err != ND_OK && !unreadable) {
            t->unavailable = true;
            if (!may_be_unavailable(t, topic)) {
                problem(t, "topic %u cannot be read: %s", topic, nd_err_name(replay->err));
            }
        }
        offset = unreadable ? offset + 1 : replay->request.offset;
        nd_free(replay);
    }
    for (uint64_t i = 0; i < t->store->counts[topic] && !t->unavailable; i++) {
        if (!seen[i]) {
            t->lossy = true;
            if (!may_be_lost(t, topic, i)) {
                problem(t, "topic %u offset %llu is lost", topic, (unsigned long long)i);
            }
        }
    }
}

/* Every delivery; all that is stored and not acked must come, once. */
static void delivered_check(struct trial *t, uint32_t topic, const bool stored[STORE_MESSAGES_MAX])
{
    bool seen[STORE_MESSAGES_MAX] = {false};

    for (uint32_t count = 1; count > 0 && t->problem[0] == '\0';) {
        struct node_poll *poll =
            node_poll_start(&t->node, topic, ND_PARTITION_ANY, ND_POLL_MESSAGES_MAX, 0);
        node_run(&t->node);
        count = poll->done ? poll->count : 0;
        for (uint32_t i = 0; i < count; i++) {
            uint64_t offset = poll->list[i].offset;
            record_check(t, topic, &poll->list[i]);
            if (t->problem[0] == '\0' && seen[offset]) {
                problem(t, "topic %u offset %llu is delivered twice", topic,
                        (unsigned long long)offset);
            } else if (t->problem[0] == '\0' && t->store->messages[topic][offset].acked &&
                       !may_come_back(t, topic, offset)) {
                problem(t, "topic %u offset %llu was acked and is delivered", topic,
                        (unsigned long long)offset);
            }
            seen[offset % STORE_MESSAGES_MAX] = true;
        }
        nd_free(poll);
    }
    for (uint64_t i = 0; i < t->store->counts[topic] && !t->unavailable; i++) {
        if (stored[i] && !seen[i] && !t->store->messages[topic][i].acked) {
            problem(t, "topic %u offset %llu is skipped", topic, (unsigned long long)i);
        }
    }
}

/* A new message gets an offset of its own, is delivered, and can be read where it was put. */
static void alive_check(struct trial *t, uint32_t topic, const bool stored[STORE_MESSAGES_MAX])
{
    struct node_delivery delivery;
    uint64_t offset = 0;
    enum nd_err err = node_produce(&t->node, topic, 0, "alive", &offset);

    if (err != ND_OK) {
        if (!t->unavailable) {
            problem(t, "topic %u takes no message: %s", topic, nd_err_name(err));
        }
        return;
    }
    bool may_be_low = hits_last_group(t);
    if (offset < t->store->counts[topic] && (!may_be_low || stored[offset])) {
        problem(t, "topic %u: offset %llu is given twice", topic, (unsigned long long)offset);
    } else if (t->unavailable) {
        return; /* it is kept for when the partition is whole again */
    } else if (!node_take(&t->node, topic, 0, &delivery) || delivery.offset != offset ||
               strcmp(delivery.payload, "alive") != 0) {
        problem(t, "topic %u: a new message is not delivered", topic);
    } else if (node_settle(&t->node, topic, &delivery, ND_SETTLE_ACK) != ND_OK) {
        problem(t, "topic %u: an ack fails", topic);
    }
}

/* --- one trial --- */

static void verify_line(void *arg, const char *line, size_t size)
{
    struct trial *t = arg;

    if (strncmp(line, "damage", 6) == 0 && t->verify_first[0] == '\0') {
        snprintf(t->verify_first, sizeof t->verify_first, "%.*s", (int)size - 1, line);
    }
}

static void verify(struct trial *t)
{
    struct nd_report report;
    struct nd_verify_result result;
    struct nd_errmsg msg = {{0}};
    struct nd_verify_options options = {
        .env = sim_env_get(t->sim), .data_dir = "data", .report = &report};
    uint64_t before = sim_env_changes(t->sim);

    nd_report_init(&report, false, verify_line, t);
    enum nd_err err = nd_verify(&options, &result, &msg);
    nd_report_release(&report);
    if (err != ND_OK) {
        problem(t, "verify fails: %s: %s", nd_err_name(err), msg.text);
    }
    if (sim_env_changes(t->sim) != before) {
        problem(t, "verify changed something");
    }
    t->verify_damages = result.damages;
    t->counts->found += result.damages > 0;
}

static void nothing_write(void *arg, const char *line, size_t size)
{
    (void)arg;
    (void)line;
    (void)size;
}

/* The file that was hit can be shown whatever it holds. */
static void dump(struct trial *t)
{
    struct nd_report report;
    struct nd_errmsg msg = {{0}};
    uint64_t damages, before = sim_env_changes(t->sim);
    struct nd_dump_options options = {
        .env = sim_env_get(t->sim), .path = t->hit->path, .report = &report, .records = true};

    nd_report_init(&report, true, nothing_write, NULL);
    enum nd_err err = nd_dump_file(&options, &damages, &msg);
    nd_report_release(&report);
    if (err != ND_OK || sim_env_changes(t->sim) != before) {
        problem(t, "dump fails or changes something: %s: %s", nd_err_name(err), msg.text);
    }
}

static enum nd_err trial_start(struct trial *t, struct nd_errmsg *msg)
{
    const uint8_t store_id = 0x5a;
    enum nd_err err = nd_layout_open(&t->layout, sim_env_get(t->sim), "data", msg);

    t->has_layout = err == ND_OK;
    for (size_t i = 0; i < sizeof t->layout.store_id && err == ND_OK; i++) {
        if (t->layout.store_id[i] != store_id || t->layout.fresh) {
            problem(t, "a damaged FORMAT was believed");
        }
    }
    return err == ND_OK ? node_open(&t->node, msg) : err;
}

static void refusal_check(struct trial *t, const struct nd_errmsg *msg, enum nd_err err)
{
    const char *dir_end = strrchr(t->hit->path, '/');

    t->counts->refused += 1;
    if (strstr(msg->text, dir_end + 1) == NULL) {
        problem(t, "it refuses without the name of the file: %s: %s", nd_err_name(err), msg->text);
    } else if (err != ND_ERR_CORRUPT && err != ND_ERR_UNSUPPORTED) {
        problem(t, "it refuses for another reason: %s: %s", nd_err_name(err), msg->text);
    } else if (image_kept(t->image, t->sim, "") != NULL) {
        problem(t, "it refuses, and has changed %s", image_kept(t->image, t->sim, ""));
    } else if (path_has(t, ".index") || path_has(t, ".spare") || path_has(t, ".log")) {
        problem(t, "it refuses for a file that it can do without: %s", msg->text);
    } else if (t->verify_damages == 0) {
        problem(t, "it refuses (%s), and verify finds nothing", msg->text);
    }
}

/* The image without what follows the last frame of each segment: padding, which may be cut when the
 * log goes on there. */
static struct image segments_needed(const struct trial *t)
{
    struct image needed = *t->image;

    for (size_t i = 0; i < needed.count; i++) {
        uint64_t end = 0;
        for (uint32_t k = 0; k < t->store->frames_count; k++) {
            const struct store_frame *frame = &t->store->frames[k];
            end = strcmp(frame->path, needed.files[i].path) == 0 ? ND_MAX(end, frame->to) : end;
        }
        if (t->damage->kind == ZERO_SECTOR && &t->image->files[i] == t->hit) {
            end = ND_MIN(end, t->damage->from); /* what reads as zeros may be written over */
        }
        needed.files[i].size = ND_MIN(needed.files[i].size, end);
    }
    return needed;
}

static void started_check(struct trial *t)
{
    bool stored[STORE_TOPICS][STORE_MESSAGES_MAX] = {{false}};

    t->counts->started += 1;
    for (uint32_t topic = 0; topic < STORE_TOPICS; topic++) {
        t->unavailable = false;
        stored_check(t, topic, stored[topic]);
        delivered_check(t, topic, stored[topic]);
        alive_check(t, topic, stored[topic]);
        t->counts->unavailable += t->unavailable;
        if (t->unavailable && t->verify_damages == 0) {
            problem(t, "a partition is unavailable, and verify finds nothing");
        }
    }
    t->counts->lossy += t->lossy;
    if (t->lossy && t->verify_damages == 0 && !hits_last_group(t)) {
        problem(t, "records are lost, and verify finds nothing");
    }
    struct image needed = segments_needed(t);
    const char *gone = image_kept(&needed, t->sim, ".log");
    if (gone != NULL) {
        problem(t, "%s was removed or changed", gone);
    }
}

static bool trial_run(struct trial *t)
{
    struct nd_errmsg msg = {{0}};

    t->sim = sim_env_new(1);
    image_put(t->image, t->sim);
    store_node_init(&t->node, t->sim);
    verify(t);
    dump(t);
    enum nd_err err = trial_start(t, &msg);
    if (err != ND_OK) {
        refusal_check(t, &msg, err);
    } else {
        started_check(t);
        node_crash(&t->node);
    }
    if (t->has_layout) {
        nd_layout_close(&t->layout);
    }
    node_release(&t->node);
    sim_env_free(t->sim);
    if (t->problem[0] != '\0') {
        printf("%s in %s at [%llu, %llu) bit %u: %s\n", kind_names[t->damage->kind], t->hit->path,
               (unsigned long long)t->damage->from, (unsigned long long)t->damage->to,
               t->damage->bit, t->problem);
        return false;
    }
    return true;
}

/* --- damages --- */

/* Apply it to a copy of the file; false: it changes nothing. */
static bool damage_apply(const struct store *store, const struct damage *damage,
                         struct image_file *file)
{
    uint64_t room = ND_MAX(file->filled, damage->kind == FLIP ? damage->to : 0);
    uint8_t *bytes = nd_xcalloc(1, (size_t)room + 1);

    memcpy(bytes, file->bytes, (size_t)file->filled);
    file->bytes = bytes;
    switch (damage->kind) {
    case FLIP:
        bytes[damage->from] ^= (uint8_t)(1u << damage->bit);
        file->filled = room;
        return true;
    case CUT: file->size = damage->from; return true;
    case ZERO:
    case ZERO_SECTOR: {
        bool changes = false;
        for (uint64_t at = damage->from; at < ND_MIN(damage->to, file->filled); at++) {
            changes |= bytes[at] != 0;
            bytes[at] = 0;
        }
        return changes;
    }
    case OLDER:
        for (size_t i = 0; i < store->older.count; i++) {
            const struct image_file *older = &store->older.files[i];
            if (strcmp(older->path, file->path) == 0) {
                nd_free(bytes);
                file->bytes = nd_xmalloc((size_t)older->filled + 1);
                memcpy(file->bytes, older->bytes, (size_t)older->filled);
                file->filled = older->filled;
                file->size = older->size;
                return true;
            }
        }
        return false;
    }
    return false;
}

static bool damage_try(const struct store *store, const struct damage *damage,
                       struct counts *counts)
{
    struct image image = store->image;
    struct image_file *hit = &image.files[damage->file];
    struct trial trial = {
        .store = store, .damage = damage, .hit = hit, .image = &image, .counts = counts};
    bool good = true;

    if (damage_apply(store, damage, hit)) {
        counts->tried[damage->kind] += 1;
        good = trial_run(&trial);
    }
    nd_free(hit->bytes);
    return good;
}

/* Bytes to the next place that is tried. Content goes bit by bit. The zeros that fill up blocks are
 * all treated alike, so of those one bit in every few bytes is; of those behind all that was ever
 * written, which nobody has a use for, one bit in a sector. --padding 1 tries them all. */
static uint64_t step_at(const struct image_file *file, uint64_t at, uint64_t written)
{
    if (at >= written) {
        return ZEROS_STEP;
    }
    for (uint64_t i = at > ZEROS_NEAR ? at - ZEROS_NEAR : 0;
         i < ND_MIN(at + ZEROS_NEAR, file->filled); i++) {
        if (file->bytes[i] != 0) {
            return 1;
        }
    }
    return padding_step;
}

/* The damages of a kind to a file, one after the other; false: there is no further one. */
static bool damage_next(const struct store *store, struct damage *damage)
{
    const struct image_file *file = &store->image.files[damage->file];
    uint64_t written = ND_MIN((file->filled + 4095) / 4096 * 4096, file->size);
    uint64_t step = step_at(file, damage->from, written);

    switch (damage->kind) {
    case FLIP:
        damage->bit = step == 1 ? (damage->bit + 1) % 8 : (damage->bit + 3) % 8;
        damage->from += step > 1 ? step : damage->bit == 0;
        damage->to = damage->from + 1;
        return damage->from < file->size;
    case CUT:
        damage->from += step;
        damage->to = file->size;
        return damage->from < file->size;
    case ZERO_SECTOR:
        damage->from += SECTOR;
        damage->to = damage->from + SECTOR;
        return damage->from < written;
    case ZERO:
    case OLDER: return false;
    }
    return false;
}

static struct damage damage_first(const struct store *store, enum damage_kind kind, size_t file)
{
    uint64_t size = store->image.files[file].size;
    uint64_t end = kind == FLIP ? 1 : kind == ZERO_SECTOR ? SECTOR : size;

    return (struct damage){.kind = kind, .file = file, .from = 0, .to = end};
}

static bool worker_run(const struct store *store, uint64_t stride, uint64_t workers, uint64_t own,
                       struct counts *counts)
{
    uint64_t number = 0;

    for (int kind = 0; kind < KINDS; kind++) {
        for (size_t file = 0; file < store->image.count; file++) {
            struct damage damage = damage_first(store, (enum damage_kind)kind, file);
            bool more = store->image.files[file].size > 0;
            while (more) {
                /* Few ones are all tried. */
                bool due = kind == ZERO || kind == OLDER || number % stride == 0;
                if (due && number / stride % workers == own &&
                    !damage_try(store, &damage, counts)) {
                    return false;
                }
                number += 1;
                more = damage_next(store, &damage);
            }
        }
    }
    return true;
}

/* The store as it is must pass, with nothing to be found. */
static bool baseline_check(const struct store *store)
{
    struct counts counts = {0};
    struct damage none = {.kind = FLIP};
    struct image image = store->image;
    struct trial trial = {.store = store,
                          .damage = &none,
                          .hit = image_find(&image, "/FORMAT"),
                          .image = &image,
                          .counts = &counts};

    if (!trial_run(&trial)) {
        return false;
    }
    if (trial.verify_damages > 0 || counts.lossy > 0 || counts.started != 1) {
        printf("the store is not whole to begin with: %s\n", trial.verify_first);
        return false;
    }
    return image_find(&image, "/state") != NULL && image_find(&image, ".index") != NULL;
}

static int workers_run(const struct store *store, uint64_t stride, uint64_t workers)
{
    int pipes[WORKERS_MAX][2];
    struct counts sum = {0};
    int status = 0;

    for (uint64_t i = 0; i < workers; i++) {
        ND_ASSERT(pipe(pipes[i]) == 0);
        (void)fflush(stdout);
        if (fork() == 0) {
            struct counts counts = {0};
            bool good = worker_run(store, stride, workers, i, &counts);
            (void)fflush(stdout);
            good = write(pipes[i][1], &counts, sizeof counts) == (ssize_t)sizeof counts && good;
            _exit(good ? 0 : 1);
        }
        (void)close(pipes[i][1]);
    }
    for (uint64_t i = 0; i < workers; i++) {
        struct counts counts = {0};
        int child = 0;
        bool told = read(pipes[i][0], &counts, sizeof counts) == (ssize_t)sizeof counts;
        (void)wait(&child);
        status |= !told || child != 0;
        for (int kind = 0; kind < KINDS; kind++) {
            sum.tried[kind] += counts.tried[kind];
        }
        sum.refused += counts.refused;
        sum.started += counts.started;
        sum.lossy += counts.lossy;
        sum.unavailable += counts.unavailable;
        sum.found += counts.found;
    }
    for (int kind = 0; kind < KINDS; kind++) {
        printf("%llu %s, ", (unsigned long long)sum.tried[kind], kind_names[kind]);
    }
    printf("%llu starts: %llu refused, %llu with an unreadable frame or a torn group, %llu with an "
           "unavailable partition; verify found %llu\n",
           (unsigned long long)(sum.refused + sum.started), (unsigned long long)sum.refused,
           (unsigned long long)sum.lossy, (unsigned long long)sum.unavailable,
           (unsigned long long)sum.found);
    return status;
}

int main(int argc, char **argv)
{
    static struct store store;
    uint64_t stride = 1, workers = 2;

    for (int i = 1; i + 1 < argc; i += 2) {
        uint64_t value = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--stride") == 0 && value > 0) {
            stride = value;
        } else if (strcmp(argv[i], "--workers") == 0 && value > 0 && value <= WORKERS_MAX) {
            workers = value;
        } else if (strcmp(argv[i], "--padding") == 0 && value > 0) {
            padding_step = value;
        } else {
            fprintf(stderr, "usage: hostile_disk [--stride N] [--workers N] [--padding N]\n");
            return 2;
        }
    }
    /* The big blocks of a start are the same every time: keep them. */
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 30);
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
    store_make(&store);
    for (size_t i = 0; i < store.image.count; i++) {
        printf("%s: %llu bytes, %llu before its last zeros\n", store.image.files[i].path,
               (unsigned long long)store.image.files[i].size,
               (unsigned long long)store.image.files[i].filled);
    }
    int status = baseline_check(&store) ? workers_run(&store, stride, workers) : 1;
    store_release(&store);
    return status;
}
