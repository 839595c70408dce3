/*
 * rules_part.h - what the tests of the rules share: files, and an environment without settings.
 */
#ifndef TESTS_RULES_PART_H
#define TESTS_RULES_PART_H

#include "config/env.h"
#include "tests/shim/shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER "tests/config/"

static inline void clear(void)
{
    static const char *const names[] = {"MODE",   "WIRE", "BOARD", "SPIN", "RING",   "RAILS", "TOS",
                                        "MEMORY", "IDLE", "STALL", "LOG",  "CONFIG", "KEY"};
    char name[40];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(name, sizeof(name), "RAILSOCK_%s", names[i]);
        unsetenv(name);
    }
    cfg_init();
}

/* To be freed. */
static inline char *file_text(const char *path)
{
    char *text = calloc(1, 1 << 16);
    FILE *f = fopen(path, "r");

    ASSERT(text && f);
    ASSERT(fread(text, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    return text;
}

/* The name of a new file, until the next call. */
static inline char *temporary(void)
{
    static char name[40];
    int fd;

    strcpy(name, "/tmp/rules_test.XXXXXX");
    fd = mkstemp(name);
    ASSERT(fd >= 0);
    close(fd);
    return name;
}

static inline void fill(const char *name, const char *text, size_t times)
{
    FILE *f = fopen(name, "w");

    ASSERT(f);
    while (times--)
        fputs(text, f);
    fclose(f);
}

#endif
