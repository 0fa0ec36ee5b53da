/* Passwords on their way in. They are kept in memory of their own, overwritten when freed, and
 * never pass through stdio. */
#ifndef ND_CLI_SECRET_H
#define ND_CLI_SECRET_H

#include "storage/base/compiler.h"

enum { CLI_SECRET_BYTES_MAX = 1024 };

/* A copy of `text`; `text` itself, an argument of the process that ps shows, is overwritten. */
char *cli_secret_take(char *text) ND_CHECKED;
/* The next line of standard input, up to which exactly it is read. NULL: told; `what` is for the
 * message. */
char *cli_secret_line(const char *what) ND_CHECKED;
/* Ask at the terminal, without echo. NULL: told, or there is no terminal and *no_terminal is set.
 */
char *cli_secret_ask(const char *question, bool *no_terminal) ND_CHECKED;
/* A new password, by a line of standard input or asked for twice at the terminal. NULL: told. */
char *cli_secret_new(const char *username, bool by_line) ND_CHECKED;
void cli_secret_free(char *secret); /* NULL passes */

#endif
