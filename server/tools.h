/* Tools that work on the data of a stopped node. */
#ifndef ND_TOOLS_H
#define ND_TOOLS_H

/* argv: what follows "wal-repair". Returns the exit status. */
int nd_wal_repair_main(int argc, const char *const *argv);

#endif
