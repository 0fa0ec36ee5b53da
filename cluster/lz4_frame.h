/* Is an LZ4 frame whole? libraft 0.15.0 compresses its snapshots and, given a frame that was cut,
 * asks its library for more for ever. Nothing is unpacked here; its checksums find what is wrong
 * inside a whole one.
 *
 * A FRAME, little-endian: u32 magic | u8 flags | u8 block size | u64 content size (flag 8) | u32
 * dictionary (flag 1) | u8 checksum | blocks: u32 size, highest bit: stored; the bytes; u32
 * checksum (flag 16) | u32 0 | u32 checksum (flag 4). */
#ifndef ND_LZ4_FRAME_H
#define ND_LZ4_FRAME_H

#include "storage/base/slice.h"

bool nd_lz4_frame_begins(struct nd_slice in); /* by its magic */
/* It is one frame from its first byte to its last. */
bool nd_lz4_frame_is_whole(struct nd_slice in);

#endif
