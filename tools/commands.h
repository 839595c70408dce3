/*
 * commands.h - the subcommands of `railsock`, one function each. argv[0] is the
 * subcommand's own name; the return value is the process's exit status.
 */
#ifndef RAILSOCK_COMMANDS_H
#define RAILSOCK_COMMANDS_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* For what asks for help: shows it, and says if it could not be written. The exit status. */
static inline int command_help(const char *command, void (*usage)(FILE *))
{
    usage(stdout);
    if (fflush(stdout) == 0)
        return 0;
    fprintf(stderr, "%s: %s\n", command, strerror(errno));
    return 1;
}

/* For what was called wrongly, behind what is wrong. The exit status. */
static inline int command_wrong(const char *command)
{
    fprintf(stderr, "Try `%s --help`.\n", command);
    return 2;
}

/* Whether standard output can be written to; what was closed for us can only be read (railsock.c).
 * False: errno. */
static inline bool command_has_output(void)
{
    if ((fcntl(STDOUT_FILENO, F_GETFL) & O_ACCMODE) != O_RDONLY)
        return true;
    errno = EBADF;
    return false;
}

int cmd_run(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_tap(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_ab(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_lab(int argc, char **argv);

#endif
