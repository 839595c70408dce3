/*
 * stat_table.c - `railsock stat` for people: columns as wide as they need to be.
 */
#include "tools/stat_print.h"

#include "config/reason.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>

enum { COLUMNS = 11, CELL = STAT_ADDR_SIZE + 2 };

struct row {
    char cell[COLUMNS][CELL];
};

static const struct row heads = {{"PID", "PROGRAM", "LOCAL", "PEER", "PATH", "REASON", "TX", "RX",
                                  "RAIL-TX", "RAIL-RX", "SWITCHES"}};

const char *stat_path_name(enum fb_path path)
{
    return path == FB_PATH_SHM ? "shm" : path == FB_PATH_VERBS ? "verbs" : "tcp";
}

void stat_addr(const struct fb_pub_addr *a, char text[STAT_ADDR_SIZE])
{
    char ip[INET6_ADDRSTRLEN];
    bool v6 = a->family == AF_INET6;

    if ((!v6 && a->family != AF_INET) || !inet_ntop(a->family, a->addr, ip, sizeof(ip)))
        snprintf(text, STAT_ADDR_SIZE, "?");
    else
        snprintf(text, STAT_ADDR_SIZE, v6 ? "[%s]:%u" : "%s:%u", ip, a->port);
}

static void put_number(char cell[CELL], uint64_t value)
{
    snprintf(cell, CELL, "%" PRIu64, value);
}

static void put_head(struct row *r, const struct stat_process *p)
{
    put_number(r->cell[0], p->pid);
    snprintf(r->cell[1], CELL, "%s", p->program);
    /* It was chosen by the process: no escape sequences into the reader's terminal. */
    for (char *c = r->cell[1]; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
}

static void put_bytes(struct row *r, uint64_t tx, uint64_t rx, uint64_t rail_tx, uint64_t rail_rx)
{
    put_number(r->cell[6], tx);
    put_number(r->cell[7], rx);
    put_number(r->cell[8], rail_tx);
    put_number(r->cell[9], rail_rx);
}

static void fill(struct row *r, const struct stat_process *p, const struct stat_conn *c)
{
    put_head(r, p);
    stat_addr(&c->local, r->cell[2]);
    stat_addr(&c->peer, r->cell[3]);
    if (c->path_tx == c->path_rx)
        snprintf(r->cell[4], CELL, "%s", stat_path_name(c->path_tx));
    else
        snprintf(r->cell[4], CELL, "%s/%s", stat_path_name(c->path_tx), stat_path_name(c->path_rx));
    if (c->path_tx && c->path_rx)
        snprintf(r->cell[5], CELL, "-");
    else if (c->peer_reason)
        snprintf(r->cell[5], CELL, "%s, peer: %s", cfg_reason_name((int)c->reason),
                 cfg_reason_name((int)c->peer_reason));
    else
        snprintf(r->cell[5], CELL, "%s", cfg_reason_name((int)c->reason));
    put_bytes(r, c->tx, c->rx, c->rail_tx, c->rail_rx);
    put_number(r->cell[10], c->switches);
}

static void fill_closed(struct row *r, const struct stat_process *p)
{
    const struct stat_closed *c = &p->closed;

    put_head(r, p);
    snprintf(r->cell[2], CELL, "%" PRIu64 " closed", c->connections);
    snprintf(r->cell[3], CELL, "%" PRIu64 " boarded", c->boarded);
    snprintf(r->cell[4], CELL, "-");
    snprintf(r->cell[5], CELL, "-");
    put_bytes(r, c->tx, c->rx, c->rail_tx, c->rail_rx);
    snprintf(r->cell[10], CELL, "-");
}

static void widen(int width[COLUMNS], const struct row *r)
{
    for (int i = 0; i < COLUMNS; i++)
        if ((int)strlen(r->cell[i]) > width[i])
            width[i] = (int)strlen(r->cell[i]);
}

static void print_row(FILE *f, const int width[COLUMNS], const struct row *r)
{
    for (int i = 0; i < COLUMNS; i++) {
        bool right = i == 0 || i >= 6;

        fprintf(f, "%s%*s", i ? "  " : "", right ? width[i] : -width[i], r->cell[i]);
    }
    fputc('\n', f);
}

/* Calls fn for every row. Twice for each table: the widths come first. */
static void each_row(const struct stat_list *list, void (*fn)(const struct row *, void *),
                     void *arg)
{
    struct row r;

    for (size_t i = 0; i < list->n; i++) {
        const struct stat_process *p = &list->processes[i];

        for (size_t j = 0; j < p->nconns; j++) {
            fill(&r, p, &p->conns[j]);
            fn(&r, arg);
        }
        if (p->closed.connections || !p->nconns) {
            fill_closed(&r, p);
            fn(&r, arg);
        }
    }
}

struct table {
    FILE *f;
    int width[COLUMNS];
};

static void measure(const struct row *r, void *arg)
{
    struct table *t = arg;

    widen(t->width, r);
}

static void print(const struct row *r, void *arg)
{
    struct table *t = arg;

    print_row(t->f, t->width, r);
}

void stat_print_table(FILE *f, const struct stat_list *list)
{
    struct table t = {.f = f};

    measure(&heads, &t);
    each_row(list, measure, &t);
    print(&heads, &t);
    each_row(list, print, &t);
}
