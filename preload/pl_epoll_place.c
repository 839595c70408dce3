/*
 * pl_epoll_place.c - members of the ready list that are looked at where they are: streams whose
 * ring alone says what there is (fb_sight), which is asked without waiting for anybody, so the
 * list's lock is kept meanwhile. Everything else is taken off the list and examined without it:
 * pl_epoll_ready.c, which has what may come of a look.
 *
 * Any thread; locks: see pl_epoll.h.
 */
#include "preload/pl_epoll.h"

bool pl_ready_stays_unarmed(struct pl_member *m)
{
    uint8_t idle = atomic_load_explicit(&m->idle, memory_order_relaxed);

    if (idle >= PL_LAZY_TIMES)
        return false;
    atomic_store_explicit(&m->idle, (uint8_t)(idle + 1), memory_order_relaxed);
    return true;
}

static void to_tail(struct pl_member *m)
{
    pl_link_del(&m->ready);
    pl_link_add(&m->ep->ready, &m->ready);
}

/* A stream of which there is nothing else to be told. */
static bool may_look(const struct pl_member *m)
{
    return !m->stash && m->hot && m->stream;
}

static uint32_t bytes_of(const struct pl_member *m)
{
    return m->events & (EPOLLIN | EPOLLRDNORM);
}

/* There are some. */
static void tell_bytes(struct pl_member *m, struct epoll_event *out, uint32_t pass,
                       struct fb_tally tally)
{
    out->events = bytes_of(m);
    out->data.u64 = m->data;
    atomic_store_explicit(&m->idle, 0, memory_order_relaxed);
    m->pass = pass;
    pl_tell(m, out->events, tally);
}

/* One of the list, looked at where it is, if it is a stream whose ring says it all. FB_SOME:
 * levels, which are in *out, and it went to the tail. FB_NONE: nothing holds, and it is where it
 * was. Else it is to be taken off and examined. lock held. */
static enum fb_sight look_in_place(struct pl_member *m, struct epoll_event *out, uint32_t pass)
{
    enum fb_sight see;

    if (!may_look(m))
        return FB_CLOSER;
    see = fb_sight(m->stream, (short)pl_ready_asked(m));
    if (see != FB_SOME)
        return see;
    if (m->events & (EPOLLET | EPOLLONESHOT))
        return FB_CLOSER;
    tell_bytes(m, out, pass, (struct fb_tally){0});
    to_tail(m);
    return FB_SOME;
}

/* The same of who waits for edges, which is armed by it, and off the list. *n: events in *out.
 * False: it is to be examined. */
static bool edge_in_place(struct pl_member *m, struct epoll_event *out, uint32_t pass, int *n)
{
    struct fb_tally tally;
    enum fb_sight see;

    if (!may_look(m) || m->events & EPOLLONESHOT)
        return false;
    see = fb_sight_arm(m->stream, m->fd, (short)pl_ready_asked(m), &tally);
    if (see != FB_SOME && see != FB_NONE)
        return false;
    pl_ready_del(m);
    if (see == FB_SOME && !pl_told(m, bytes_of(m), tally)) {
        tell_bytes(m, out, pass, tally);
        *n = 1;
    }
    return true;
}

bool pl_ready_has_nothing(struct pl_member *m)
{
    struct fb_tally tally;

    return !m->ready.next && may_look(m) &&
           fb_sight_arm(m->stream, m->fd, (short)pl_ready_asked(m), &tally) == FB_NONE;
}

int pl_ready_collect_in_place(struct pl_epoll *ep, struct epoll_event *out, int max, uint64_t since,
                              bool lazy, uint32_t pass, uint32_t *todo)
{
    int n = 0;

    for (unsigned looks = 0; out && looks < PL_TOGETHER && n < max && *todo; looks++, --*todo) {
        struct pl_member *m = pl_of_ready(ep->ready.next);
        enum fb_sight see;
        int one = 0;

        if (&m->ready == &ep->ready || m->pass == pass || m->flip > since)
            break;
        if (m->events & EPOLLET) {
            if (!edge_in_place(m, &out[n], pass, &one))
                break;
            n += one;
            continue;
        }
        see = look_in_place(m, &out[n], pass);
        if (see == FB_SOME) {
            n++;
        } else if (see == FB_NONE && lazy && pl_ready_stays_unarmed(m)) {
            to_tail(m);
        } else {
            break;
        }
    }
    return n;
}

int pl_ready_glance(struct pl_epoll *ep, struct epoll_event *out, int max, bool *closer)
{
    uint32_t pass;
    int n = 0;

    *closer = false;
    fb_lock(&ep->lock);
    pass = pl_ready_pass(ep);
    for (struct pl_link *l = ep->ready.next, *next; l != &ep->ready && n < max; l = next) {
        struct pl_member *m = pl_of_ready(l);
        enum fb_sight see;

        next = l->next;
        if (m->pass == pass)
            break;
        see = look_in_place(m, &out[n], pass);
        if (see == FB_SOME)
            n++;
        else if (see == FB_CLOSER)
            *closer = true;
    }
    fb_unlock(&ep->lock);
    return n;
}
