/* Where a JSON value ends: the scanner behind payload and json_in. It looks at every byte once,
 * keeps one bit for each open bracket and never recurses. Bytes of strings are not checked for
 * UTF-8. Pure; any input. */
#ifndef ND_JSON_SCAN_H
#define ND_JSON_SCAN_H

#include "storage/base/slice.h"

enum { ND_JSON_DEPTH_MAX = 10000 };

/* The JSON value that begins at *at_io, blanks before it skipped: true, *value_out its span and
 * *at_io behind it. False: none there; *at_io is at the byte that does not fit (text.size: the text
 * ended) and *why_out, unless NULL, says what was looked for: "in string literal". */
bool nd_json_scan_why(struct nd_slice text, size_t *at_io, struct nd_slice *value_out,
                      const char **why_out);
bool nd_json_scan(struct nd_slice text, size_t *at_io, struct nd_slice *value_out);
/* The first byte from `at` on that is no blank; text.size: none. */
size_t nd_json_skip_blanks(struct nd_slice text, size_t at);

#endif
