/*
 * library.h - which library `railsock run` takes.
 */
#ifndef TOOLS_LIBRARY_H
#define TOOLS_LIBRARY_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* The library's absolute path: the one that RAILSOCK_LIBRARY names, else the one that belongs to
 * this command. False: there is none that LD_PRELOAD could name, and why says so. */
bool library_find(char path[PATH_MAX], char *why, size_t size);

#endif
