/* Files of the write-ahead log: names, creation, spares, reading (W3). Private to the log and its
 * tools. */
#ifndef ND_WAL_FILE_H
#define ND_WAL_FILE_H

#include "storage/base/env.h"
#include "storage/base/list.h"

#include "storage/wal_frame.h"

enum { ND_WAL_PATH_SIZE = 1024 };

/* `<dir>/<20 digits of the first sequence>.wal` and `<dir>/<20 digits>.spare`. */
void nd_wal_file_path(char out[ND_WAL_PATH_SIZE], const char *dir, uint64_t first_sequence);
void nd_wal_spare_path(char out[ND_WAL_PATH_SIZE], const char *dir, uint64_t number);

/* What a directory holds. */
struct nd_wal_names {
    uint64_t *files;  /* first sequences, ascending */
    uint64_t *spares; /* numbers, ascending */
    size_t files_count, spares_count;
};
ND_CHECKED enum nd_err nd_wal_names_read(struct nd_wal_names *out, const struct nd_env *env,
                                         const char *dir, struct nd_errmsg *msg);
void nd_wal_names_release(struct nd_wal_names *names);

/* Open for reading and writing past the page cache where the file system can, else through it. */
ND_CHECKED enum nd_err nd_wal_file_open(const struct nd_env *env, const char *path, int *file_out,
                                        struct nd_errmsg *msg);

/* Make a spare: written zeros of `bytes`, synced, its name synced. Nothing is left on failure. */
ND_CHECKED enum nd_err nd_wal_spare_create(const struct nd_env *env, const char *dir,
                                           uint64_t number, uint64_t bytes, struct nd_errmsg *msg);

/* Turn a spare into a file of the log: header, sync, rename, directory sync; *file_out is open. */
enum nd_wal_start {
    ND_WAL_START_DONE,
    ND_WAL_START_SPARE_KEPT, /* failed; the spare is as good as before */
    ND_WAL_START_SPARE_LOST, /* failed; it must not be used again */
};
ND_CHECKED enum nd_wal_start nd_wal_spare_start(const struct nd_env *env, const char *dir,
                                                uint64_t number, const struct nd_wal_header *header,
                                                int *file_out, enum nd_err *err_out,
                                                struct nd_errmsg *msg);

/* Reads frames of one file in big steps. */
struct nd_wal_reader {
    const struct nd_env *env;
    char path[ND_WAL_PATH_SIZE];
    int file;       /* -1: only the image */
    uint64_t size;  /* of the file, or of the image */
    uint64_t epoch; /* set by the caller, from the header */
    /* The beginning of the file, kept as it was read while `keep_image`. */
    bool keep_image;
    uint8_t *image;
    uint64_t image_size;
    /* Where the last read beyond it was. */
    uint8_t *window;
    size_t window_capacity;
    uint64_t window_at;
    size_t window_size;
};
/* Sync, drop the cache, only then read (W3): what a failed sync left in the cache is not there.
 * NOT_FOUND, IO… as env. */
ND_CHECKED enum nd_err nd_wal_reader_open(struct nd_wal_reader *reader, const struct nd_env *env,
                                          const char *path, struct nd_errmsg *msg);
void nd_wal_reader_close(struct nd_wal_reader *reader);
/* The bytes read while `keep_image` was set, from the start of the file; the caller's (nd_free). */
uint8_t *nd_wal_reader_take_image(struct nd_wal_reader *reader, uint64_t *size_out);
/* Read from such an image, handed over, instead of the file. Its frames are not checked again: only
 * those may be asked for that were found valid before. */
void nd_wal_reader_open_image(struct nd_wal_reader *reader, const char *path, uint8_t *image,
                              uint64_t size);
ND_CHECKED enum nd_err nd_wal_reader_header(struct nd_wal_reader *reader, struct nd_wal_header *out,
                                            struct nd_errmsg *msg);
/* The block at `at`, borrowed until the next call; CORRUPT beyond the end. */
ND_CHECKED enum nd_err nd_wal_reader_block(struct nd_wal_reader *reader, uint64_t at,
                                           const uint8_t **out, struct nd_errmsg *msg);
/* The frame at `at`; CORRUPT (no message): no valid frame begins there. *body_out is borrowed until
 * the next call. */
ND_CHECKED enum nd_err nd_wal_reader_frame(struct nd_wal_reader *reader, uint64_t at,
                                           struct nd_wal_frame *out, struct nd_slice *body_out,
                                           struct nd_errmsg *msg);

#endif
