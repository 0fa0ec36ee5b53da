/* The rules between settings, and what --dev changes. */
#ifndef ND_CONFIG_CHECK_H
#define ND_CONFIG_CHECK_H

#include "server/config.h"

/* Append one problem: "config: " before the first, "; " before the others. */
void nd_problem(struct nd_buf *problems, const char *format, ...) ND_PRINTF(2, 3);
/* Is the host of an address ("127.0.0.1", "[::1]", "localhost") this machine alone? */
bool nd_host_is_loopback(const char *host, size_t size);
/* Applies what --dev means and checks all rules. `launch->sources` entries are NULL for defaults.
 */
void nd_launch_check(struct nd_launch *launch, const char *host_name, struct nd_buf *problems,
                     struct nd_buf *warnings);

#endif
