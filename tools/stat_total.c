/*
 * stat_total.c - sums over everything that `railsock stat` shows, by path and by reason.
 */
#include "tools/stat_print.h"

#include "config/reason.h"

#include <inttypes.h>
#include <string.h>

const char *stat_missing(const struct stat_list *list, char text[ROOM_MISSING])
{
    return room_missing(list->lacking, list->n_others, text);
}

enum fb_path stat_path(const struct stat_conn *c)
{
    return c->path_tx ? c->path_tx : c->path_rx;
}

void stat_total(const struct stat_list *list, struct stat_totals *t)
{
    memset(t, 0, sizeof(*t));
    for (size_t i = 0; i < list->n; i++) {
        const struct stat_process *p = &list->processes[i];

        for (size_t j = 0; j < p->nconns; j++) {
            const struct stat_conn *c = &p->conns[j];

            t->connections++;
            t->path[stat_path(c)]++;
            t->tx_rate = stat_plus(t->tx_rate, c->tx_rate);
            t->rx_rate = stat_plus(t->rx_rate, c->rx_rate);
            if (stat_path(c) == FB_PATH_TCP)
                t->open[c->reason < STAT_REASONS - 1 ? c->reason : STAT_REASONS - 1]++;
        }
        if (list->some)
            continue;
        t->tx_rate = stat_plus(t->tx_rate, p->closed.tx_rate);
        t->rx_rate = stat_plus(t->rx_rate, p->closed.rx_rate);
        t->closed_conns = stat_plus(t->closed_conns, p->closed.connections);
        for (size_t j = 0; j < sizeof(p->closed.by_reason) / sizeof(p->closed.by_reason[0]); j++)
            t->closed[j] = stat_plus(t->closed[j], p->closed.by_reason[j]);
    }
}

const char *stat_means(const struct stat_totals *t, int reason)
{
    if (!t->closed[reason])
        return cfg_reason_sentence(reason);
    if (t->open[reason] && reason == RSN_NONE)
        return "nothing stands in the way: it boards with its next bytes; a closed one ended before it boarded";
    return cfg_reason_ended(reason);
}

void stat_print_totals(FILE *f, const struct stat_list *list)
{
    char why[ROOM_MISSING];
    const char *missing = stat_missing(list, why);
    struct stat_totals t;
    bool any = false;
    int width = 6;

    stat_total(list, &t);
    fprintf(f, "\n%" PRIu64 " connection%s:", t.connections, t.connections == 1 ? "" : "s");
    for (size_t i = 0; i <= FB_PATH_VERBS; i++)
        fprintf(f, "%s %" PRIu64 " %s", i ? "," : "", t.path[i], stat_path_name((enum fb_path)i));
    if (!list->some)
        fprintf(f, "; %" PRIu64 " closed", t.closed_conns);
    fputc('\n', f);
    if (missing)
        fprintf(f, STAT_MISSING "%s\n", missing);
    for (int i = 0; i < STAT_REASONS; i++)
        if (t.open[i] || t.closed[i]) {
            any = true;
            if ((int)strlen(cfg_reason_name(i)) > width)
                width = (int)strlen(cfg_reason_name(i));
        }
    if (!any)
        return;
    fprintf(f, "ON TCP  CLOSED  %-*s  WHY\n", width, "REASON");
    for (int i = 0; i < STAT_REASONS; i++) {
        const char *advice = cfg_reason_advice(i);
        char closed[24] = "-";

        if (!list->some)
            snprintf(closed, sizeof(closed), "%" PRIu64, t.closed[i]);
        if (t.open[i] || t.closed[i])
            fprintf(f, "%6" PRIu64 "  %6s  %-*s  %s%s%s\n", t.open[i], closed, width,
                    cfg_reason_name(i), stat_means(&t, i), *advice ? "; " : "", advice);
    }
}
