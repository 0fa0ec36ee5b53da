/* `narad serve`: settings, signals, and the life of one node. */
#ifndef ND_SERVE_H
#define ND_SERVE_H

/* argv: what follows "serve". Returns the exit status: 0 after a clean stop, 1 when it could not
 * start. */
int nd_serve_main(int argc, const char *const *argv);

#endif
