/*
 * ab.c - `railsock ab`: becomes the Python program that lies where the command's scripts are, and
 * tells it where this command is, because it runs `railsock run` for each leg.
 */
#include "tools/commands.h"

#include "tools/script.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Debian's: a python3 of a version manager's, earlier in PATH, may be a slow script. */
#define PYTHON "/usr/bin/python3"

int cmd_ab(int argc, char **argv)
{
    char *script = script_find("ab");
    char **command = calloc((size_t)argc + 4, sizeof(*command));
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (!script || !command || n < 0) {
        if (script)
            fprintf(stderr, "railsock ab: %s\n", strerror(errno));
        else
            script_missing("ab", "ab");
        free(script);
        free(command);
        return 125;
    }
    self[n] = '\0';
    setenv("RAILSOCK_COMMAND", self, 1);
    command[0] = (char *)"python3";
    command[1] = script;
    memcpy(command + 2, argv + 1, (size_t)argc * sizeof(*command)); /* with the NULL */
    execv(PYTHON, command);
    execvp(command[0], command);
    fprintf(stderr, "railsock ab: python3: %s; it needs Debian's python3\n", strerror(errno));
    free(script);
    free(command);
    return 125;
}
