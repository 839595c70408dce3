/*
 * stat_prometheus.c - `railsock stat --prometheus`: the text format that Prometheus and its node
 * exporter's textfile collector read. Sums for each process; a connection of its own would be a new
 * time series each time. What goes over TCP is no series: it is a difference of counters that are
 * read while they move, which goes back at times, as no counter may.
 */
#include "tools/stat_print.h"

#include "config/reason.h"

#include <inttypes.h>
#include <string.h>

static void metric(FILE *f, const char *name, const char *type, const char *help)
{
    fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* The name, the labels that every series has, and room for more. */
static void series(FILE *f, const char *name, const struct stat_process *p)
{
    fprintf(f, "%s{pid=\"%" PRIu32 "\",program=\"", name, p->pid);
    for (const char *c = p->program; *c; c++)
        if (*c == '"' || *c == '\\')
            fprintf(f, "\\%c", *c);
        else
            fputc(*c < ' ' || *c > '~' ? '?' : *c, f);
    fputc('"', f);
}

struct sums {
    uint64_t tx, rx, rail_tx, rail_rx, switches, pause;
};

static struct sums sum(const struct stat_process *p)
{
    struct sums s = {p->closed.tx,      p->closed.rx,       p->closed.rail_tx,
                     p->closed.rail_rx, p->closed.switches, 0};

    for (size_t i = 0; i < p->nconns; i++) {
        const struct stat_conn *c = &p->conns[i];

        s.tx = stat_plus(s.tx, c->tx);
        s.rx = stat_plus(s.rx, c->rx);
        s.rail_tx = stat_plus(s.rail_tx, c->rail_tx);
        s.rail_rx = stat_plus(s.rail_rx, c->rail_rx);
        s.switches = stat_plus(s.switches, c->switches);
        if (c->pause_most > s.pause)
            s.pause = c->pause_most;
    }
    return s;
}

static void both_ways(FILE *f, const char *name, const struct stat_process *p, uint64_t tx,
                      uint64_t rx)
{
    series(f, name, p);
    fprintf(f, ",direction=\"tx\"} %" PRIu64 "\n", tx);
    series(f, name, p);
    fprintf(f, ",direction=\"rx\"} %" PRIu64 "\n", rx);
}

static void put_bytes(FILE *f, const struct stat_process *p)
{
    struct sums s = sum(p);

    both_ways(f, "railsock_bytes_total", p, s.tx, s.rx);
}

static void put_rail_bytes(FILE *f, const struct stat_process *p)
{
    struct sums s = sum(p);

    both_ways(f, "railsock_rail_bytes_total", p, s.rail_tx, s.rail_rx);
}

static void put_paths(FILE *f, const struct stat_process *p)
{
    uint64_t n[FB_PATH_VERBS + 1] = {0};

    for (size_t i = 0; i < p->nconns; i++)
        n[stat_path(&p->conns[i])]++;
    for (size_t i = 0; i <= FB_PATH_VERBS; i++) {
        series(f, "railsock_connections", p);
        fprintf(f, ",path=\"%s\"} %" PRIu64 "\n", stat_path_name((enum fb_path)i), n[i]);
    }
}

static void put_reason(FILE *f, const char *name, const struct stat_process *p, size_t reason,
                       uint64_t n)
{
    if (!n)
        return;
    series(f, name, p);
    if (strcmp(cfg_reason_name((int)reason), "unknown") == 0)
        fprintf(f, ",reason=\"%zu\"} %" PRIu64 "\n", reason, n);
    else
        fprintf(f, ",reason=\"%s\"} %" PRIu64 "\n", cfg_reason_name((int)reason), n);
}

static void put_reasons(FILE *f, const struct stat_process *p)
{
    uint64_t n[STAT_REASONS] = {0};

    for (size_t i = 0; i < p->nconns; i++)
        if (stat_path(&p->conns[i]) == FB_PATH_TCP)
            n[p->conns[i].reason < STAT_REASONS - 1 ? p->conns[i].reason : STAT_REASONS - 1]++;
    for (size_t i = 0; i < STAT_REASONS; i++)
        put_reason(f, "railsock_on_tcp", p, i, n[i]);
}

static void put_never(FILE *f, const struct stat_process *p)
{
    for (size_t i = 0; i < sizeof(p->closed.by_reason) / sizeof(p->closed.by_reason[0]); i++)
        put_reason(f, "railsock_never_boarded_total", p, i, p->closed.by_reason[i]);
}

static void put_closed(FILE *f, const struct stat_process *p)
{
    series(f, "railsock_closed_total", p);
    fprintf(f, "} %" PRIu64 "\n", p->closed.connections);
}

static void put_switches(FILE *f, const struct stat_process *p)
{
    series(f, "railsock_switches_total", p);
    fprintf(f, "} %" PRIu64 "\n", sum(p).switches);
}

static void put_pause(FILE *f, const struct stat_process *p)
{
    series(f, "railsock_pause_seconds", p);
    fprintf(f, "} %.9f\n", (double)sum(p).pause / 1e9);
}

void stat_print_prometheus(FILE *f, const struct stat_list *list)
{
    static const struct {
        const char *name, *type, *help;
        void (*put)(FILE *f, const struct stat_process *p);
    } metrics[] = {
        {"railsock_connections", "gauge", "Open connections by path.", put_paths},
        {"railsock_on_tcp", "gauge", "Open connections that are not on a rail, by reason.",
         put_reasons},
        {"railsock_bytes_total", "counter", "Bytes of the program by direction.", put_bytes},
        {"railsock_rail_bytes_total", "counter", "Those of them that went over a rail.",
         put_rail_bytes},
        {"railsock_switches_total", "counter", "Changes of track, of both directions.",
         put_switches},
        {"railsock_closed_total", "counter", "Connections that are closed.", put_closed},
        {"railsock_never_boarded_total", "counter",
         "Connections that were closed without ever boarding, by their last reason.", put_never},
        {"railsock_pause_seconds", "gauge",
         "The longest time for which a switch of an open connection has kept its sender waiting.",
         put_pause},
    };

    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
        if (list->some && (metrics[i].put == put_closed || metrics[i].put == put_never))
            continue;
        /* Of some connections the sums become smaller when one is closed. */
        metric(f, metrics[i].name, list->some ? "gauge" : metrics[i].type, metrics[i].help);
        for (size_t j = 0; j < list->n; j++)
            metrics[i].put(f, &list->processes[j]);
    }
}
