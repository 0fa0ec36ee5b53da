/* Texts of settings and the values they stand for. Pure. */
#ifndef ND_CONFIG_VALUE_H
#define ND_CONFIG_VALUE_H

#include "server/config.h"

/* Go's spelling: "10s", "500ms", "1h30m", "1.5h"; units ns us ms s m h. "0" needs no unit. False:
 * not a duration, negative, not whole milliseconds, or beyond 64 bits. */
ND_CHECKED bool nd_duration_parse(const char *text, uint64_t *ms_out);
size_t nd_duration_put(char *out, size_t out_size, uint64_t ms); /* "1m30s" */
/* Set the member that `setting` describes from its text. On failure the member keeps its value and
 * `why` says what was wrong with `text` and what is allowed, e.g. `must be a duration such as "10s"
 * (got "x")`. */
ND_CHECKED enum nd_err nd_setting_put(const struct nd_setting *setting,
                                      struct nd_settings *settings, const char *text,
                                      struct nd_errmsg *why);

#endif
