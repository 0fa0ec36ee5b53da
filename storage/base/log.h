/* Structured logs: one line per event on standard output, JSON or text. Level, component, a fixed
 * event text, then key=value pairs, so that lines can be searched and counted. Repeated lines are
 * limited: of one (level, component, event) at most 10 a second; what was left out is said in the
 * next such line as `suppressed`. So what fails or is refused in numbers hides nothing that was
 * done.
 *
 *   nd_log(log, ND_LOG_WARN, "wal", "sync failed", "file=%s err=%s", name, nd_err_text(err));
 *
 * A pair is `key=value`; keys are [A-Za-z_][A-Za-z0-9_.-]*. An unquoted value reaches to the next
 * ` key=` or to the end, so it may hold spaces. A value that comes from outside (a client, a file)
 * could look like a pair itself: pass it through nd_log_quote(). Never payloads, never secrets.
 * @thread any */
#ifndef ND_BASE_LOG_H
#define ND_BASE_LOG_H

#include "storage/base/env.h"

enum nd_log_level { ND_LOG_DEBUG, ND_LOG_INFO, ND_LOG_WARN, ND_LOG_ERROR };
enum nd_log_format { ND_LOG_JSON, ND_LOG_TEXT };

struct nd_log;

/* `file` as with fdopen (1: standard output); lines are written whole with one write(2). */
struct nd_log *nd_log_new(int file, enum nd_log_level level, enum nd_log_format format);
void nd_log_free(struct nd_log *log);
/* Take the time from `env` (borrowed until free) instead of nd_env_posix(). Before the first line.
 */
void nd_log_set_env(struct nd_log *log, const struct nd_env *env);
void nd_log_set_level(struct nd_log *log, enum nd_log_level level);
bool nd_log_level_parse(const char *text, enum nd_log_level *out);   /* debug info warn error */
bool nd_log_format_parse(const char *text, enum nd_log_format *out); /* json text */

/* A NULL log drops the line. `pairs` formats to `key=value key="quoted value" …` or is "" or NULL:
 * in text it is printed as it is (control bytes escaped), in JSON every pair becomes a string
 * member. Text before the first pair becomes the member "text"; a key that the line has itself
 * (time, level, component, msg, suppressed) gets an underscore behind it. Bytes that are no UTF-8
 * become U+FFFD. Pairs are cut at 16 KiB. */
void nd_log(struct nd_log *log, enum nd_log_level level, const char *component, const char *event,
            const char *pairs, ...) ND_PRINTF(5, 6);

/* The same for a fault that is met again and again while it lasts. A line that was written before,
 * pairs and all, is left out until a minute has passed, or until the fault was not met for ten
 * seconds; what was left out is said in the next as `suppressed`. */
void nd_log_lasting(struct nd_log *log, enum nd_log_level level, const char *component,
                    const char *event, const char *pairs, ...) ND_PRINTF(5, 6);

/* The same for what must not be missing from a record of deeds: never limited. Only for lines whose
 * number the program bounds by other means. */
void nd_log_each(struct nd_log *log, enum nd_log_level level, const char *component,
                 const char *event, const char *pairs, ...) ND_PRINTF(5, 6);

/* Writes `text` in double quotes, with quotes, backslashes and control bytes escaped, for a %s of
 * `pairs`; cut to fit `out_size` (at least 3). Returns `out`. */
const char *nd_log_quote(char *out, size_t out_size, const char *text);

#endif
