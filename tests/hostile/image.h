/* A whole data directory in memory, to be changed in one place and put on a fresh simulated disk,
 * thousands of times. */
#ifndef ND_TESTS_HOSTILE_IMAGE_H
#define ND_TESTS_HOSTILE_IMAGE_H

#include "tests/support/sim_env.h"

enum { IMAGE_FILES_MAX = 64 };

struct image_file {
    char *path;
    uint8_t *bytes; /* `filled` of them; zeros follow up to `size` */
    uint64_t filled, size;
};

struct image {
    struct image_file files[IMAGE_FILES_MAX];
    size_t count;
};

/* All files below "data" as readers see them. */
void image_take(struct image *image, struct sim_env *sim);
void image_release(struct image *image);
/* Onto an empty disk, synced. */
void image_put(const struct image *image, struct sim_env *sim);
struct image_file *image_find(struct image *image, const char *path_end); /* or NULL */
/* Does the disk still have every byte of every file whose path ends in `suffix`? Else the path. */
const char *image_kept(const struct image *image, struct sim_env *sim, const char *suffix);

#endif
