/*
 * stat_print.h - the forms in which `railsock stat` shows what was read.
 */
#ifndef TOOLS_STAT_PRINT_H
#define TOOLS_STAT_PRINT_H

#include "tools/room.h"
#include "tools/stat_read.h"

#include <stdio.h>

#define STAT_MISSING "programs may be missing that could not be shown: "

struct stat_view {
    bool rates; /* columns for them; the list went through stat_rates */
    bool wide;  /* rings, credit, pauses */
    /* The busiest first, by what they have moved if there are no rates; and these in short, before
     * what is long. */
    bool by_rate;
};

/* A table: a line for each connection, and one for the closed ones of a process. */
void stat_print_table(FILE *f, const struct stat_list *list, const struct stat_view *view);

/* How many connections are on each path; of those on TCP, why, in words, and what to do about
 * it. */
void stat_print_totals(FILE *f, const struct stat_list *list);

/* One JSON object on one line; valid whatever the files held. */
void stat_print_json(FILE *f, const struct stat_list *list);

/* The text format that Prometheus reads; likewise. */
void stat_print_prometheus(FILE *f, const struct stat_list *list);

#define STAT_ADDR_SIZE 64
/* "10.0.0.1:80", "[fe80::1]:80", or "?" when not known. */
void stat_addr(const struct fb_pub_addr *a, char text[STAT_ADDR_SIZE]);
const char *stat_path_name(enum fb_path path);
/* Why programs may be missing, in words to follow STAT_MISSING; in text, or NULL: none
 * is known to be. */
const char *stat_missing(const struct stat_list *list, char text[ROOM_MISSING]);
/* The rail if either direction is on one. */
enum fb_path stat_path(const struct stat_conn *c);

/* Saturates: whoever wrote the counters may lie. */
static inline uint64_t stat_plus(uint64_t a, uint64_t b)
{
    return a + b < a ? UINT64_MAX : a + b;
}

#define STAT_REASONS 65
struct stat_totals {
    uint64_t path[FB_PATH_VERBS + 1];   /* connections by stat_path */
    uint64_t tx_rate, rx_rate;          /* of all */
    uint64_t open[STAT_REASONS];        /* on TCP, by reason; the last: numbers from nowhere */
    uint64_t closed[STAT_REASONS];      /* closed without ever boarding */
    uint64_t connections, closed_conns; /* sums */
};
void stat_total(const struct stat_list *list, struct stat_totals *t);
/* A reason's sentence, for as many as are open and closed. */
const char *stat_means(const struct stat_totals *t, int reason);

#endif
