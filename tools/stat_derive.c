/*
 * stat_derive.c - figures that no process shows by itself: rates, from two readings, and how full
 * rings are, from the two ends of a connection.
 */
#include "tools/stat_print.h"

#include <stdlib.h>
#include <string.h>

/* ---- rates */

static const struct stat_process *same_process(const struct stat_list *l,
                                               const struct stat_process *p)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->processes[i].pid == p->pid && l->processes[i].start_time == p->start_time)
            return &l->processes[i];
    return NULL;
}

static uint64_t per_second(uint64_t before, uint64_t now, uint64_t ns)
{
    double rate = now > before && ns ? (double)(now - before) * 1e9 / (double)ns : 0;

    return rate < 1e18 ? (uint64_t)rate : 0; /* whoever wrote the counters may lie */
}

/* gone_tx, gone_rx: what the connections that have closed since the earlier reading had moved
 * by then. It is added to that reading's sums of closed ones, because the sums of now have
 * their whole lives. */
static void rate_closed(struct stat_process *p, const struct stat_process *old, uint64_t gone_tx,
                        uint64_t gone_rx, uint64_t ns)
{
    p->closed.tx_rate = per_second(stat_plus(old->closed.tx, gone_tx), p->closed.tx, ns);
    p->closed.rx_rate = per_second(stat_plus(old->closed.rx, gone_rx), p->closed.rx, ns);
    p->closed.rated = true;
}

void stat_rates(const struct stat_list *before, struct stat_list *now, uint64_t ns)
{
    for (size_t i = 0; i < now->n; i++) {
        struct stat_process *p = &now->processes[i];
        const struct stat_process *old = same_process(before, p);
        uint64_t gone_tx = 0, gone_rx = 0;
        size_t at = 0;

        for (size_t j = 0; old && j < old->nconns; j++) {
            gone_tx += old->conns[j].tx;
            gone_rx += old->conns[j].rx;
        }
        /* Both are in the order of their slots. One that is new has moved everything since; but
         * where only some were read before it need not be new. */
        for (size_t j = 0; j < p->nconns; j++) {
            struct stat_conn *c = &p->conns[j];
            uint64_t tx = 0, rx = 0;

            while (old && at < old->nconns && old->conns[at].slot < c->slot)
                at++;
            if (old && at < old->nconns && old->conns[at].slot == c->slot &&
                old->conns[at].gen == c->gen) {
                tx = old->conns[at].tx;
                rx = old->conns[at].rx;
                gone_tx -= tx;
                gone_rx -= rx;
            } else if (!old || before->some) {
                continue; /* not seen before: since when is not known */
            }
            c->tx_rate = per_second(tx, c->tx, ns);
            c->rx_rate = per_second(rx, c->rx, ns);
            c->rated = true;
        }
        if (old && !before->some && !now->some)
            rate_closed(p, old, gone_tx, gone_rx, ns);
    }
}

/* ---- rings */

static int by_addresses(const struct stat_conn *x, const struct fb_pub_addr *local,
                        const struct fb_pub_addr *peer)
{
    int order = memcmp(&x->local, local, sizeof(*local));

    return order ? order : memcmp(&x->peer, peer, sizeof(*peer));
}

static int compare(const void *a, const void *b)
{
    const struct stat_conn *x = *(struct stat_conn *const *)a, *y = *(struct stat_conn *const *)b;

    return by_addresses(x, &y->local, &y->peer);
}

static struct stat_conn *other_end(struct stat_conn **all, size_t n, const struct stat_conn *c)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (by_addresses(all[mid], &c->peer, &c->local) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && by_addresses(all[low], &c->peer, &c->local) == 0 ? all[low] : NULL;
}

/* The counters move while they are read, each at its own time. */
static uint64_t within(uint64_t sent, uint64_t got, uint32_t ring)
{
    uint64_t used = sent > got ? sent - got : 0;

    return used < ring ? used : ring;
}

void stat_rings(struct stat_list *list)
{
    struct stat_conn **all;
    size_t n = 0, at = 0;

    for (size_t i = 0; i < list->n; i++)
        n += list->processes[i].nconns;
    all = calloc(n ? n : 1, sizeof(struct stat_conn *));
    if (!all)
        return;
    for (size_t i = 0; i < list->n; i++)
        for (size_t j = 0; j < list->processes[i].nconns; j++)
            if (list->processes[i].conns[j].local.family)
                all[at++] = &list->processes[i].conns[j];
    n = at;
    qsort(all, n, sizeof(struct stat_conn *), compare);
    for (size_t i = 0; i < n; i++) {
        struct stat_conn *c = all[i], *peer = other_end(all, n, c);

        if (!peer)
            continue;
        c->tx_used_known = c->path_tx != FB_PATH_TCP && c->tx_ring;
        c->rx_used_known = c->path_rx != FB_PATH_TCP && c->rx_ring;
        if (c->tx_used_known)
            c->tx_used = within(c->tx, peer->rx, c->tx_ring);
        if (c->rx_used_known)
            c->rx_used = within(peer->tx, c->rx, c->rx_ring);
    }
    free(all);
}
