/* Compression of frames: the one home of zstd. A compressor keeps its memory between frames; it
 * belongs to one thread. Frames name their codec, so a changed setting never makes old frames
 * unreadable (I-41). */
#ifndef ND_COMPRESS_H
#define ND_COMPRESS_H

#include "storage/base/err.h"
#include "storage/base/slice.h"

enum nd_codec { ND_CODEC_NONE = 0, ND_CODEC_ZSTD = 1 };
enum nd_level { ND_LEVEL_FASTEST, ND_LEVEL_DEFAULT, ND_LEVEL_BETTER, ND_LEVEL_BEST };

struct nd_compressor;

struct nd_compressor *nd_compressor_new(void);
void nd_compressor_free(struct nd_compressor *compressor); /* NULL passes */
/* Compress `in` into `out`. Returns the bytes written, or 0 when the result is not smaller than
 * `in` or does not fit: store it as it is then. @thread the compressor's */
size_t nd_compress(struct nd_compressor *compressor, enum nd_level level, struct nd_slice in,
                   uint8_t *out, size_t out_size);
/* Decompress exactly `out_size` bytes; CORRUPT when `in` is anything else. @thread any */
ND_CHECKED enum nd_err nd_decompress(struct nd_slice in, uint8_t *out, size_t out_size);

#endif
