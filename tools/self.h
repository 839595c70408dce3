/*
 * self.h - the command's own file, which what belongs to it is found from.
 */
#ifndef TOOLS_SELF_H
#define TOOLS_SELF_H

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

/* Its absolute path. False, with errno: it cannot be told. */
static inline bool self_path(char path[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    const char *executed = (const char *)getauxval(AT_EXECFN);

    if (n >= 0) {
        path[n] = '\0';
        return true;
    }
    /* Where /proc is not mounted: as it was called, from the folder in which it still is. */
    return executed && realpath(executed, path);
}

#endif
