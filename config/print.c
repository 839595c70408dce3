/*
 * print.c - see print.h.
 */
#include "config/print.h"

#include "config/log.h"
#include "config/parse.h"

#include <arpa/inet.h>
#include <string.h>

/* As lex.c would read it back. */
static void put_word(FILE *f, const char *text)
{
    bool plain = *text && *text != '#' && *text != '"' && !strpbrk(text, " \t\\{}");

    if (plain) {
        fputs(text, f);
        return;
    }
    fputc('"', f);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', f);
        fputc(*text, f);
    }
    fputc('"', f);
}

static void put_prefix(FILE *f, const struct cfg_prefix *p, bool bracket)
{
    bool v6 = p->family == AF_INET6;
    char addr[INET6_ADDRSTRLEN];

    if (!p->family || !inet_ntop(p->family, p->addr, addr, sizeof(addr))) {
        fputc('*', f);
        return;
    }
    fprintf(f, v6 && bracket ? "[%s]" : "%s", addr);
    if (p->bits != (v6 ? 128 : 32))
        fprintf(f, "/%u", p->bits);
}

static void put_to(FILE *f, const struct cfg_node *n)
{
    if (!n->to.family && n->port_from == 0 && n->port_to == UINT16_MAX)
        return;
    fputs(" to ", f);
    put_prefix(f, &n->to, true);
    if (n->port_from == 0 && n->port_to == UINT16_MAX)
        fputs(":*", f);
    else if (n->port_from == n->port_to)
        fprintf(f, ":%u", n->port_from);
    else
        fprintf(f, ":%u-%u", n->port_from, n->port_to);
}

void cfg_print_values(FILE *f, const struct cfg_stream *s)
{
    char value[32];

    for (unsigned key = 0; key < CFG_KEYS; key++)
        if (key == CFG_SITE_KEY && s->given & 1u << key && s->key_file) {
            fprintf(f, " %s ", cfg_key_name(CFG_SITE_KEY));
            put_word(f, s->key_file);
        } else if (s->given & 1u << key)
            fprintf(f, " %s %s", cfg_key_name((enum cfg_key)key),
                    cfg_key_print((enum cfg_key)key, s, value, sizeof(value)));
    for (const struct cfg_map *m = s->maps; m; m = m->next) {
        fputs(" reach ", f);
        put_prefix(f, &m->tcp, false);
        fputs(" at ", f);
        put_prefix(f, &m->rdma, false);
    }
}

static void put_rule(FILE *f, const struct cfg_node *n)
{
    fputs(n->roles == CFG_SERVER ? "server" : n->roles == CFG_CLIENT ? "client" : "any", f);
    if (n->program) {
        fputs(" program ", f);
        put_word(f, n->program);
    }
    if (n->user) {
        fputs(" user ", f);
        put_word(f, n->user);
    }
    put_to(f, n);
    cfg_print_values(f, &n->v);
}

static void put_log(FILE *f, const struct cfg_node *n)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};

    fputs("log", f);
    if (n->path == CFG_LOG_SYSLOG) {
        fputs(" destination syslog", f);
    } else if (n->path && !*n->path) {
        fputs(" destination stderr", f);
    } else if (n->path) {
        fputs(" destination file ", f);
        put_word(f, n->path);
    }
    if (n->level)
        fprintf(f, " min-level %s", names[n->level - CFG_LOG_ERROR]);
}

void cfg_print_node(FILE *f, const struct cfg_node *n)
{
    switch (n->kind) {
    case CFG_RULE:
        put_rule(f, n);
        break;
    case CFG_DEFAULTS:
        fputs("defaults", f);
        cfg_print_values(f, &n->v);
        break;
    case CFG_LOG:
        put_log(f, n);
        break;
    case CFG_INCLUDE:
        fputs("include ", f);
        put_word(f, n->path);
        break;
    }
    fputc('\n', f);
}

/* Who has said each setting so far. */
struct said {
    const struct cfg_file *key[CFG_KEYS], *maps, *path, *level;
};

/* Takes out of n the settings over which an earlier file has the say: what is printed is one file,
 * in which the later statement would win. True: nothing of n is left. */
static bool leave_out(struct cfg_node *n, struct said *by)
{
    bool some = false;

    for (unsigned key = 0; n->kind == CFG_DEFAULTS && key < CFG_KEYS; key++)
        if (n->v.given & 1u << key && !cfg_may_say(&by->key[key], n)) {
            n->v.given &= ~(1u << key);
            some = true;
        }
    if (n->kind == CFG_DEFAULTS && n->v.maps && !cfg_may_say(&by->maps, n)) {
        n->v.maps = NULL;
        some = true;
    }
    if (n->kind == CFG_LOG && n->path && !cfg_may_say(&by->path, n)) {
        n->path = NULL;
        some = true;
    }
    if (n->kind == CFG_LOG && n->level && !cfg_may_say(&by->level, n)) {
        n->level = 0;
        some = true;
    }
    return some && !(n->kind == CFG_DEFAULTS ? n->v.given || n->v.maps : n->path || n->level);
}

void cfg_print(FILE *f, const struct cfg_rules *r)
{
    struct said by = {0};

    for (const struct cfg_node *n = r->nodes; n; n = n->next) {
        struct cfg_node shown = *n;

        if (!leave_out(&shown, &by))
            cfg_print_node(f, &shown);
    }
}

void cfg_print_errors(FILE *f, const struct cfg_rules *r)
{
    unsigned n = 0;

    for (const struct cfg_error *e = r->errors; e; e = e->next, n++) {
        if (!e->at.line) {
            fprintf(f, "%s%s%s\n", e->at.file ? e->at.file->path : "", e->at.file ? ": " : "",
                    e->text);
            continue;
        }
        fprintf(f, "%s:%u:%u: %s\n", e->at.file->path, e->at.line, e->at.column, e->text);
        if (!e->line || strlen(e->line) + 1 < e->at.column)
            continue;
        fprintf(f, "    %s\n    ", e->line);
        for (const char *p = e->line; p < e->line + e->at.column - 1; p++)
            fputc(*p == '\t' ? '\t' : ' ', f);
        fputs("^\n", f);
    }
    if (r->n_errors > n)
        fprintf(f, "and %u more\n", r->n_errors - n);
}
