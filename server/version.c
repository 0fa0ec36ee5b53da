#include "server/version.h"

#ifndef ND_REVISION
#define ND_REVISION ""
#endif

const char *nd_version(void)
{
    return ND_VERSION;
}

const char *nd_version_long(void)
{
    return sizeof ND_REVISION > 1 ? ND_VERSION " (" ND_REVISION ")" : ND_VERSION;
}
