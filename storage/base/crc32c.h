/* CRC32C (Castagnoli), with the processor's instruction where it has one and a table elsewhere.
 * nd_crc32c(0, "123456789", 9) == 0xE3069283. Chains: nd_crc32c(nd_crc32c(0, a), b) covers a then
 * b. */
#ifndef ND_BASE_CRC32C_H
#define ND_BASE_CRC32C_H

#include "storage/base/compiler.h"

uint32_t nd_crc32c(uint32_t crc, const void *data, size_t size);
uint32_t nd_crc32c_portable(uint32_t crc, const void *data, size_t size); /* for tests */

#endif
