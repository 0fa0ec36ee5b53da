/* What this build calls itself. ND_VERSION and ND_REVISION come from the build. */
#ifndef ND_VERSION_H
#define ND_VERSION_H

/* "0.1.0" */
const char *nd_version(void);
/* "0.1.0 (1a2b3c4d5e6f)"; without the revision where the build did not know it. */
const char *nd_version_long(void);

#endif
