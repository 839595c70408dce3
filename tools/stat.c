/*
 * stat.c - `railsock stat`: the connections of the processes that run with the library.
 */
#include "tools/commands.h"

#include "tools/stat_print.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void usage(FILE *f)
{
    fputs("usage: railsock stat [--json] [--pid PID]\n"
          "\n"
          "Shows the TCP connections of programs that run with the library: on which path they\n"
          "are, why not on a rail, how many bytes went each way and how many of these over a\n"
          "rail. Other users' programs are shown to root.\n"
          "\n"
          "  --json       one JSON object\n"
          "  --pid PID    only this process; status 1 if it shows nothing\n",
          f);
}

static void complain(const char *path, const char *why)
{
    fprintf(stderr, "railsock stat: %s: %s; ignored\n", path, why);
}

static bool parse_pid(const char *text, uint32_t *pid)
{
    unsigned long value;
    char *end;

    errno = 0;
    value = strtoul(text, &end, 10);
    if (errno || !isdigit((unsigned char)*text) || *end || !value || value > INT32_MAX)
        return false;
    *pid = (uint32_t)value;
    return true;
}

int cmd_stat(int argc, char **argv)
{
    static const struct option table[] = {
        {"json", no_argument, NULL, 'j'},
        {"pid", required_argument, NULL, 'p'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct stat_list list;
    bool json = false;
    uint32_t pid = 0;
    int c, err, status = 0;

    optind = 0;
    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (c == 'j') {
            json = true;
        } else if (c == 'h') {
            usage(stdout);
            return 0;
        } else if (c != 'p') {
            usage(stderr);
            return 2;
        } else if (!parse_pid(optarg, &pid)) {
            fprintf(stderr, "railsock stat: --pid %s: expected a process number\n", optarg);
            return 2;
        }
    }
    if (argv[optind]) {
        usage(stderr);
        return 2;
    }
    err = stat_read(STAT_BASE, pid, complain, &list);
    if (err < 0) {
        fprintf(stderr, "railsock stat: %s: %s\n", STAT_BASE, strerror(-err));
        status = 1;
    } else if (json) {
        stat_print_json(stdout, &list);
    } else if (list.n) {
        stat_print_table(stdout, &list);
    }
    if (!err && pid && !list.n) {
        fprintf(stderr,
                "railsock stat: process %u does not run with railsock, or has not "
                "connected yet\n",
                pid);
        status = 1;
    } else if (!err && !list.n && !json) {
        fputs("railsock stat: no program runs with railsock\n", stderr);
    }
    stat_free(&list);
    if (fflush(stdout) != 0) {
        fprintf(stderr, "railsock stat: %s\n", strerror(errno));
        return 1;
    }
    return status;
}
