/* Texts of settings and the values they stand for. Pure. */
#ifndef ND_CONFIG_VALUE_H
#define ND_CONFIG_VALUE_H

#include "storage/base/duration.h"

#include "server/config.h"

/* Set the member that `setting` describes from its text. On failure the member keeps its value and
 * `why` says what was wrong with `text` and what is allowed, e.g. `must be a duration such as "10s"
 * (got "x")`. */
ND_CHECKED enum nd_err nd_setting_put(const struct nd_setting *setting,
                                      struct nd_settings *settings, const char *text,
                                      struct nd_errmsg *why);

#endif
