/* Frames and file headers of the write-ahead log as bytes (W2, W3); drawn in storage/README.md.
 * Private to the log and its tools. */
#ifndef ND_WAL_FRAME_H
#define ND_WAL_FRAME_H

#include "storage/base/err.h"
#include "storage/base/slice.h"

enum {
    ND_WAL_BLOCK = 4096, /* frames begin on it; the file header is one */
    ND_WAL_FRAME_HEADER_SIZE = 48,
};

struct nd_wal_frame {
    uint64_t epoch;          /* of the file */
    uint64_t at;             /* position in the file; mixed into the CRC, not stored */
    uint64_t first_sequence; /* of an empty frame: the next one */
    uint64_t synced_to;      /* position up to which a sync had returned */
    uint32_t body_size;
    uint32_t sequences; /* 0: an empty frame */
};

/* Bytes that a frame with such a body takes in the file. */
static inline uint64_t nd_wal_frame_bytes(uint64_t body_size)
{
    return (ND_WAL_FRAME_HEADER_SIZE + body_size + ND_WAL_BLOCK - 1) / ND_WAL_BLOCK * ND_WAL_BLOCK;
}

/* A frame being built in `data`, which has nd_wal_frame_bytes(). */
struct nd_wal_frame_writer {
    uint8_t *data;
    size_t size;
    uint32_t crc;
};
void nd_wal_frame_begin(struct nd_wal_frame_writer *writer, uint8_t *data,
                        const struct nd_wal_frame *frame);
/* Copy a piece of the body in; the CRC is taken on the way, while the bytes are in the cache. */
void nd_wal_frame_add(struct nd_wal_frame_writer *writer, struct nd_slice piece);
/* Write CRC and padding; returns the bytes to write to the file. */
size_t nd_wal_frame_end(struct nd_wal_frame_writer *writer);

/* Read the header that begins at position `at`; false when it is none of this epoch. Its CRC is not
 * checked yet. */
bool nd_wal_frame_get(const uint8_t *header, uint64_t epoch, uint64_t at, struct nd_wal_frame *out);
/* The epoch that a frame header claims, for the repair of a file that lost its own. */
uint64_t nd_wal_frame_epoch(const uint8_t *header);
/* Check header and body, which lie in one piece at `data`. */
bool nd_wal_frame_check(const uint8_t *data, const struct nd_wal_frame *frame);

struct nd_wal_header {
    uint8_t store_id[16];
    uint64_t epoch, writer;
    uint64_t first_sequence; /* lowest that this file may hold; its name */
    uint64_t previous_end;   /* nothing beyond it in any older file is ever replayed */
    uint64_t file_bytes;
};
void nd_wal_header_put(uint8_t block[ND_WAL_BLOCK], const struct nd_wal_header *header);
/* CORRUPT: not a header; UNSUPPORTED: of a newer format. */
ND_CHECKED enum nd_err nd_wal_header_get(const uint8_t block[ND_WAL_BLOCK],
                                         struct nd_wal_header *out);

#endif
