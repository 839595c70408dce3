/*
 * library.c - see library.h.
 */
#include "tools/library.h"

#include "tools/elf_look.h"
#include "tools/self.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIBRARY "librailsock.so"
#ifndef LIBRARY_INSTALLED /* the Makefile's */
#define LIBRARY_INSTALLED "/usr/local/lib/railsock/librailsock.so"
#endif
/* Debian's folder for what is of one machine. */
#ifdef __x86_64__
#define MULTIARCH "../lib/x86_64-linux-gnu/railsock/"
#else
#define MULTIARCH "../lib/aarch64-linux-gnu/railsock/"
#endif

/* Whether the file is there, as an absolute path. False: errno, 0 if it is something else. */
static bool found(const char *file, char path[PATH_MAX])
{
    struct stat st;

    if (!realpath(file, path) || stat(path, &st) < 0)
        return false;
    errno = 0; /* realpath leaves one behind */
    return S_ISREG(st.st_mode) && access(path, R_OK) == 0;
}

/* The one that belongs to this command. */
static bool find_own(char path[PATH_MAX], char *why, size_t size)
{
    static const char *const places[] = {"", "../lib/railsock/", MULTIARCH, "../lib64/railsock/",
                                         "../lib/"};
    char self[PATH_MAX], file[PATH_MAX + 64];

    if (!self_path(self)) {
        snprintf(why, size,
                 "the command's own place cannot be told (%s), and %s is not there; name the "
                 "library in RAILSOCK_LIBRARY",
                 strerror(errno), LIBRARY_INSTALLED);
        return found(LIBRARY_INSTALLED, path);
    }
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(file, sizeof(file), "%s/%s%s", self, places[i], LIBRARY);
        if (found(file, path))
            return true;
    }
    if (found(LIBRARY_INSTALLED, path))
        return true;
    snprintf(why, size,
             "%s is not in %s, nor in its ../lib/railsock, nor is it %s; build it, or name it in "
             "RAILSOCK_LIBRARY",
             LIBRARY, self, LIBRARY_INSTALLED);
    return false;
}

bool library_find(char path[PATH_MAX], char *why, size_t size)
{
    const char *named = getenv("RAILSOCK_LIBRARY");

    if (!named || !*named) {
        if (!find_own(path, why, size))
            return false;
    } else if (!found(named, path)) {
        snprintf(why, size, "RAILSOCK_LIBRARY=%s: %s", named,
                 errno ? strerror(errno) : "not a file");
        return false;
    }
    if (!elf_is_library(path)) {
        snprintf(why, size, "%s%s: %s", named && *named ? "RAILSOCK_LIBRARY=" : "", path,
                 errno ? strerror(errno)
                       : "it is no shared library that programs of this machine can load");
        return false;
    }
    if (!elf_is_named(path, LIBRARY)) {
        snprintf(why, size, "%s%s: it is another library than " LIBRARY,
                 named && *named ? "RAILSOCK_LIBRARY=" : "", path);
        return false;
    }
    if (strpbrk(path, ": \t\n")) {
        snprintf(why, size,
                 "%s: LD_PRELOAD cannot hold a path with a space or a colon; install the library "
                 "elsewhere",
                 path);
        return false;
    }
    return true;
}
