/* Durations as people write them. @thread any */
#ifndef ND_BASE_DURATION_H
#define ND_BASE_DURATION_H

#include "storage/base/compiler.h"

/* Go's spelling: "10s", "500ms", "1h30m", "1.5h"; units ns us ms s m h. "0" needs no unit. False:
 * not a duration, negative, not whole milliseconds, or beyond 64 bits. */
ND_CHECKED bool nd_duration_parse(const char *text, uint64_t *ms_out);
/* "1m30s"; returns the length. */
size_t nd_duration_put(char *out, size_t out_size, uint64_t ms);

#endif
