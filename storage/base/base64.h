/* Base64 of RFC 4648, section 4: the digits A-Z a-z 0-9 + /, four for three bytes, padded with "=".
 * @thread any */
#ifndef ND_BASE_BASE64_H
#define ND_BASE_BASE64_H

#include "storage/base/slice.h"

/* Of the text of `size` bytes, its NUL included. */
#define ND_BASE64_TEXT_SIZE(size) (((size) + 2) / 3 * 4 + 1)

/* `out` has room for ND_BASE64_TEXT_SIZE(bytes.size). */
void nd_base64_encode(struct nd_slice bytes, char *out);
/* 0 to 63; -1: no digit. */
int nd_base64_value(uint8_t digit);
/* Only what nd_base64_encode() makes: no line ends, all padding, zeros in the bits that padding
 * cuts off. `out` has room for text.size / 4 * 3 bytes; what is in it after false is part of them.
 */
ND_CHECKED bool nd_base64_decode(struct nd_slice text, uint8_t *out, size_t *size_out);

#endif
