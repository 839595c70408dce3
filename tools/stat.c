/*
 * stat.c - `railsock stat`: the connections of the processes that run with the library. Options,
 * and which form of output they ask for.
 */
#include "tools/commands.h"

#include "tools/report.h"
#include "tools/room.h"
#include "tools/stat_watch.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void usage(FILE *f)
{
    fputs("usage: railsock stat [OPTIONS]\n"
          "\n"
          "Shows the TCP connections of programs that run with the library: on which path they\n"
          "are, why not on a rail, how many bytes went each way and how many of these over a\n"
          "rail; then how many there are of each kind, and what the reasons mean. Other users'\n"
          "programs are shown to root.\n"
          "\n"
          "Which connections:\n"
          "  --pid PID            of this process; status 1 if it shows nothing, as with all four\n"
          "  --program NAME       of programs of this name, or pattern: 'redis*'\n"
          "  --port PORT          with this port at either end\n"
          "  --path PATH          on tcp, shm or verbs in either direction\n"
          "\n"
          "What of them:\n"
          "  --wide               also rings, credit, the last pause for a switch, boardings that\n"
          "                       did not come about\n"
          "  --rate [SECONDS]     looks twice, a second apart, and shows bytes a second\n"
          "  --watch [SECONDS]    in place, the busiest first, each second; q ends it\n"
          "  --json               one JSON object\n"
          "  --prometheus         sums for each process as Prometheus reads them\n",
          f);
}

static uint32_t only; /* complaints are of this process; 0: of all */
static bool complained;

static void complain(const char *path, const char *why)
{
    if (only && strtoul(strrchr(path, '/') + 1, NULL, 10) != only)
        return;
    complained = true;
    fprintf(stderr, "railsock stat: %s: %s; ignored\n", path, why);
}

static bool parse_number(const char *option, const char *text, uint32_t most, uint32_t *number)
{
    unsigned long value;
    char *end;

    errno = 0;
    value = strtoul(text, &end, 10);
    if (errno || !isdigit((unsigned char)*text) || *end || !value || value > most) {
        fprintf(stderr, "railsock stat: %s %s: expected a number from 1 to %u\n", option, text,
                most);
        return false;
    }
    *number = (uint32_t)value;
    return true;
}

static bool is_numeral(const char *text)
{
    return isdigit((unsigned char)text[*text == '.']);
}

/* The word after an option whose argument may be left out, if it is one. */
static const char *maybe(char **argv)
{
    if (!optarg && argv[optind] && is_numeral(argv[optind]))
        optarg = argv[optind++];
    return optarg;
}

static bool parse_seconds(const char *option, const char *text, struct timespec *ts)
{
    char *end;
    double value;

    if (!text)
        return true;
    value = strtod(text, &end);
    if (!is_numeral(text) || *end || !(value >= 0.1 && value <= 86400)) {
        fprintf(stderr, "railsock stat: %s %s: expected seconds, from 0.1 to 86400\n", option,
                text);
        return false;
    }
    ts->tv_sec = (time_t)value;
    ts->tv_nsec = (long)((value - (double)ts->tv_sec) * 1e9);
    return true;
}

static bool parse_path(const char *text)
{
    for (enum fb_path p = FB_PATH_TCP; p <= FB_PATH_VERBS; p++)
        if (strcmp(text, stat_path_name(p)) == 0)
            return true;
    fprintf(stderr, "railsock stat: --path %s: expected tcp, shm or verbs\n", text);
    return false;
}

struct wish {
    enum { TABLE, JSON, PROMETHEUS } form;
    bool watch, help;
    struct stat_filter filter;
    struct stat_view view;
    struct timespec interval;
};

