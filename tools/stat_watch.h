/*
 * stat_watch.h - `railsock stat --watch`.
 */
#ifndef TOOLS_STAT_WATCH_H
#define TOOLS_STAT_WATCH_H

#include "tools/stat_filter.h"
#include "tools/stat_print.h"

#include <time.h>

/* Reads and filters; addresses: also those that are not known yet. 0, or -errno, which the other
 * one puts in words. */
int stat_take(const struct stat_filter *filter, bool quiet, bool addresses, struct stat_list *list);
void stat_not_taken(int err);

/* Shows the table in place on the terminal, anew each interval, until q or SIGINT; the terminal is
 * then as it was. The exit status. */
int stat_watch(const struct stat_filter *filter, struct stat_view view, struct timespec interval);

#endif
