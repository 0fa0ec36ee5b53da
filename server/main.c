/* narad: the node, its tools and its client in one program. */
#include "server/gateway_command.h"
#include "server/serve.h"
#include "server/tools.h"
#include "server/version.h"

#ifdef ND_HAS_CLI
#include "clients/cli/cli.h"
#endif

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static void usage(FILE *out)
{
    fputs("narad: a durable message broker\n"
          "\n"
          "Usage: narad <command> [options]\n"
          "\n"
          "Node:\n"
          "  serve        run a node (narad serve --dev for one on this machine; --help for "
          "settings)\n"
          "  gateway      the HTTP gateway alone, in front of a node elsewhere\n"
          "  wal-repair   cut the damaged end of a stopped node's log into quarantine\n"
          "  verify       check a stopped node's data directory, every byte of it\n"
          "  dump         show what files of a data directory hold\n"
          "  version      say which build this is\n"
          "  help         this text\n"
          "\n"
          "Client (narad <command> --help):\n",
          out);
#ifdef ND_HAS_CLI
    nd_cli_usage(out);
#endif
}

/* `words`: what follows the command. */
static int version(char *const *words)
{
    bool json = words[0] != NULL && strcmp(words[0], "--json") == 0;

    if (words[0] != NULL && (strcmp(words[0], "--help") == 0 || strcmp(words[0], "-h") == 0)) {
        fputs("Usage: narad version [--json]\n\nSays which build this is.\n", stdout);
        return 0;
    }
    if (words[json ? 1 : 0] != NULL) {
        fprintf(stderr, "narad: version: unexpected \"%s\"; only --json is taken\n",
                words[json ? 1 : 0]);
        return 1;
    }
    if (json) {
        printf("{\"version\":\"%s\",\"build\":\"%s\"}\n", nd_version(), nd_version_long());
    } else {
        printf("narad %s\n", nd_version_long());
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *command = argc < 2 ? "help" : argv[1];
    if (argc > 2 && strcmp(command, "client") == 0 && strcmp(argv[2], "version") == 0) {
        command = "version";
    }
    if (strcmp(command, "serve") == 0) {
        return nd_serve_main(argc - 2, (const char *const *)(argv + 2));
    }
    if (strcmp(command, "gateway") == 0) {
        return nd_gateway_main(argc - 2, (const char *const *)(argv + 2));
    }
    if (strcmp(command, "wal-repair") == 0) {
        return nd_wal_repair_main(argc - 2, (const char *const *)(argv + 2));
    }
    if (strcmp(command, "verify") == 0) {
        return nd_verify_main(argc - 2, (const char *const *)(argv + 2));
    }
    if (strcmp(command, "dump") == 0) {
        return nd_dump_main(argc - 2, (const char *const *)(argv + 2));
    }
    if (strcmp(command, "version") == 0 || strcmp(command, "--version") == 0) {
        return version(argv + (strcmp(argv[1], "client") == 0 ? 3 : 2));
    }
    if (strcmp(command, "help") == 0 || strcmp(command, "--help") == 0 ||
        strcmp(command, "-h") == 0) {
        usage(stdout);
        return 0;
    }
#ifdef ND_HAS_CLI
    if (nd_cli_knows(command)) {
        return nd_cli_main(argc, argv);
    }
#endif
    fprintf(stderr, "narad: unknown command \"%s\"; `narad help` lists them\n", command);
    return 1;
}
