/*
 * stat_filter.h - which connections `railsock stat` shows.
 */
#ifndef TOOLS_STAT_FILTER_H
#define TOOLS_STAT_FILTER_H

#include "tools/stat_read.h"

struct stat_filter {
    uint32_t pid;        /* 0: all */
    const char *program; /* a name, or a pattern as of the shell; NULL: all */
    uint32_t port;       /* of either end; 0: all */
    const char *path;    /* tcp, shm or verbs, in either direction; NULL: all */
};

/* Takes out what is not asked for, and processes of which nothing is left. */
void stat_filter(struct stat_list *list, const struct stat_filter *filter);

#endif
