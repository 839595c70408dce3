/*
 * wake.c - who is told what: news from a rail or the progress thread goes to
 * blocked threads (futex words), pollers and epoll instances (watchers); control
 * messages go into the mailbox and become work for the halves. Any thread.
 */
#include "ipoib_fallback/stream.h"

#include "rsock/shard.h"

#include <limits.h>
#include <string.h>

void conn_wake_word(_Atomic uint32_t *word)
{
    atomic_fetch_add(word, 1);
    sys_futex(word, FUTEX_WAKE, INT_MAX, NULL);
}

void conn_wake(struct fb_conn *c, unsigned events)
{
    struct rsk_rail *rail;
    bool rx, tx;

    atomic_fetch_add(&c->x->changes, 1);
    rx = (events & (RSK_RX | RSK_FAIL | FB_EV_STATE)) && atomic_load(&c->x->rx_waiters);
    tx = (events & (RSK_TX | RSK_FAIL | FB_EV_STATE)) && atomic_load(&c->x->tx_waiters);
    if (rx)
        conn_wake_word(&c->x->rx_futex);
    if (tx)
        conn_wake_word(&c->x->tx_futex);
    fb_lock(&c->watch_lock);
    rail = c->x->rail;
    if (rail && rx)
        conn_wake_word(rail->rx_word);
    if (rail && tx)
        conn_wake_word(rail->tx_word);
    for (struct fb_watcher *w = c->watchers, *next; w; w = next) {
        next = w->next;
        w->wake(w, events);
    }
    fb_unlock(&c->watch_lock);
}

/* From a drain, which may hold one of our locks further up its stack: only flags,
 * words and posts. */
void conn_notify(struct rsk_rail *rail, unsigned events)
{
    struct fb_conn *c = rail->owner;

    if (!c ||
        atomic_load(&c->x->rail) != rail) /* it has been given back, and is not destroyed yet */
        return;
    if (events & RSK_FAIL) {
        atomic_fetch_or(&c->x->tx_todo, TODO_FAIL);
        atomic_fetch_or(&c->x->rx_todo, TODO_FAIL);
    }
    if (events & RSK_TX)
        atomic_fetch_or(&c->x->tx_todo, TODO_PUSH);
    if (events & (RSK_CTL | RSK_FAIL))
        link_serve(c);
    else if (events & RSK_TX)
        link_push(c);
    conn_wake(c, events);
}

/* A peer may send as fast as we take; whoever is here has something else to do as well. */
#define MAIL_MOST 128

bool conn_mail(struct fb_conn *c)
{
    struct rsk_rail *rail;
    unsigned taken = 0;
    struct rsk_msg m;
    uint32_t tx = 0, rx = 0;
    bool hello = false, answer = false;

    if (!c->x->rail)
        return false;
    /* Not by trying: a message that comes while the holder has just found nothing
     * would be nobody's. */
    fb_lock(&c->x->ctl_lock);
    rail = c->x->rail; /* stays while ctl is held */
    while (rail && taken < MAIL_MOST && rail->wire->ctl_recv(rail, &m) == 1) {
        struct fb_mail *mail = &c->x->mail;

        taken++;
        if (m.epoch != c->x->epoch && m.type > FM_REFUSED)
            continue;
        switch (m.type) {
        case FM_ANN:
            mail->ann = true;
            mail->ann_att = m.att;
            mail->ann_S = m.a;
            mail->ann_c = (uint8_t)m.b;
            rx |= TODO_MAIL;
            break;
        case FM_ACK:
            answer = true;
            mail->ack = true;
            mail->ack_att = m.att;
            mail->ack_R = m.b == 1 ? m.a : UINT64_MAX;
            break;
        case FM_NAK:
            answer = true;
            mail->nak = true;
            mail->nak_att = m.att;
            mail->nak_reason = m.reason;
            break;
        case FM_ECHO:
            mail->echo = true;
            memcpy(mail->echo_X, m.data, 16);
            tx |= TODO_MAIL;
            break;
        case FM_LARGER:
            atomic_store(&c->x->bulk, true);
            atomic_store(&c->x->larger, true);
            /* fall through */
        case FM_LEAVE_REQ:
            mail->leave_req = true;
            mail->leave_R = m.a;
            mail->handed |=
                m.type == FM_LEAVE_REQ && m.reason != RSN_IDLE && m.reason != RSN_BUFFER;
            tx |= TODO_MAIL;
            break;
        case FM_OWED:
            break; /* the frame comes with the next bytes; nothing to do until then */
        case FM_HELLO:
        case FM_HELLO_ACK:
        case FM_PROVED:
        case FM_REFUSED:
        case FM_BYE:
            if (!mail->hello_due ||
                mail->hello.type != FM_REFUSED) /* BYE follows it; keep the reason */
                mail->hello = m;
            mail->hello_due = true;
            hello = true;
            break;
        default:
            break; /* from a later version */
        }
    }
    fb_unlock(&c->x->ctl_lock);
    if (answer && c->x->tx.state == TX_FX)
        conn_wake(c, RSK_TX);
    if (tx)
        atomic_fetch_or(&c->x->tx_todo, tx);
    if (rx)
        atomic_fetch_or(&c->x->rx_todo, rx);
    if (hello)
        link_hello(c);
    if (taken == MAIL_MOST)
        link_serve(c); /* the rest, for nobody may tell of it again */
    return tx || rx || hello;
}

void conn_todo_tx(struct fb_conn *c, uint32_t bits)
{
    atomic_fetch_or(&c->x->tx_todo, bits);
}

void conn_todo_rx(struct fb_conn *c, uint32_t bits)
{
    atomic_fetch_or(&c->x->rx_todo, bits);
}

/* A half that is busy serves its bits itself when it unlocks (lock.h). Serving one half can leave
 * work for the other: hence the loop, which is short because no bit makes itself again. */
void conn_serve(struct fb_conn *c)
{
    for (int i = 0; i < 4; i++) {
        bool any = false;

        if (atomic_load(&c->x->rx_todo) && fb_trylock(&c->x->rx.lock)) {
            rx_serve(c);
            rx_unlock(c);
            any = true;
        }
        if (atomic_load(&c->x->tx_todo) && fb_trylock(&c->x->tx.lock)) {
            tx_serve(c);
            tx_unlock(c);
            any = true;
        }
        if (!any)
            return;
    }
}

void fb_watch(struct fb_stream *s, struct fb_watcher *w, struct rsk_shard *shard)
{
    struct fb_conn *c = conn_of(s);
    struct rsk_shard *old = NULL;

    if (shard)
        rsk_shard_get(shard);
    fb_lock(&c->watch_lock);
    w->next = c->watchers;
    w->prev = &c->watchers;
    if (w->next)
        w->next->prev = &w->next;
    c->watchers = w;
    if (shard) /* who reads it takes a reference in such a section: conn_shard */
        old = atomic_exchange(&c->prefer, shard);
    fb_unlock(&c->watch_lock);
    rsk_shard_put(old);
}

void fb_unwatch(struct fb_stream *s, struct fb_watcher *w, struct rsk_shard *shard)
{
    struct fb_conn *c = conn_of(s);
    struct rsk_shard *mine = shard;
    bool dropped;

    fb_lock(&c->watch_lock);
    if (w->prev) {
        *w->prev = w->next;
        if (w->next)
            w->next->prev = w->prev;
        w->prev = NULL;
        w->next = NULL;
    }
    dropped = shard && atomic_compare_exchange_strong(&c->prefer, &mine, NULL);
    fb_unlock(&c->watch_lock);
    if (dropped) /* the instance has one as well */
        rsk_shard_put(shard);
}
