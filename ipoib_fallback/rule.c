/*
 * rule.c - see rule.h. A stream's settings are a pointer to what never changes: the rule's, or
 * those of no rule. Two threads that come here at once for one stream find the same.
 */
#include "ipoib_fallback/rule.h"

#include "config/env.h"
#include "config/rules.h"
#include "ipoib_fallback/find.h"

#include <signal.h>

/*
 * Held while files are read, which is the one time that a lock of ours is held across something
 * slow: who has made a connection meanwhile waits, because it must not board before it is known
 * whether it may. All signals are blocked before it is taken: a handler on the holder's thread
 * might connect as well, and wait for it, or leave by longjmp. The holder takes no other lock.
 */
static struct fb_lock reading;

/* False: the rules are not known, for want of a descriptor. */
static bool read_rules(void)
{
    uint64_t mask = sys_block_signals();
    bool known;

    fb_lock(&reading);
    known = cfg_rules_load();
    fb_unlock(&reading);
    sys_restore_signals(mask);
    return known;
}

void rule_read(void)
{
    if (cfg.rules && !cfg_rules_loaded())
        (void)read_rules();
}

static void stay(struct fb_conn *c, int reason)
{
    /* Pinned for another reason, it keeps that. */
    if (conn_set(c, CF_PINNED)) {
        conn_set(c, CF_ASKED);
        conn_reason(c, reason);
    }
    /* Not only as long as a child may use it. */
    atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_LENT);
}

void rule_find(struct fb_conn *c, const struct rsk_tuple *t)
{
    const struct cfg_stream *set;

    if (!cfg_rules_loaded() && !read_rules()) {
        stay(c, RSN_LIMIT_FD);
        return;
    }
    set = cfg_rules_stream(c->s.role == FB_ACCEPTED ? CFG_SERVER : CFG_CLIENT, t->family, t->dst,
                           t->dst_port);
    atomic_store_explicit(&c->set, set, memory_order_release);
    if (set->reason)
        stay(c, set->reason);
}

void rule_route(const struct rsk_tuple *t, void *owner, struct rsk_route *route)
{
    struct fb_conn *c = owner;
    const struct cfg_stream *set;

    if (c)
        fb_get(&c->s);
    else
        c = conn_find(t);
    if (!c)
        return;
    set = conn_config(c);
    route->tos = set->tos;
    (void)cfg_map_apply(set->maps, t->family, route->src);
    (void)cfg_map_apply(set->maps, t->family, route->dst);
    fb_put(&c->s);
}

void rule_forget(void)
{
    reading = (struct fb_lock){0};
    cfg_rules_forget();
}
