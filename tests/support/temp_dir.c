#include "tests/support/temp_dir.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "storage/base/alloc.h"

char *temp_dir_new(void)
{
    const char *base = getenv("TMPDIR");
    char *path = nd_xasprintf("%s/narad-test-XXXXXX", base == NULL ? "/tmp" : base);

    ND_ASSERT(mkdtemp(path) != NULL);
    return path;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status;
    (void)type;
    (void)walk;
    return remove(path);
}

void temp_dir_remove(char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    nd_free(path);
}
