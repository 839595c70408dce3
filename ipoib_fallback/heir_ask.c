/*
 * heir_ask.c - the owner answers a child that asks for a stream, or for an epoll instance: leaves
 * the rail, and takes out what cannot be left in TCP (rx_front.c). Progress thread.
 */
#include "ipoib_fallback/heir.h"
#include "ipoib_fallback/rx.h"

#include "config/log.h"
#include "rsock/loop.h"
#include "rsock/own.h"
#include "rsock/shm_bell.h"
#include "rsock/shm_msg.h"
#include "rsock/strange.h"

#include <stdlib.h>
#include <sys/mman.h>

#define STEP_NS 200000ull
/* An application that reads takes by itself what cannot be left in TCP. */
#define FRONT_NS 5000000ull
/* Looks at what is in front: at first, and later. */
#define FRONT_LOOK_NS 50000000ull
#define FRONT_RARE_NS 4000000000ull

/* Each has a descriptor of ours. */
enum { MAX_ASKS = 256 };
static unsigned n_asks;

static bool (*epoll_asked)(uint64_t id);

void fb_on_epoll_asked(bool (*fn)(uint64_t id))
{
    epoll_asked = fn;
}

bool heir_epoll_asked(uint64_t id)
{
    return !epoll_asked || epoll_asked(id);
}

void heir_asks_forget(void)
{
    n_asks = 0;
}

struct ask {
    struct fb_conn *c; /* referenced; NULL: an epoll instance */
    uint64_t epoll;
    int reply;
    uint64_t until;
    bool knows;    /* it can be told of what is in front: not another program */
    uint64_t read; /* what the owner's application had received, */
    uint64_t at;   /* and since when it has left something */
};

/* Looks whether what is in front has been read. Children may come for it until then, also once the
 * owner has closed: so the stream stays. */
struct front {
    struct fb_conn *c; /* referenced */
    uint64_t pause;
};

static void front_step(void *arg)
{
    struct front *f = arg;
    struct fb_conn *c = f->c;
    bool over = rx_front_look(c);

    if (f->pause < FRONT_RARE_NS)
        f->pause *= 2;
    if (!over && (!conn_flag(c, CF_CLOSED) || heir_linked(c))) {
        if (!rsk_timer_add(f->pause, front_step, f))
            log_warn("stream %u: no memory to look after what a child has asked for", c->s.slot);
        return;
    }
    rx_front_close(c);
    fb_lock(&c->x->tx.lock);
    fb_lock(&c->x->rx.lock);
    if (conn_plain(c) && !c->x->rail)
        heir_settled(c);
    rx_unlock(c);
    tx_unlock(c);
    fb_put(&c->s);
    free(f);
}

/* Memory for so many bytes, and who looks after it. */
static void begin_front(struct fb_conn *c, size_t n)
{
    struct front *f = malloc(sizeof *f);
    size_t size = rx_front_size(n);
    int fd = f ? rsk_own_fd(shm_sealed_memfd("railsock-unread", size)) : -1;
    void *p = fd < 0 ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (p != MAP_FAILED && rx_front_take(c, p, size, fd)) {
        *f = (struct front){c, FRONT_LOOK_NS};
        fb_get(&c->s);
        front_step(f);
        return;
    }
    if (p != MAP_FAILED)
        munmap(p, size);
    rsk_own_close(fd);
    free(f);
}

/* Unread bytes that cannot be left in TCP, and nobody here seems to want them. */
static void take_front(struct ask *a)
{
    uint64_t now = fb_io.now(), read = a->c->s.pub->rx;
    size_t n;

    (void)rx_front_take(a->c, NULL, 0, -1);
    n = rx_front_due(a->c);
    if (!n || read != a->read) {
        a->read = read;
        a->at = now;
    }
    if (n && now - a->at >= FRONT_NS)
        begin_front(a->c, n);
}

