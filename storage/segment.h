/* One file of a partition log (F6): a header block, then frames. Frames are appended in rounds; a
 * round begins on a 4 KiB boundary and is filled up with zeros to the next, so that a block that
 * holds verified bytes is never written again, and a round is read back with ND_OPEN_DIRECT as it
 * lies.
 *
 * FILE, little-endian
 *      0  header, and once more at 2048, so that damage to one does not take the file:
 *         u32 magic "NDSG" | u32 crc32c of the next 36 | u32 format 1 | store id 16 |
 *         u64 base offset | u64 epoch
 *         base offset: where the segment before it ended; a gap may follow before the first frame
 *   4096  frames (frame.h); offsets ascend; zeros to the next 4 KiB boundary after a round
 *
 * No locks here: plog.h says who may call. */
#ifndef ND_SEGMENT_H
#define ND_SEGMENT_H

#include <stdatomic.h>

#include "storage/base/env.h"

#include "storage/frame.h"
#include "storage/index.h"

enum { ND_SEGMENT_HEADER_SIZE = 4096, ND_SEGMENT_NAME_SIZE = 32 };

#define ND_SEGMENT_LOG   ".log"
#define ND_SEGMENT_INDEX ".index"
#define ND_SEGMENT_BAD   ".bad"  /* never verified, and no WAL holds it: kept for a human */
#define ND_SEGMENT_GONE  ".gone" /* on its way out */

/* What is known of a file. Counted: the list of the partition log holds one reference, each reader
 * one. Fields change only while the log's lock is held. */
struct nd_segment {
    _Atomic uint32_t refs;
    struct nd_segment_summary summary;
    struct nd_index index;
};

struct nd_segment *nd_segment_new(const uint8_t store_id[16], uint64_t base_offset, uint64_t epoch);
struct nd_segment *nd_segment_ref(struct nd_segment *segment);
void nd_segment_unref(struct nd_segment *segment); /* NULL passes; files stay as they are */

/* Where a valid frame lies in the file. */
struct nd_segment_frame {
    uint64_t at;
    struct nd_frame_header header;
};

/* Count a frame that follows all others. */
void nd_segment_add(struct nd_segment *segment, const struct nd_segment_frame *frame,
                    uint32_t stride);

/* "<dir>/<20-digit base offset><suffix>"; nd_free. */
char *nd_segment_path(const char *dir, uint64_t base_offset, const char *suffix) ND_CHECKED;
/* Is `name` one of ours? Sets the base offset and the suffix, which points into `name`. */
bool nd_segment_name_parse(const char *name, uint64_t *base_out, const char **suffix_out);

/* The header block, ND_SEGMENT_HEADER_SIZE bytes. */
void nd_segment_header_put(uint8_t *out, const struct nd_segment_summary *summary);
/* One of the two copies in the header block: store id, base offset and epoch of `out`; false: it is
 * damaged. */
enum { ND_SEGMENT_HEADER_COPIES = 2 };
bool nd_segment_header_get(struct nd_slice block, int copy, struct nd_segment_summary *out);
/* Read it: store id, base offset and epoch of `out` are set. CORRUPT: neither copy is whole. */
ND_CHECKED enum nd_err nd_segment_header_read(const struct nd_env *env, int file,
                                              struct nd_segment_summary *out,
                                              struct nd_errmsg *msg);

/* A walk over the valid frames of [from, to) of a file. Bytes that are no valid frame are searched
 * for the next one. */
struct nd_segment_scan {
    const struct nd_env *env;
    int file;
    uint64_t epoch;
    uint64_t from, to;
    uint64_t offset_min; /* frames that begin below it do not count */
    /* Every frame whose checksum holds, with its bytes; `damaged`: other bytes than a round's
     * padding lie between it and the frame before. False stops the walk. */
    bool (*frame)(void *arg, const struct nd_segment_frame *frame, const uint8_t *bytes,
                  bool damaged);
    void *arg;
    /* out */
    uint64_t end; /* behind the last valid frame; `from` when there is none */
    bool torn;    /* bytes other than zeros follow it */
};
ND_CHECKED enum nd_err nd_segment_scan(struct nd_segment_scan *scan, struct nd_errmsg *msg);

/* Read frames, and with the first of a file its header, back from the device and compare them with
 * what was written (F3): through ND_OPEN_DIRECT, or, where that does not exist, after dropping the
 * pages. CORRUPT: the device holds something else. *verified_out of the frames, from the first on,
 * are good whatever is returned. */
ND_CHECKED enum nd_err nd_segment_verify(const struct nd_env *env, const char *path,
                                         const struct nd_segment_summary *summary,
                                         const struct nd_segment_frame *frames, uint32_t count,
                                         uint32_t *verified_out, struct nd_errmsg *msg);

/* Store the index of a sealed segment beside it. Not synced: it is made again when it is missing.
 */
ND_CHECKED enum nd_err nd_segment_index_store(const struct nd_env *env, const char *dir,
                                              const struct nd_segment *segment,
                                              struct nd_errmsg *msg);
/* Fill summary and index of a segment, whose ids are set, from its stored index; CORRUPT or
 * NOT_FOUND when it has to be rebuilt. */
ND_CHECKED enum nd_err nd_segment_index_load(const struct nd_env *env, const char *dir,
                                             struct nd_segment *segment, struct nd_errmsg *msg);

#endif
