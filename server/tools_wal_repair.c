#include <stdio.h>

#include "server/tools.h"

int nd_wal_repair_main(int argc, const char *const *argv)
{
    (void)argc;
    (void)argv;
    fprintf(stderr, "narad: wal-repair: not in this build\n");
    return 1;
}
