#include "clients/cli/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "storage/base/alloc.h"
#include "storage/base/wipe.h"

#include "clients/cli/cli.h"

void cli_secret_free(char *secret)
{
    nd_free_secret(secret);
}

char *cli_secret_take(char *text)
{
    char *copy = nd_xstrdup(text);

    memset(text, 'x', strlen(text));
    return copy;
}

enum line_end { LINE_WHOLE, LINE_MISSING, LINE_TOO_LONG, LINE_INTERRUPTED, LINE_FAILED };

/* A byte at a time: what follows the line belongs to somebody else. `wakes`: a pipe that says a
 * byte when a signal came, or -1. */
static enum line_end line_read(int file, int wakes, char *line, size_t size_max)
{
    struct pollfd files[] = {{.fd = file, .events = POLLIN}, {.fd = wakes, .events = POLLIN}};
    size_t size = 0;
    char byte = 0;

    for (;;) {
        if (wakes >= 0 && poll(files, ND_ARRAY_SIZE(files), -1) < 0) {
            continue; /* a signal: the pipe says which */
        }
        if (files[1].revents != 0) {
            return LINE_INTERRUPTED;
        }
        ssize_t got = read(file, &byte, 1);
        if (got < 0 && errno != EINTR) {
            return LINE_FAILED;
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
    case LINE_INTERRUPTED: break; /* told */
    case LINE_FAILED: cli_fail("%s: %s", what, strerror(errno)); break;
    }
    return NULL;
}

char *cli_secret_line(const char *what)
{
    char line[CLI_SECRET_BYTES_MAX + 1];
    char *secret = line_judge(line_read(STDIN_FILENO, -1, line, CLI_SECRET_BYTES_MAX), line, what);

    nd_wipe(line, sizeof line);
    return secret;
}

/* --- at the terminal: its echo comes back whatever ends or stops the question --- */

static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};

/* Where the handler says which signal came; there is one question at a time. A byte in a pipe, not
 * a flag: it may come between a look and the wait, and on the thread of a connection. */
static volatile sig_atomic_t signals_to = -1;

struct question {
    const char *text;
    int terminal;
    int pipe[2]; /* read, write */
    struct termios normal;
    struct sigaction before[ND_ARRAY_SIZE(caught)];
    int error; /* errno of LINE_FAILED */
};

static void on_signal(int number)
{
    int error = errno;
    char byte = (char)number;

    (void)!write(signals_to, &byte, 1);
    errno = error;
}

static void signals_catch(struct question *question)
{
    struct sigaction action = {.sa_handler = on_signal}; /* no restart: see question_ask */

    signals_to = question->pipe[1];
    for (size_t i = 0; i < ND_ARRAY_SIZE(caught); i++) {
        sigaction(caught[i], NULL, &question->before[i]);
        if (question->before[i].sa_handler != SIG_IGN) { /* as with nohup */
            sigaction(caught[i], &action, NULL);
        }
    }
}

static void signals_release(struct question *question)
{
    for (size_t i = 0; i < ND_ARRAY_SIZE(caught); i++) {
        sigaction(caught[i], &question->before[i], NULL);
    }
    signals_to = -1;
}

/* Ask once. The signal that ended it, with everything as it was before; 0: none. */
static int question_ask(struct question *question, char *line, enum line_end *end)
{
    struct termios silent = question->normal;
    char number = 0;

    silent.c_lflag &= ~(tcflag_t)ECHO;
    silent.c_lflag |= ICANON | ISIG;
    signals_catch(question);
    *end = LINE_FAILED;
    /* In the background this stops until it is not; a signal that comes meanwhile makes it fail. */
    bool silenced = tcsetattr(question->terminal, TCSAFLUSH, &silent) == 0;
    question->error = errno;
    if (silenced) {
        dprintf(question->terminal, "%s: ", question->text);
        *end = line_read(question->terminal, question->pipe[0], line, CLI_SECRET_BYTES_MAX);
        question->error = errno;
        dprintf(question->terminal, "\n");
        while (tcsetattr(question->terminal, TCSAFLUSH, &question->normal) != 0 && errno == EINTR) {
        }
    }
    signals_release(question);
    /* One that came with the last byte counts, too. */
    if (read(question->pipe[0], &number, 1) != 1) {
        return 0;
    }
    nd_wipe(line, CLI_SECRET_BYTES_MAX + 1);
    *end = LINE_INTERRUPTED;
    return number;
}

/* As long as it is stopped and goes on, it is asked again; what ends others ends this. */
static enum line_end question_run(struct question *question, char *line)
{
    enum line_end end;

    for (int number; (number = question_ask(question, line, &end)) != 0;) {
        if (number != SIGTSTP) {
            cli_fail("interrupted");
        }
        raise(number); /* comes back after a stop, or when somebody else handles it */
        if (number != SIGTSTP) {
            break;
        }
    }
    return end;
}

char *cli_secret_ask(const char *text, bool *no_terminal)
{
    char line[CLI_SECRET_BYTES_MAX + 1] = "";
    struct question question = {.text = text};

    question.terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    *no_terminal = question.terminal < 0 || tcgetattr(question.terminal, &question.normal) != 0;
    if (*no_terminal || pipe2(question.pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
        question.error = errno;
        if (question.terminal >= 0) {
            close(question.terminal);
        }
        errno = question.error;
        return *no_terminal ? NULL : line_judge(LINE_FAILED, line, "password");
    }
    enum line_end end = question_run(&question, line);
    close(question.pipe[0]);
    close(question.pipe[1]);
    close(question.terminal);
    errno = question.error;
    char *secret = line_judge(end, line, "password");
    nd_wipe(line, sizeof line);
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
