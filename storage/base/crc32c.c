/* CRC32C in three ways: the SSE4.2 instruction, the ARMv8 one, and eight tables ("slicing by 8").
 *
 * The instruction has a latency of three cycles and a throughput of one, so long inputs are worked
 * as three neighbouring streams whose results are then joined. Joining means multiplying a stream's
 * state by x^(8 * bytes that follow it) modulo the polynomial: one carry-less multiplication with a
 * constant and one CRC instruction. For a distance of d bytes the constant is x^(8d - 33) mod P,
 * bit-reflected (32 of the 33 are the CRC instruction's own shift, 1 is the reflected product's).
 */
#include "storage/base/crc32c.h"

#include <string.h>

#include "storage/base/codec.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#ifndef __clang__
#include <arm_acle.h>
#endif
#endif

/* A CRC is linear: the entry of a byte is the sum of the entries of its bits. So a table is given
 * by eight words, and the compiler writes out the 256. Word b of line k: bit b followed by k zero
 * bytes. */
#define BIT(i, b, word) (((i) >> (b)&1) != 0 ? (word) : 0u)
#define ENTRY(i, w0, w1, w2, w3, w4, w5, w6, w7)                                                   \
    (BIT(i, 0, w0) ^ BIT(i, 1, w1) ^ BIT(i, 2, w2) ^ BIT(i, 3, w3) ^ BIT(i, 4, w4) ^               \
     BIT(i, 5, w5) ^ BIT(i, 6, w6) ^ BIT(i, 7, w7))
#define ENTRIES_4(i, ...)                                                                          \
    ENTRY(i, __VA_ARGS__), ENTRY((i) + 1, __VA_ARGS__), ENTRY((i) + 2, __VA_ARGS__),               \
        ENTRY((i) + 3, __VA_ARGS__)
#define ENTRIES_16(i, ...)                                                                         \
    ENTRIES_4(i, __VA_ARGS__), ENTRIES_4((i) + 4, __VA_ARGS__), ENTRIES_4((i) + 8, __VA_ARGS__),   \
        ENTRIES_4((i) + 12, __VA_ARGS__)
#define ENTRIES_64(i, ...)                                                                         \
    ENTRIES_16(i, __VA_ARGS__), ENTRIES_16((i) + 16, __VA_ARGS__),                                 \
        ENTRIES_16((i) + 32, __VA_ARGS__), ENTRIES_16((i) + 48, __VA_ARGS__)
#define TABLE(...)                                                                                 \
    {                                                                                              \
        ENTRIES_64(0, __VA_ARGS__), ENTRIES_64(64, __VA_ARGS__), ENTRIES_64(128, __VA_ARGS__),     \
            ENTRIES_64(192, __VA_ARGS__)                                                           \
    }

static const uint32_t tables[8][256] = {
    TABLE(0xf26b8303u, 0xe13b70f7u, 0xc79a971fu, 0x8ad958cfu, 0x105ec76fu, 0x20bd8edeu, 0x417b1dbcu,
          0x82f63b78u),
    TABLE(0x13a29877u, 0x274530eeu, 0x4e8a61dcu, 0x9d14c3b8u, 0x3fc5f181u, 0x7f8be302u, 0xff17c604u,
          0xfbc3faf9u),
    TABLE(0xa541927eu, 0x4f6f520du, 0x9edea41au, 0x38513ec5u, 0x70a27d8au, 0xe144fb14u, 0xc76580d9u,
          0x8b277743u),
    TABLE(0xdd45aab8u, 0xbf672381u, 0x7b2231f3u, 0xf64463e6u, 0xe964b13du, 0xd725148bu, 0xaba65fe7u,
          0x52a0c93fu),
    TABLE(0x38116facu, 0x7022df58u, 0xe045beb0u, 0xc5670b91u, 0x8f2261d3u, 0x1ba8b557u, 0x37516aaeu,
          0x6ea2d55cu),
    TABLE(0xef306b19u, 0xdb8ca0c3u, 0xb2f53777u, 0x6006181fu, 0xc00c303eu, 0x85f4168du, 0x0e045bebu,
          0x1c08b7d6u),
    TABLE(0x68032cc8u, 0xd0065990u, 0xa5e0c5d1u, 0x4e2dfd53u, 0x9c5bfaa6u, 0x3d5b83bdu, 0x7ab7077au,
          0xf56e0ef4u),
    TABLE(0x493c7d27u, 0x9278fa4eu, 0x211d826du, 0x423b04dau, 0x847609b4u, 0x0d006599u, 0x1a00cb32u,
          0x34019664u),
};

