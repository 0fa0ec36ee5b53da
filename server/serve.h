/* `narad serve`: settings, signals, and the life of one node. */
#ifndef ND_SERVE_H
#define ND_SERVE_H

struct nd_log;

/* argv: what follows "serve". Returns the exit status: 0 after a clean stop, 1 when it could not
 * start. */
int nd_serve_main(int argc, const char *const *argv);

/* As many open files as the system lets this process have; a warning when those are few. */
void nd_files_limit_raise(struct nd_log *log);

#endif
