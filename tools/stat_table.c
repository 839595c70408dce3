/*
 * stat_table.c - `railsock stat` for people: columns as wide as they need to be.
 */
#include "tools/stat_print.h"

#include "config/reason.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { CELL = STAT_ADDR_SIZE + 2 };

enum column {
    PID,
    PROGRAM,
    LOCAL,
    PEER,
    PATH,
    REASON,
    TX,
    RX,
    TX_RATE,
    RX_RATE,
    RAIL_TX,
    RAIL_RX,
    TX_RING,
    RX_RING,
    CREDIT,
    PAUSE,
    RETRIES,
    SWITCHES,
    COLUMNS
};

static const struct {
    const char *head;
    bool left, rates, wide;
} columns[COLUMNS] = {
    [PID] = {"PID"},
    [PROGRAM] = {"PROGRAM", .left = true},
    [LOCAL] = {"LOCAL", .left = true},
    [PEER] = {"PEER", .left = true},
    [PATH] = {"PATH", .left = true},
    [REASON] = {"REASON", .left = true},
    [TX] = {"TX"},
    [RX] = {"RX"},
    [TX_RATE] = {"TX/s", .rates = true},
    [RX_RATE] = {"RX/s", .rates = true},
    [RAIL_TX] = {"RAIL-TX"},
    [RAIL_RX] = {"RAIL-RX"},
    [TX_RING] = {"TX-RING", .wide = true},
    [RX_RING] = {"RX-RING", .wide = true},
    [CREDIT] = {"CREDIT", .wide = true},
    [PAUSE] = {"PAUSE", .wide = true},
    [RETRIES] = {"RETRIES", .wide = true},
    [SWITCHES] = {"SWITCHES"},
};

/* --watch: 80 columns have room for the rates, if not for all. */
static const enum column rates_first[COLUMNS] = {
    PID, PROGRAM, LOCAL,   PEER,    PATH,    TX_RATE, RX_RATE, REASON,  TX,
    RX,  RAIL_TX, RAIL_RX, TX_RING, RX_RING, CREDIT,  PAUSE,   RETRIES, SWITCHES,
};

struct item {
    const struct stat_process *process;
    const struct stat_conn *conn; /* NULL: the closed ones */
};

struct row {
    char cell[COLUMNS][CELL];
};

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

/* In six characters. */
static void put_rate(char cell[CELL], uint64_t value)
{
    static const char suffix[] = " kMGTPE";
    unsigned n = 0;

    for (; value >= 100000; n++)
        value /= 1000;
    snprintf(cell, CELL, "%" PRIu64 "%.*s", value, n > 0, &suffix[n]);
}

static void put_head(struct row *r, const struct stat_process *p)
{
    for (int i = 0; i < COLUMNS; i++)
        snprintf(r->cell[i], CELL, "-");
    put_number(r->cell[PID], p->pid);
    snprintf(r->cell[PROGRAM], CELL, "%s", p->program);
    /* It was chosen by the process: no escape sequences into the reader's terminal. */
    for (char *c = r->cell[PROGRAM]; *c; c++)
        if ((unsigned char)*c < ' ' ||
            (unsigned char)*c >= 0x7f) /* U+0080 to U+009F are controls, too */
            *c = '?';
}

static void put_bytes(struct row *r, uint64_t tx, uint64_t rx, uint64_t rail_tx, uint64_t rail_rx)
{
    put_number(r->cell[TX], tx);
    put_number(r->cell[RX], rx);
    put_number(r->cell[RAIL_TX], rail_tx);
    put_number(r->cell[RAIL_RX], rail_rx);
}

static void put_path(char cell[CELL], const struct stat_conn *c)
{
    /* "shm" says itself where it is. */
    const char *where = c->path_tx == FB_PATH_VERBS || c->path_rx == FB_PATH_VERBS ? c->where : "";
    const char *colon = *where ? ":" : "";

    if (c->path_tx == c->path_rx)
        snprintf(cell, CELL, "%s%s%s", stat_path_name(c->path_tx), colon, where);
    else
        snprintf(cell, CELL, "%s/%s%s%s", stat_path_name(c->path_tx), stat_path_name(c->path_rx),
                 colon, where);
}

static void put_ring(char cell[CELL], bool known, uint64_t used, uint32_t size)
{
    if (known)
        snprintf(cell, CELL, "%" PRIu64 "/%" PRIu32, used, size);
    else if (size)
        snprintf(cell, CELL, "?/%" PRIu32, size);
}

static void put_pause(char cell[CELL], uint64_t ns)
{
    if (ns >= 10000000000u)
        snprintf(cell, CELL, "%" PRIu64 "s", ns / 1000000000);
    else if (ns >= 10000000)
        snprintf(cell, CELL, "%" PRIu64 "ms", ns / 1000000);
    else if (ns)
        snprintf(cell, CELL, "%" PRIu64 "us", (ns + 999) / 1000);
}

static void put_rates(struct row *r, uint64_t tx, uint64_t rx, const struct stat_view *view)
{
    (view->by_rate ? put_rate : put_number)(r->cell[TX_RATE], tx);
    (view->by_rate ? put_rate : put_number)(r->cell[RX_RATE], rx);
}

