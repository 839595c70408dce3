/*
 * railsock.c - the command: a table of subcommands.
 */
#include "tools/commands.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define VERSION "0.1"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what;
} commands[] = {
    {"run", cmd_run, "run a program with the library, its TCP connections may board a rail"},
    {"stat", cmd_stat, "show the connections of such programs: path, reason, bytes"},
    {"tap", cmd_tap, "write what goes over one of them as pcapng, for Wireshark"},
    {"check", cmd_check, "read the rules, show their errors, and which rule decides"},
    {"ab", cmd_ab, "compare TCP and the rail with a program of your own, in pairs"},
    {"doctor", cmd_doctor, "look whether this host, a program or a peer is ready for rails"},
    {"lab", cmd_lab, "boot small virtual hosts with a software RDMA device"},
};

static void usage(FILE *f)
{
    fputs("usage: railsock COMMAND [ARGUMENT...]\n\n", f);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        fprintf(f, "  %-8s%s\n", commands[i].name, commands[i].what);
    fputs(
        "\n`railsock help COMMAND` says more, as `railsock COMMAND --help` does; `railsock --version`\n"
        "tells the version.\n",
        f);
}

static void version(FILE *f)
{
    fputs("railsock " VERSION "\n", f);
}

/* A file that we open must not become standard input, output or error. What was closed still fails,
 * here and in what we execute. */
static void fill_standard(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
}

/* argv[0] is its name. -1: there is none of that name. */
static int run_command(int argc, char **argv)
{
    char full[32];

    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (strcmp(argv[0], commands[i].name) == 0) {
            snprintf(full, sizeof(full), "railsock %s", argv[0]);
            argv[0] = full; /* what getopt's messages begin with */
            return commands[i].run(argc, argv);
        }
    return -1;
}

/* What `help` is asked about, if it is anything. */
static int help(const char *name)
{
    char option[] = "--help", *words[] = {(char *)name, option, NULL};
    int status = name ? run_command(2, words) : command_help("railsock", usage);

    if (status < 0)
        fprintf(stderr, "railsock: there is no command %s\n", name);
    return status < 0 ? command_wrong("railsock") : status;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    int status;

    fill_standard();
    status = argc > 1 ? run_command(argc - 1, argv + 1) : -1;
    if (status >= 0)
        return status;
    if (strcmp(name, "help") == 0 && argc <= 3)
        return help(argv[2]);
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return command_help("railsock", usage);
    if (strcmp(name, "--version") == 0)
        return command_help("railsock", version);
    if (*name)
        fprintf(stderr, "railsock: there is no command %s\n", name);
    usage(stderr);
    return 2;
}
