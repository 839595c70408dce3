/*
 * build.c - see build.h.
 */
#include "config/build.h"

#include <string.h>

/* The statement that is being read; one that nobody sees after an error, so that the values in it
 * are looked at all the same. NULL: no memory. */
static struct cfg_node *node_of(struct cfg_parse *p)
{
    if (!p->node)
        p->node = cfg_arena_take(&p->rules->arena, sizeof(*p->node));
    if (!p->node)
        p->rules->full = true;
    return p->node;
}

static void complain(struct cfg_parse *p, const struct cfg_word *w, const char *expected)
{
    cfg_complain(p->rules, w->at, "expected %s, not \"%.60s\"", expected, w->text);
}

static void twice(struct cfg_parse *p, const struct cfg_word *w, const char *what)
{
    cfg_complain(p->rules, w->at, "expected %s only once in a statement", what);
}

void cfg_build_begin(struct cfg_parse *p, enum cfg_kind kind, unsigned roles,
                     const struct cfg_word *w)
{
    struct cfg_node *n;

    p->node = NULL;
    n = node_of(p);
    if (!n)
        return;
    n->kind = kind;
    n->roles = roles;
    n->at = w->at;
    n->port_to = UINT16_MAX;
    n->v = cfg_stream_defaults;
}

void cfg_build_finish(struct cfg_parse *p)
{
    struct cfg_node *n = p->node;

    p->node = NULL;
    if (!n)
        return;
    if (p->rules->n_nodes == CFG_MAX_NODES) {
        cfg_complain(p->rules, n->at, "expected no more than %d statements", CFG_MAX_NODES);
        p->rules->full = true;
        return;
    }
    p->rules->n_nodes++;
    *p->end = n;
    p->end = &n->next;
}

static bool any(const struct cfg_word *w)
{
    return strcmp(w->text, "*") == 0;
}

void cfg_build_program(struct cfg_parse *p, const struct cfg_word *w)
{
    struct cfg_node *n = node_of(p);

    if (!n)
        return;
    if (n->program)
        twice(p, w, "program");
    n->program = w->text;
}

void cfg_build_user(struct cfg_parse *p, const struct cfg_word *w)
{
    struct cfg_node *n = node_of(p);

    if (!n)
        return;
    if (n->user)
        twice(p, w, "user");
    if (!*w->text || any(w)) {
        complain(p, w, "a user's name or number");
        return;
    }
    n->user = w->text;
    n->uid = cfg_word_uid(p->rules, w->text);
}

void cfg_build_to(struct cfg_parse *p, const struct cfg_word *w)
{
    struct cfg_node *n = node_of(p);
    const char *expected;

    if (!n)
        return;
    if (n->has_to)
        twice(p, w, "to");
    n->has_to = true;
    expected = cfg_word_endpoint(w->text, &n->to, &n->port_from, &n->port_to);
    if (expected)
        complain(p, w, expected);
}

void cfg_build_value(struct cfg_parse *p, const struct cfg_word *key, const struct cfg_word *value)
{
    struct cfg_node *n = node_of(p);
    enum cfg_key k = CFG_MODE;

    if (!n)
        return;
    while (strcmp(cfg_key_name(k), key->text) != 0) /* the lexer has found it there */
        k++;
    if (n->v.given & 1u << k)
        twice(p, key, key->text);
    else if (k == CFG_TOS && n->kind == CFG_RULE && n->roles == CFG_SERVER)
        cfg_complain(p->rules, key->at,
                     "expected tos in a client rule: the connecting end chooses it for both");
    if (!cfg_key_parse(k, value->text, &n->v))
        complain(p, value, cfg_key_expected(k));
    else if (k == CFG_SITE_KEY && n->v.key_file)
        n->v.key_file = cfg_path_of(p->rules, value->text, p->file);
    if (k == CFG_SITE_KEY)
        n->key_at = value->at;
}

void cfg_build_map(struct cfg_parse *p, const struct cfg_word *tcp, const struct cfg_word *rdma)
{
    struct cfg_node *n = node_of(p);
    struct cfg_map *m, **at;

    if (!n)
        return;
    m = cfg_arena_take(&p->rules->arena, sizeof(*m));
    if (!m) {
        p->rules->full = true;
        return;
    }
    if (!cfg_word_prefix(tcp->text, false, &m->tcp)) {
        complain(p, tcp, "an address, like 10.1.0.0/16 or fd00::/64");
        return;
    }
    if (!cfg_word_prefix(rdma->text, false, &m->rdma) || m->rdma.family != m->tcp.family ||
        m->rdma.bits != m->tcp.bits) {
        complain(p, rdma, "an address of the same family with as many bits as the one before");
        return;
    }
    for (at = &n->maps; *at; at = &(*at)->next)
        ;
    *at = m;
    n->v.maps = n->maps;
}

void cfg_build_log(struct cfg_parse *p, const struct cfg_word *w, const char *file)
{
    struct cfg_node *n = node_of(p);

    if (!n)
        return;
    if (n->path)
        twice(p, w, "destination");
    if (file == w->text && !*file)
        complain(p, w, "a file's name");
    n->path = file;
}

void cfg_build_level(struct cfg_parse *p, const struct cfg_word *w)
{
    struct cfg_node *n = node_of(p);

    if (!n)
        return;
    if (n->level)
        twice(p, w, "min-level");
    n->level = cfg_word_level(w->text);
    if (!n->level)
        complain(p, w, "a level, 1 to 9, or error, warn, info or debug");
}

void cfg_build_path(struct cfg_parse *p, const struct cfg_word *w)
{
    struct cfg_node *n = node_of(p);

    if (!n)
        return;
    if (!*w->text)
        complain(p, w, "a file's name");
    n->path = w->text;
}

void cfg_build_use(struct cfg_parse *p, const struct cfg_word *what, const struct cfg_word *role,
                   const struct cfg_word *program, const struct cfg_word *to)
{
    struct cfg_node *n = node_of(p);

    if (!n)
        return;
    if (strcmp(role->text, "server") == 0 || strcmp(role->text, "listen") == 0)
        n->roles = CFG_SERVER;
    else if (strcmp(role->text, "client") == 0 || strcmp(role->text, "connect") == 0)
        n->roles = CFG_CLIENT;
    else
        complain(p, role, "server, listen, client or connect");
    /* sdp and both are one: a connection begins on TCP, and its rail falls back to that. */
    if (strcmp(what->text, "tcp") == 0)
        cfg_key_parse(CFG_MODE, "tcp", &n->v);
    else if (strcmp(what->text, "sdp") == 0 || strcmp(what->text, "both") == 0)
        cfg_key_parse(CFG_MODE, "auto", &n->v);
    else
        complain(p, what, "tcp, sdp or both");
    if (!any(program))
        cfg_build_program(p, program);
    cfg_build_to(p, to);
}