static bool parse(int argc, char **argv, struct wish *w)
{
    static const struct option table[] = {
        {"json", no_argument, NULL, 'j'},
        {"prometheus", no_argument, NULL, 'm'},
        {"pid", required_argument, NULL, 'p'},
        {"program", required_argument, NULL, 'n'},
        {"port", required_argument, NULL, 'P'},
        {"path", required_argument, NULL, 'a'},
        {"wide", no_argument, NULL, 'w'},
        {"rate", optional_argument, NULL, 'r'},
        {"watch", optional_argument, NULL, 'W'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    bool right = true, json = false, prometheus = false;
    int c;

    optind = 0;
    while (right && (c = getopt_long(argc, argv, "h", table, NULL)) != -1) {
        switch (c) {
        case 'j':
            json = true;
            break;
        case 'm':
            prometheus = true;
            break;
        case 'p':
            right = parse_number("--pid", optarg, INT32_MAX, &w->filter.pid);
            break;
        case 'n':
            w->filter.program = optarg;
            break;
        case 'P':
            right = parse_number("--port", optarg, UINT16_MAX, &w->filter.port);
            break;
        case 'a':
            w->filter.path = optarg;
            right = parse_path(optarg);
            break;
        case 'w':
            w->view.wide = true;
            break;
        case 'r':
            w->view.rates = true;
            right = parse_seconds("--rate", maybe(argv), &w->interval);
            break;
        case 'W':
            w->watch = true;
            right = parse_seconds("--watch", maybe(argv), &w->interval);
            break;
        case 'h':
            w->help = true;
            return true;
        default:
            return false;
        }
    }
    if (right && argv[optind]) {
        fprintf(stderr, "railsock stat: unexpected argument: %s\n", argv[optind]);
        return false;
    }
    if (right && json + prometheus + w->watch > 1) {
        fputs("railsock stat: --json, --prometheus and --watch exclude each other\n", stderr);
        return false;
    }
    /* Of those sums no rate is shown, and the other has them anyway. */
    if (right && w->view.rates && (prometheus || w->watch)) {
        fprintf(stderr, "railsock stat: --rate and --%s exclude each other\n",
                w->watch ? "watch" : "prometheus");
        return false;
    }
    w->form = json ? JSON : prometheus ? PROMETHEUS : TABLE;
    return right;
}

int stat_take(const struct stat_filter *filter, bool quiet, bool addresses, struct stat_list *list)
{
    int err;

    only = filter->pid;
    /* All of them, as the other end of a connection may be another process's. */
    err = stat_read(STAT_BASE, 0, quiet ? NULL : complain, list);
    if (err < 0) {
        stat_free(list);
        return err;
    }
    if (addresses || filter->port)
        stat_addresses(list);
    stat_rings(list); /* before the filter, which may keep one end only */
    stat_filter(list, filter);
    list->lacking = access("/proc/self/stat", F_OK) < 0
                        ? "there is no /proc, where it is seen who runs"
                        : room_lacking();
    return 0;
}

void stat_not_taken(int err)
{
    fprintf(stderr, "railsock stat: %s: %s\n", STAT_BASE, strerror(-err));
}

/* As stat_take, and says why not. */
static bool take(const struct wish *w, bool quiet, struct stat_list *list)
{
    /* Sums show none, and the kernel's tables are long where there are many. */
    int err = stat_take(&w->filter, quiet, w->form != PROMETHEUS, list);

    if (err < 0)
        stat_not_taken(err);
    return err == 0;
}

static bool take_rates(const struct wish *w, struct stat_list *list)
{
    struct timespec begin, end, left = w->interval;
    struct stat_list before;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (!take(w, true, &before))
        return false;
    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (!take(w, false, list)) {
        stat_free(&before);
        return false;
    }
    stat_rates(&before, list,
               (uint64_t)(end.tv_sec - begin.tv_sec) * 1000000000u +
                   (uint64_t)(end.tv_nsec - begin.tv_nsec));
    stat_free(&before);
    return true;
}

static void print(const struct wish *w, const struct stat_list *list)
{
    if (w->form == JSON) {
        stat_print_json(stdout, list);
    } else if (w->form == PROMETHEUS) {
        stat_print_prometheus(stdout, list);
    } else if (list->n) {
        stat_print_table(stdout, list, &w->view);
        stat_print_totals(stdout, list);
    }
}

/* Where it does not stand beside the sums. */
static void say_lacking(const struct wish *w, const struct stat_list *list)
{
    char text[ROOM_MISSING];
    const char *missing = stat_missing(list, text);

    if (missing && (w->form == PROMETHEUS || (w->form == TABLE && !list->n)))
        fprintf(stderr, "railsock stat: " STAT_MISSING "%s\n", missing);
}

/* Of this process nothing is shown, and nothing is known of its file. */
static void say_no_process(uint32_t pid)
{
    if (kill((pid_t)pid, 0) == 0)
        fprintf(stderr,
                "railsock stat: process %u does not run with railsock, or has not connected yet\n",
                pid);
    else
        fprintf(stderr,
                errno == EPERM
                    ? "railsock stat: process %u is another user's: only he and root may\n"
                    : "railsock stat: there is no process %u\n",
                pid);
}

/* Nothing is shown. The exit status. */
static int nothing(const struct wish *w)
{
    const struct stat_filter *f = &w->filter;
    const char *root = geteuid() ? "; root sees all" : "";

    if (f->program || f->port || f->path)
        fprintf(stderr, "railsock stat: no connection is like that%s\n", root);
    else if (f->pid && !complained)
        say_no_process(f->pid);
    else if (!f->pid && w->form == TABLE)
        fprintf(stderr, "railsock stat: no running program %s TCP connection under railsock%s\n",
                geteuid() ? "that you may see has had a" : "has had a", root);
    return f->program || f->port || f->path || f->pid;
}

int cmd_stat(int argc, char **argv)
{
    struct wish w = {.interval = {1, 0}};
    struct stat_list list;
    int status = 0;

    if (!parse(argc, argv, &w))
        return command_wrong("railsock stat");
    if (w.help) {
        return command_help("railsock stat", usage);
    }
    report_sweep();
    if (w.watch)
        return stat_watch(&w.filter, w.view, w.interval);
    if (w.view.rates ? !take_rates(&w, &list) : !take(&w, false, &list))
        return 1;
    print(&w, &list);
    if (!list.n)
        status = nothing(&w);
    say_lacking(&w, &list);
    stat_free(&list);
    if (fflush(stdout) != 0) {
        fprintf(stderr, "railsock stat: %s\n", strerror(errno));
        return 1;
    }
    return status;
}