uint32_t nd_crc32c_portable(uint32_t crc, const void *data, size_t size)
{
    const uint8_t *at = data;

    crc = ~crc;
    for (; size >= 8; at += 8, size -= 8) {
        uint64_t word = nd_get_u64(at) ^ crc;
        crc = tables[7][word & 255] ^ tables[6][word >> 8 & 255] ^ tables[5][word >> 16 & 255] ^
              tables[4][word >> 24 & 255] ^ tables[3][word >> 32 & 255] ^
              tables[2][word >> 40 & 255] ^ tables[1][word >> 48 & 255] ^ tables[0][word >> 56];
    }
    for (; size > 0; at++, size--) {
        crc = crc >> 8 ^ tables[0][(crc ^ *at) & 255];
    }
    return ~crc;
}

#if defined(__x86_64__)

enum { SHORT = 336, LONG = 1360 }; /* bytes of one of the three streams, multiples of 8 */

static uint64_t load_u64(const uint8_t *p)
{
    uint64_t word;

    memcpy(&word, p, sizeof word);
    return word;
}

/* One state over three streams of `length` bytes; `by_1` and `by_2` are the constants for a
 * distance of one stream and of two. */
__attribute__((target("sse4.2,pclmul"))) static uint64_t
three_streams(uint64_t crc, const uint8_t *at, size_t length, uint32_t by_1, uint32_t by_2)
{
    uint64_t a = crc, b = 0, c = 0;

    for (size_t i = 0; i < length - 8; i += 8) {
        a = _mm_crc32_u64(a, load_u64(at + i));
        b = _mm_crc32_u64(b, load_u64(at + length + i));
        c = _mm_crc32_u64(c, load_u64(at + 2 * length + i));
    }
    a = _mm_crc32_u64(a, load_u64(at + length - 8));
    b = _mm_crc32_u64(b, load_u64(at + 2 * length - 8));

    /* The shifted states join the last word of the third stream: its CRC instruction reduces them.
     */
    __m128i a_shifted =
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)a), _mm_cvtsi64_si128((int64_t)by_2), 0);
    __m128i b_shifted =
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)b), _mm_cvtsi64_si128((int64_t)by_1), 0);
    uint64_t joined = (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(a_shifted, b_shifted));
    return _mm_crc32_u64(c, load_u64(at + 3 * length - 8) ^ joined);
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t
crc32c_sse42(uint32_t crc, const uint8_t *at, size_t size)
{
    uint64_t state = (uint32_t)~crc;

    for (; size >= 3 * LONG; at += 3 * LONG, size -= 3 * LONG) {
        state = three_streams(state, at, LONG, 0x3f70cc6fu, 0x5aa1f3cfu);
    }
    for (; size >= 3 * SHORT; at += 3 * SHORT, size -= 3 * SHORT) {
        state = three_streams(state, at, SHORT, 0xa60ce07bu, 0xcec3662eu);
    }
    for (; size >= 8; at += 8, size -= 8) {
        state = _mm_crc32_u64(state, load_u64(at));
    }
    for (; size > 0; at++, size--) {
        state = _mm_crc32_u8((uint32_t)state, *at);
    }
    return ~(uint32_t)state;
}

uint32_t nd_crc32c(uint32_t crc, const void *data, size_t size)
{
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) {
        return crc32c_sse42(crc, data, size);
    }
    return nd_crc32c_portable(crc, data, size);
}

#elif defined(__aarch64__) && defined(__linux__)

enum { HWCAP_BIT_CRC32 = 1 << 7 };

#ifdef __clang__
#define CRC_TARGET               __attribute__((target("crc")))
#define crc_instruction_8(s, v)  __builtin_arm_crc32cb(s, v)
#define crc_instruction_64(s, v) __builtin_arm_crc32cd(s, v)
#else
#define CRC_TARGET               __attribute__((target("+crc")))
#define crc_instruction_8(s, v)  __crc32cb(s, v)
#define crc_instruction_64(s, v) __crc32cd(s, v)
#endif

CRC_TARGET static uint32_t crc32c_armv8(uint32_t crc, const uint8_t *at, size_t size)
{
    uint32_t state = ~crc;

    for (; size >= 8; at += 8, size -= 8) {
        state = crc_instruction_64(state, nd_get_u64(at));
    }
    for (; size > 0; at++, size--) {
        state = crc_instruction_8(state, *at);
    }
    return ~state;
}

uint32_t nd_crc32c(uint32_t crc, const void *data, size_t size)
{
    if ((getauxval(AT_HWCAP) & HWCAP_BIT_CRC32) != 0) {
        return crc32c_armv8(crc, data, size);
    }
    return nd_crc32c_portable(crc, data, size);
}

#else

uint32_t nd_crc32c(uint32_t crc, const void *data, size_t size)
{
    return nd_crc32c_portable(crc, data, size);
}

#endif