/* With what is in front, if there is something. */
static void tell(struct ask *a, uint8_t answer)
{
    struct shm_fds fds = {.n = 0};

    if (answer && a->c && a->knows) {
        fb_lock(&a->c->x->rx.lock); /* nobody gives it back meanwhile */
        if (rx_front_left(a->c))
            fds = (struct shm_fds){.fd = {a->c->x->rx.front_fd - 1}, .n = 1};
        (void)shm_msg_send(a->reply, &answer, 1, &fds);
        rx_unlock(a->c);
    } else {
        (void)shm_msg_send(a->reply, &answer, 1, NULL);
    }
    strange_close(a->reply); /* if nothing was sent the child hears of this, and asks again */
}

/* Before the child hears of it: it shall not have to ask again, for which it may have no
 * descriptor by then. The rail itself may end later (link.c), and a stream that is pinned gets no
 * other one. */
static void handed_over(struct fb_conn *c)
{
    if (conn_plain(c) && conn_flag(c, CF_PINNED))
        heir_settled(c);
}

static void ask_step(void *arg)
{
    struct ask *a = arg;
    bool done = a->c ? end_settled(a->c, RSN_SHARED) : heir_epoll_asked(a->epoll);
    bool front = false; /* once this was so the rest may be read at any moment, by others */
    bool order;
    char who[FB_WHO];

    if (a->knows && done && !end_in_order(a->c) && rx_front_due(a->c))
        done = false; /* it is at its end, and the ring has bytes */
    if (a->knows && !done)
        take_front(a);
    if (a->knows && rx_front_alone(a->c)) {
        front = true;
        done = done || a->c->x->tx.state == TX_T;
    }
    if (!done && fb_io.now() < a->until && rsk_timer_add(STEP_NS, ask_step, a))
        return;
    if (!done && a->c)
        log_warn("stream %u: not handed over to a child in time (%s)", a->c->s.slot,
                 conn_who(a->c, who));
    else if (!done)
        log_warn("an epoll instance is not handed over to a child in time");
    if (!done && a->c)
        end_unsettled(a->c);
    /* Not handed over if the ring has unread bytes of a sender that has ended: those only this
     * process can read. */
    order = a->c && end_in_order(a->c);
    if (done && order)
        handed_over(a->c);
    tell(a, done && (!a->c || front || order));
    if (a->c)
        fb_put(&a->c->s);
    n_asks--;
    free(a);
}

void heir_asked(const struct heir_note *n, int reply, uint32_t seq)
{
    struct ask *a = n_asks < MAX_ASKS ? calloc(1, sizeof *a) : NULL;
    uint8_t answer = 1;

    if (!a) {
        strange_close(reply); /* its end tells the child, which asks again */
        return;
    }
    a->reply = reply;
    a->until = fb_io.now() + HEIR_ASK_NS;
    a->epoll = n->what == HEIR_ASK_EPOLL ? n->id : 0;
    a->c = a->epoll ? NULL : conn_of_slot(n->slot, n->gen);
    /* Made after the fork: it cannot have that, and has no business with it. */
    if (a->c && a->c->born >= seq) {
        fb_put(&a->c->s);
        a->c = NULL;
    }
    if (!a->epoll && !a->c) { /* closed long since */
        sys_send(reply, &answer, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        strange_close(reply);
        free(a);
        return;
    }
    if (a->c) {
        log_info("stream %u: a child wants it", a->c->s.slot);
        a->knows = n->what == HEIR_ASK_STREAM;
        a->read = a->c->s.pub->rx;
        a->at = fb_io.now();
        if (n->what == HEIR_ASK_STREAM_FOR_EVER)
            conn_give_away(a->c);
        else if (!conn_flag(a->c, CF_PINNED))
            conn_set(a->c, CF_LENT);
        fb_pin(&a->c->s, RSN_SHARED, false);
    }
    n_asks++;
    ask_step(a);
}
