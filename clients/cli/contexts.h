/* Named nodes with the credentials for them, in contexts.json:
 *
 *   {"selected": "prod",
 *    "contexts": {"prod": {"server": "broker.example:7941", "user": "ann", "password": "…",
 *                          "tls": true, "ca_file": "/…", "cert_file": "/…", "key_file": "/…",
 *                          "tls_server_name": "…"}}}
 *
 * in $NARAD_CONFIG_DIR, $XDG_CONFIG_HOME/narad or ~/.config/narad. Only the user may read the file
 * (0600, a directory that is made gets 0700), and it is replaced whole. */
#ifndef ND_CLI_CONTEXTS_H
#define ND_CLI_CONTEXTS_H

#include <jansson.h>

#include "storage/base/compiler.h"

/* The file as it is, checked; empty when there is none. Told when it fails. */
int cli_contexts_load(json_t **out);
/* Load, change, save, while no other command does. `change` returns CLI_OK to save. */
int cli_contexts_change(int (*change)(json_t *file, void *arg), void *arg);
/* The context of that name, and the selected one (name NULL); NULL: there is none. */
const json_t *cli_context_find(const json_t *file, const char *name);
/* A text member; NULL: not there. */
const char *cli_context_text(const json_t *context, const char *member);
bool cli_context_tls(const json_t *context);

#endif
