/*
 * script.c - see script.h.
 */
#include "tools/script.h"

#include "tools/self.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *script_find(const char *name)
{
    /* What is installed first: it may be installed below the sources. */
    static const char *const places[] = {"../share/railsock", "../tools", "../../tools"};
    const char *share = getenv("RAILSOCK_SHARE");
    char exe[PATH_MAX];
    char *path;

    if (share && *share) {
        if (asprintf(&path, "%s/%s", share, name) < 0)
            return NULL;
        if (access(path, X_OK) == 0)
            return path;
        free(path);
        return NULL;
    }
    if (!self_path(exe))
        return NULL;
    dirname(exe);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (asprintf(&path, "%s/%s/%s", exe, places[i], name) < 0)
            return NULL;
        if (access(path, X_OK) == 0)
            return path;
        free(path);
    }
    return NULL;
}

void script_missing(const char *command, const char *name)
{
    const char *share = getenv("RAILSOCK_SHARE");
    char *path = NULL;

    if (!share || !*share) {
        fprintf(stderr,
                "railsock %s: its script %s is not found; set RAILSOCK_SHARE to its folder\n",
                command, name);
    } else if (asprintf(&path, "%s/%s", share, name) > 0) {
        int err = access(path, X_OK) == 0 ? 0 : errno;

        fprintf(
            stderr,
            "railsock %s: %s: %s; RAILSOCK_SHARE is set, but not to the folder of the scripts\n",
            command, path, strerror(err));
        free(path);
    }
}
