/* What the parts of the check share: the directory (verify.c), the log (verify_wal.c), one
 * partition (verify_partition.c). */
#ifndef ND_VERIFY_PRIVATE_H
#define ND_VERIFY_PRIVATE_H

#include "storage/base/map.h"

#include "storage/layout.h"
#include "storage/read_only.h"
#include "storage/verify.h"

struct verify {
    const struct nd_verify_options *options;
    struct nd_read_only read_only;
    const struct nd_env *env; /* read_only's */
    char dir[ND_LAYOUT_PATH_SIZE];
    uint8_t store_id[16];
    bool fresh, has_format;
    struct nd_verify_result result;
    struct nd_errmsg *msg; /* of the error that ends it */
    /* From the log. */
    bool log_whole;          /* so that states can be compared with it */
    uint64_t log_last;       /* highest sequence that counts */
    struct nd_map *replayed; /* partition_key -> struct nd_recovered_partition */
    uint8_t *raw;            /* ND_FRAME_RAW_MAX */
};

/* A finding at byte `at` of `file`. The returned report takes more values; then finding_end(). */
struct nd_report *verify_finding(struct verify *v, bool is_damage, const char *file, uint64_t at,
                                 const char *what);
void verify_finding_end(struct verify *v);
void verify_damage(struct verify *v, const char *file, uint64_t at, const char *what);
void verify_note(struct verify *v, const char *file, uint64_t at, const char *what);
void verify_progress(struct verify *v, const char *path);

/* Is it an error of the device, rather than a finding? */
bool verify_is_fatal(enum nd_err err);

enum { VERIFY_KEY_SIZE = ND_TOPIC_NAME_SIZE_MAX + 32 };
struct nd_slice verify_key(char out[VERIFY_KEY_SIZE], const struct nd_partition_id *id);

/* Names of a directory, sorted; a missing directory has none. */
struct verify_names {
    struct verify_name {
        char *name;
        enum nd_file_kind kind;
    } * list;
    size_t count, capacity;
};
ND_CHECKED enum nd_err verify_list(struct verify *v, const char *path, struct verify_names *out);
void verify_names_release(struct verify_names *names);

ND_CHECKED enum nd_err verify_wal(struct verify *v);
ND_CHECKED enum nd_err verify_partition(struct verify *v, const char *dir,
                                        const struct nd_partition_id *id);

#endif
