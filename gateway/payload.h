/* What the bytes of a payload are (docs/HTTP_API.md), without touching them. Pure; any input. */
#ifndef ND_PAYLOAD_H
#define ND_PAYLOAD_H

#include "storage/base/buf.h"
#include "storage/base/slice.h"

#include "gateway/json_scan.h"

enum nd_payload_kind {
    ND_PAYLOAD_JSON,  /* UTF-8 and exactly one JSON value, at most 10,000 deep */
    ND_PAYLOAD_TEXT,  /* UTF-8 */
    ND_PAYLOAD_BYTES, /* neither */
};

enum nd_payload_kind nd_payload_classify(struct nd_slice bytes);
bool nd_utf8_valid(struct nd_slice bytes);
/* Append the bytes, U+FFFD for each that belongs to no UTF-8 sequence. */
void nd_utf8_put_mended(struct nd_buf *out, struct nd_slice bytes);
/* Append a JSON string of UTF-8 bytes, quotes included. */
void nd_json_put_string(struct nd_buf *out, struct nd_slice utf8);
void nd_base64_put(struct nd_buf *out, struct nd_slice bytes);
/* Standard alphabet, padded; line ends are passed over, the bits behind the last byte are not
 * looked at. False: it is not. At most size/4*3 bytes to `out`. */
bool nd_base64_get(struct nd_slice text, uint8_t *out, size_t *size_out);

#endif
