/* Where a command connects, and as whom. Each answer is the first of: a flag, a variable, the
 * context (the one named by --ctx or NARAD_CTX, else the selected one), the default. When a server
 * is named by flag or variable, the selected context is left out whole: its password is for its own
 * server. */
#ifndef ND_CLI_CONNECT_H
#define ND_CLI_CONNECT_H

#include "storage/base/compiler.h"

#include "clients/c/include/narad/client.h"

/* What the command line says; borrowed from it. */
struct cli_flags {
    const char *server, *ctx, *user;
    char *password; /* by cli_secret_take */
    const char *ca_file, *cert_file, *key_file, *tls_server_name;
    bool password_stdin, tls;
};

/* What it came to; NULL where there is nothing. */
struct cli_target {
    char *server; /* NULL: the library's default */
    char *user, *password;
    bool tls;
    char *ca_file, *cert_file, *key_file, *tls_server_name;
};

/* "HOST:PORT" or "unix:PATH"? */
bool cli_names_a_node(const char *server);
/* Reads a password from standard input or the terminal when it must; warns about one that would
 * travel in clear. `command` is for messages. Told when it fails. */
int cli_target_choose(struct cli_target *out, const struct cli_flags *flags, const char *command);
void cli_target_release(struct cli_target *target);
/* Borrows from the target. */
struct narad_options cli_target_options(const struct cli_target *target);

#endif
