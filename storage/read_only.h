/* An environment through which nothing can be changed, for tools that only look: files open for
 * reading whatever is asked, a sync does nothing, every other change is refused with UNSUPPORTED.
 */
#ifndef ND_READ_ONLY_H
#define ND_READ_ONLY_H

#include "storage/base/env.h"

struct nd_read_only {
    struct nd_env env; /* for the code that looks; valid while this struct stays where it is */
    const struct nd_env *base;
};

void nd_read_only_init(struct nd_read_only *out, const struct nd_env *base);

#endif
