#include "storage/compress.h"

#include <zstd.h>

#include "storage/base/alloc.h"

struct nd_compressor {
    ZSTD_CCtx *context;
};

/* The four levels of the settings, as zstd counts them. */
static const int zstd_levels[] = {
    [ND_LEVEL_FASTEST] = 1,
    [ND_LEVEL_DEFAULT] = 3,
    [ND_LEVEL_BETTER] = 6,
    [ND_LEVEL_BEST] = 11,
};

struct nd_compressor *nd_compressor_new(void)
{
    struct nd_compressor *compressor = nd_xcalloc(1, sizeof *compressor);

    compressor->context = ZSTD_createCCtx();
    ND_ASSERT(compressor->context != NULL);
    return compressor;
}

void nd_compressor_free(struct nd_compressor *compressor)
{
    if (compressor != NULL) {
        (void)ZSTD_freeCCtx(compressor->context);
        nd_free(compressor);
    }
}

size_t nd_compress(struct nd_compressor *compressor, enum nd_level level, struct nd_slice in,
                   uint8_t *out, size_t out_size)
{
    size_t size = ZSTD_compressCCtx(compressor->context, out, ND_MIN(out_size, in.size), in.data,
                                    in.size, zstd_levels[level]);

    return ZSTD_isError(size) != 0 || size >= in.size ? 0 : size;
}

enum nd_err nd_decompress(struct nd_slice in, uint8_t *out, size_t out_size)
{
    size_t size = ZSTD_decompress(out, out_size, in.data, in.size);

    return ZSTD_isError(size) != 0 || size != out_size ? ND_ERR_CORRUPT : ND_OK;
}
