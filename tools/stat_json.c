/*
 * stat_json.c - `railsock stat --json`. The keys are described in tools/README.md.
 */
#include "tools/stat_print.h"

#include "config/reason.h"
#include "tools/json.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

static void put_key_string(FILE *f, const char *key, const char *text)
{
    fprintf(f, ",\"%s\":", key);
    json_string(f, text);
}

static void put_time(FILE *f, uint64_t ns)
{
    time_t s = (time_t)(ns / 1000000000);
    char text[40];
    struct tm tm;

    if (!ns || !gmtime_r(&s, &tm) || !strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm))
        fputs("null", f);
    else
        fprintf(f, "\"%s.%03uZ\"", text, (unsigned)(ns / 1000000 % 1000));
}

static void put_number_or_null(FILE *f, const char *key, bool known, uint64_t value)
{
    if (known)
        fprintf(f, ",\"%s\":%" PRIu64, key, value);
    else
        fprintf(f, ",\"%s\":null", key);
}

static void put_connection(FILE *f, const struct stat_conn *c)
{
    char addr[STAT_ADDR_SIZE];

    fprintf(f, "{\"fd\":%d", c->fd);
    stat_addr(&c->local, addr);
    put_key_string(f, "local", addr);
    stat_addr(&c->peer, addr);
    put_key_string(f, "peer", addr);
    put_key_string(f, "role", c->accepted ? "accepted" : "connected");
    put_key_string(f, "path", stat_path_name(stat_path(c)));
    put_key_string(f, "path_tx", stat_path_name(c->path_tx));
    put_key_string(f, "path_rx", stat_path_name(c->path_rx));
    put_key_string(f, "reason", cfg_reason_name((int)c->reason));
    fprintf(f, ",\"reason_number\":%u", c->reason);
    put_key_string(f, "peer_reason", cfg_reason_name((int)c->peer_reason));
    fprintf(f,
            ",\"tx\":%" PRIu64 ",\"rx\":%" PRIu64 ",\"rail_tx\":%" PRIu64 ",\"rail_rx\":%" PRIu64,
            c->tx, c->rx, c->rail_tx, c->rail_rx);
    fputs(",\"boarded_at\":", f);
    put_time(f, c->boarded_at);
    fprintf(f, ",\"switches\":%" PRIu32 ",\"retries\":%" PRIu32, c->switches, c->retries);
    put_key_string(f, "where", stat_path(c) ? c->where : "");
    put_number_or_null(f, "tx_rate", c->rated, c->tx_rate);
    put_number_or_null(f, "rx_rate", c->rated, c->rx_rate);
    put_number_or_null(f, "tx_ring", c->tx_ring, c->tx_ring);
    put_number_or_null(f, "tx_ring_used", c->tx_used_known, c->tx_used);
    put_number_or_null(f, "tx_credit", c->tx_used_known, c->tx_ring - c->tx_used);
    put_number_or_null(f, "rx_ring", c->rx_ring, c->rx_ring);
    put_number_or_null(f, "rx_ring_used", c->rx_used_known, c->rx_used);
    put_number_or_null(f, "pause_last_ns", c->pause_last, c->pause_last);
    put_number_or_null(f, "pause_longest_ns", c->pause_most, c->pause_most);
    fputc('}', f);
}

static void put_closed(FILE *f, const struct stat_closed *c)
{
    const char *comma = "";

    fprintf(f,
            "{\"connections\":%" PRIu64 ",\"boarded\":%" PRIu64 ",\"tx\":%" PRIu64
            ",\"rx\":%" PRIu64 ",\"rail_tx\":%" PRIu64 ",\"rail_rx\":%" PRIu64
            ",\"switches\":%" PRIu64 ",\"reasons\":{",
            c->connections, c->boarded, c->tx, c->rx, c->rail_tx, c->rail_rx, c->switches);
    for (size_t i = 0; i < sizeof(c->by_reason) / sizeof(c->by_reason[0]); i++) {
        const char *name = cfg_reason_name((int)i);

        if (!c->by_reason[i])
            continue;
        if (strcmp(name, "unknown") == 0)
            fprintf(f, "%s\"%zu\":%" PRIu64, comma, i, c->by_reason[i]);
        else
            fprintf(f, "%s\"%s\":%" PRIu64, comma, name, c->by_reason[i]);
        comma = ",";
    }
    fputs("}}", f);
}

static void put_totals(FILE *f, const struct stat_list *list)
{
    struct stat_totals t;
    const char *comma = "";

    stat_total(list, &t);
    fprintf(f, "],\"totals\":{\"connections\":%" PRIu64, t.connections);
    for (size_t i = 0; i <= FB_PATH_VERBS; i++)
        fprintf(f, ",\"%s\":%" PRIu64, stat_path_name((enum fb_path)i), t.path[i]);
    put_number_or_null(f, "closed", !list->some, t.closed_conns);
    fputs(",\"reasons\":[", f);
    for (int i = 0; i < STAT_REASONS; i++) {
        if (!t.open[i] && !t.closed[i])
            continue;
        fprintf(f, "%s{\"reason_number\":%d", comma, i);
        put_key_string(f, "reason", cfg_reason_name(i));
        fprintf(f, ",\"open\":%" PRIu64, t.open[i]);
        put_number_or_null(f, "closed", !list->some, t.closed[i]);
        put_key_string(f, "means", stat_means(&t, i));
        put_key_string(f, "advice", cfg_reason_advice(i));
        fputc('}', f);
        comma = ",";
    }
    fputs("]}", f);
}

void stat_print_json(FILE *f, const struct stat_list *list)
{
    char text[ROOM_MISSING];
    const char *missing = stat_missing(list, text);

    fputs("{\"processes\":[", f);
    for (size_t i = 0; i < list->n; i++) {
        const struct stat_process *p = &list->processes[i];

        fprintf(f, "%s{\"pid\":%" PRIu32, i ? "," : "", p->pid);
        put_key_string(f, "program", p->program);
        fprintf(f, ",\"uid\":%u,\"closed\":", (unsigned)p->uid);
        if (list->some)
            fputs("null", f);
        else
            put_closed(f, &p->closed);
        fputs(",\"connections\":[", f);
        for (size_t j = 0; j < p->nconns; j++) {
            if (j)
                fputc(',', f);
            put_connection(f, &p->conns[j]);
        }
        fputs("]}", f);
    }
    put_totals(f, list);
    fputs(",\"not_shown\":", f);
    if (missing)
        json_string(f, missing);
    else
        fputs("null", f);
    fputs("}\n", f);
}
