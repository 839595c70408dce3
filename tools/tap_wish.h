/*
 * tap_wish.h - what `railsock tap` is asked for.
 */
#ifndef TOOLS_TAP_WISH_H
#define TOOLS_TAP_WISH_H

#include "tools/stat_filter.h"

#include <stdio.h>

struct tap_wish {
    struct stat_filter filter;
    struct fb_pub_addr ends[2];
    int nends;
    const char *output;
    uint32_t snap, ring;
    uint64_t count;
    double seconds;
    bool help;
};

struct tap_choice {
    const struct stat_process *p;
    const struct stat_conn *c;
};

void tap_usage(FILE *f);
/* False: wrong usage, said on stderr. */
bool tap_parse(int argc, char **argv, struct tap_wish *);
/* The one connection that is meant, in the list, which is to be freed in any case. False:
 * said why not. */
bool tap_choose(const struct tap_wish *, struct stat_list *, struct tap_choice *);

#endif
