/* The commands, one or a few a file: cmd_<name>.c. */
#ifndef ND_CLI_COMMANDS_H
#define ND_CLI_COMMANDS_H

#include "clients/cli/cli.h"

extern const struct cli_command cmd_topics_create, cmd_topics_list, cmd_topics_get,
    cmd_topics_alter, cmd_topics_delete;
extern const struct cli_command cmd_produce;
extern const struct cli_command cmd_consume;
extern const struct cli_command cmd_ack;
extern const struct cli_command cmd_sub;
extern const struct cli_command cmd_replay;
extern const struct cli_command cmd_bench;
extern const struct cli_command cmd_metrics;
extern const struct cli_command cmd_users_create, cmd_users_list, cmd_users_get, cmd_users_delete,
    cmd_users_grant, cmd_users_passwd;
extern const struct cli_command cmd_ctx_add, cmd_ctx_select, cmd_ctx_ls, cmd_ctx_rm;

#endif
