/* What tests do to the files of a metastore that is not open. Any failure aborts the test program.
 */
#ifndef ND_TESTS_CLUSTER_FILES_H
#define ND_TESTS_CLUSTER_FILES_H

#include "storage/base/slice.h"

/* The first name in `dir` that holds `part` and not `without` (NULL: all); nd_free(), or NULL. */
char *files_find(const char *dir, const char *part, const char *without);
uint32_t files_count(const char *dir, const char *part);
uint64_t files_allocated(const char *dir); /* bytes of the device, all files of `dir` */
/* The snapshot of the highest index, nd_free(), or NULL. */
char *files_newest_snapshot(const char *dir);
struct nd_slice files_read(const char *path); /* its data is the caller's, nd_free() */
void files_write(const char *path, struct nd_slice bytes);
void files_flip(const char *path, uint64_t at);
void files_copy_dir(const char *from, const char *to); /* one level; `to` is made */
void files_remove_dir(const char *dir);                /* one level */
void files_remove(const char *dir, const char *name);

#endif
