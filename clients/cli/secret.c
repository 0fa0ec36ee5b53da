#include "clients/cli/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "storage/base/alloc.h"

#include "clients/cli/cli.h"

void cli_secret_free(char *secret)
{
    if (secret != NULL) {
        explicit_bzero(secret, strlen(secret));
        nd_free(secret);
    }
}

char *cli_secret_take(char *text)
{
    char *copy = nd_xstrdup(text);

    memset(text, 'x', strlen(text));
    return copy;
}

enum line_end { LINE_WHOLE, LINE_MISSING, LINE_TOO_LONG, LINE_INTERRUPTED, LINE_FAILED };

enum { KEY_INTERRUPT = 3 };

/* A byte at a time: what follows the line belongs to somebody else. */
static enum line_end line_read(int file, char *line, size_t size_max, bool terminal)
{
    size_t size = 0;
    char byte = 0;

    for (;;) {
        ssize_t got = read(file, &byte, 1);
        if (got < 0 && errno != EINTR) {
            return LINE_FAILED;
        }
        if (terminal && got == 1 && byte == KEY_INTERRUPT) {
            return LINE_INTERRUPTED;
        }
        if (got == 0 || (got == 1 && byte == '\n')) {
            break;
        }
        if (got == 1 && size == size_max) {
            return LINE_TOO_LONG;
        }
        if (got == 1) {
            line[size++] = byte;
        }
    }
    line[size] = '\0';
    return size == 0 || strlen(line) != size ? LINE_MISSING : LINE_WHOLE;
}

static char *line_judge(enum line_end end, const char *line, const char *what)
{
    switch (end) {
    case LINE_WHOLE: return nd_xstrdup(line);
    case LINE_MISSING: cli_fail("%s: no password came", what); break;
    case LINE_TOO_LONG: cli_fail("%s: longer than %d bytes", what, CLI_SECRET_BYTES_MAX); break;
    case LINE_INTERRUPTED: cli_fail("interrupted"); break;
    case LINE_FAILED: cli_fail("%s: %s", what, strerror(errno)); break;
    }
    return NULL;
}

char *cli_secret_line(const char *what)
{
    char line[CLI_SECRET_BYTES_MAX + 1];
    char *secret =
        line_judge(line_read(STDIN_FILENO, line, CLI_SECRET_BYTES_MAX, false), line, what);

    explicit_bzero(line, sizeof line);
    return secret;
}

char *cli_secret_ask(const char *question, bool *no_terminal)
{
    char line[CLI_SECRET_BYTES_MAX + 1];
    int terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    struct termios normal, silent;

    *no_terminal = terminal < 0 || tcgetattr(terminal, &normal) != 0;
    if (*no_terminal) {
        if (terminal >= 0) {
            close(terminal);
        }
        return NULL;
    }
    silent = normal;
    /* Without signals too: an interrupt is read as a byte, and the echo comes back first. */
    silent.c_lflag &= ~(tcflag_t)(ECHO | ISIG);
    silent.c_lflag |= ICANON;
    silent.c_cc[VEOL] = KEY_INTERRUPT; /* ends the line, as Enter does */
    tcsetattr(terminal, TCSAFLUSH, &silent);
    dprintf(terminal, "%s: ", question);
    enum line_end end = line_read(terminal, line, CLI_SECRET_BYTES_MAX, true);
    dprintf(terminal, "\n");
    tcsetattr(terminal, TCSAFLUSH, &normal);
    close(terminal);
    char *secret = line_judge(end, line, "password");
    explicit_bzero(line, sizeof line);
    return secret;
}

char *cli_secret_new(const char *username, bool by_line)
{
    char question[128];
    bool no_terminal = false;

    if (by_line) {
        return cli_secret_line("--user-password-stdin");
    }
    snprintf(question, sizeof question, "New password of %.64s", username);
    char *first = cli_secret_ask(question, &no_terminal);
    if (first == NULL) {
        if (no_terminal) {
            cli_fail("no terminal to ask for the password: give --user-password-stdin and a line "
                     "of standard input");
        }
        return NULL;
    }
    char *second = cli_secret_ask("Again", &no_terminal);
    bool same = second != NULL && strcmp(first, second) == 0;
    if (second != NULL && !same) {
        cli_fail("the two are not the same");
    }
    cli_secret_free(second);
    if (!same) {
        cli_secret_free(first);
        return NULL;
    }
    return first;
}
