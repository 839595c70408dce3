/*
 * stat_print.h - the two forms in which `railsock stat` shows what was read.
 */
#ifndef TOOLS_STAT_PRINT_H
#define TOOLS_STAT_PRINT_H

#include "tools/stat_read.h"

#include <stdio.h>

/* A table: a line for each connection, and one for the closed ones of a process. */
void stat_print_table(FILE *f, const struct stat_list *list);

/* One JSON object on one line; valid whatever the files held. */
void stat_print_json(FILE *f, const struct stat_list *list);

#define STAT_ADDR_SIZE 64
/* "10.0.0.1:80", "[fe80::1]:80", or "?" when not known. */
void stat_addr(const struct fb_pub_addr *a, char text[STAT_ADDR_SIZE]);
const char *stat_path_name(enum fb_path path);

#endif
