/* Tools that work on the data of a stopped node. argv: what follows the command's name. Each
 * returns the exit status. */
#ifndef ND_TOOLS_H
#define ND_TOOLS_H

int nd_wal_repair_main(int argc, const char *const *argv);
int nd_dump_main(int argc, const char *const *argv);
int nd_verify_main(int argc, const char *const *argv);

#endif