static void fill_open(struct row *r, const struct stat_conn *c, const struct stat_view *view)
{
    char(*cell)[CELL] = r->cell;
    bool on_rail = c->path_tx || c->path_rx;

    stat_addr(&c->local, cell[LOCAL]);
    stat_addr(&c->peer, cell[PEER]);
    put_path(cell[PATH], c);
    if (c->path_tx && c->path_rx)
        ;
    else if (c->peer_reason)
        snprintf(cell[REASON], CELL, "%s, peer: %s", cfg_reason_name((int)c->reason),
                 cfg_reason_name((int)c->peer_reason));
    else
        snprintf(cell[REASON], CELL, "%s", cfg_reason_name((int)c->reason));
    put_bytes(r, c->tx, c->rx, c->rail_tx, c->rail_rx);
    if (c->rated)
        put_rates(r, c->tx_rate, c->rx_rate, view);
    put_ring(cell[TX_RING], c->tx_used_known, c->tx_used, on_rail ? c->tx_ring : 0);
    put_ring(cell[RX_RING], c->rx_used_known, c->rx_used, on_rail ? c->rx_ring : 0);
    if (c->tx_used_known)
        put_number(cell[CREDIT], c->tx_ring - c->tx_used);
    put_pause(cell[PAUSE], c->pause_last);
    put_number(cell[RETRIES], c->retries);
    put_number(cell[SWITCHES], c->switches);
}

static void fill_closed(struct row *r, const struct stat_closed *c, const struct stat_view *view)
{
    snprintf(r->cell[LOCAL], CELL, "%" PRIu64 " closed", c->connections);
    snprintf(r->cell[PEER], CELL, "%" PRIu64 " boarded", c->boarded);
    put_bytes(r, c->tx, c->rx, c->rail_tx, c->rail_rx);
    if (c->rated)
        put_rates(r, c->tx_rate, c->rx_rate, view);
}

static const struct row *fill(struct row *r, const struct item *item, const struct stat_view *view)
{
    put_head(r, item->process);
    if (item->conn)
        fill_open(r, item->conn, view);
    else
        fill_closed(r, &item->process->closed, view);
    return r;
}

static bool is_shown(enum column i, const struct stat_view *view)
{
    return (!columns[i].rates || view->rates) && (!columns[i].wide || view->wide);
}

static void print_row(FILE *f, const int width[COLUMNS], const struct row *r,
                      const struct stat_view *view)
{
    for (unsigned at = 0; at < COLUMNS; at++) {
        enum column i = view->by_rate ? rates_first[at] : (enum column)at;

        if (is_shown(i, view))
            fprintf(f, "%s%*s", at ? "  " : "", columns[i].left ? -width[i] : width[i],
                    r ? r->cell[i] : columns[i].head);
    }
    fputc('\n', f);
}

static int by_rate(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    uint64_t m, n;

    if (!x->conn || !y->conn)
        return !x->conn - !y->conn;
    m = stat_plus(x->conn->tx_rate, x->conn->rx_rate);
    n = stat_plus(y->conn->tx_rate, y->conn->rx_rate);
    if (m == n) {
        m = stat_plus(x->conn->tx, x->conn->rx);
        n = stat_plus(y->conn->tx, y->conn->rx);
    }
    if (m == n) /* always in the same order, so that the screen is quiet */
        return (x->conn > y->conn) - (x->conn < y->conn);
    return m < n ? 1 : -1;
}

static size_t collect(struct item *items, const struct stat_list *list)
{
    size_t n = 0;

    for (size_t i = 0; i < list->n; i++) {
        const struct stat_process *p = &list->processes[i];

        for (size_t j = 0; j < p->nconns; j++)
            items[n++] = (struct item){p, &p->conns[j]};
        if (!list->some && (p->closed.connections || !p->nconns))
            items[n++] = (struct item){p, NULL};
    }
    return n;
}

void stat_print_table(FILE *f, const struct stat_list *list, const struct stat_view *view)
{
    int width[COLUMNS];
    struct item *items;
    struct row r;
    size_t n = 0;

    for (size_t i = 0; i < list->n; i++)
        n += list->processes[i].nconns + 1;
    items = calloc(n + 1, sizeof(*items));
    if (!items) {
        fputs("railsock stat: out of memory\n", stderr);
        return;
    }
    n = collect(items, list);
    if (view->by_rate)
        qsort(items, n, sizeof(*items), by_rate);
    for (enum column i = 0; i < COLUMNS; i++)
        width[i] = (int)strlen(columns[i].head);
    /* Every line is made twice: the widths come first. */
    for (size_t j = 0; j < n; j++) {
        fill(&r, &items[j], view);
        for (enum column i = 0; i < COLUMNS; i++)
            if ((int)strlen(r.cell[i]) > width[i])
                width[i] = (int)strlen(r.cell[i]);
    }
    print_row(f, width, NULL, view);
    for (size_t i = 0; i < n; i++)
        print_row(f, width, fill(&r, &items[i], view), view);
    free(items);
}
