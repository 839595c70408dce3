/*
 * rx_feed.c - bytes that a call of the application's own has received while the half was not plain:
 * those of a call that was under way when the guard went up, and all calls of a process that may
 * call nothing else any more.
 */
#include "ipoib_fallback/iov.h"
#include "ipoib_fallback/rx.h"

#include <errno.h>
#include <string.h>

/* What a plain receive that was under way when the guard went up has brought: application bytes up
 * to S, perhaps SWITCH, RESUME, and application bytes again. The frames are taken out in place.
 * Nobody has read from the ring, so the residue begins with the next byte: it is taken as it comes,
 * and what the ring has of it is consumed instead of being skipped. */
ssize_t rx_feed(struct fb_conn *c, const struct iovec *v, int cnt, size_t n)
{
    struct fb_rx *rx = &c->x->rx;
    size_t left = n, out = 0, woff = 0;
    int w = 0;

    if (rx->state == RX_gS && rx_robbed(c, c->fd, n) && rx->end != 0)
        return rx_take_end(c, c->fd);
    for (int i = 0; i < cnt && left > 0; i++) {
        char *p = v[i].iov_base;
        size_t have = v[i].iov_len < left ? v[i].iov_len : left;

        left -= have;
        while (have > 0) {
            uint64_t at = c->s.pub->rx;
            size_t take = have;
            bool frame = false, overlap = false;

            switch ((enum fb_rx_state)rx->state) {
            case RX_gS:
                if (at < rx->S)
                    take = rx->S - at < have ? (size_t)(rx->S - at) : have;
                else if ((uint8_t)*p != rx->c || at > rx->S)
                    rx_no_switch(c);
                else
                    frame = true;
                break;
            case RX_sk:
                if (at == rx->E && rx->skip == 0) {
                    rx_caught_up(c);
                    continue;
                }
                if (rx->skip > 0 && rx->V - rx->skip < at) { /* read from the ring already */
                    take =
                        at - (rx->V - rx->skip) < have ? (size_t)(at - (rx->V - rx->skip)) : have;
                    rx->skip -= take;
                    c->x->own_rx += take;
                    p += take;
                    have -= take;
                    continue;
                }
                take = rx->E - at < have ? (size_t)(rx->E - at) : have;
                overlap = rx->V > at;
                if (overlap && rx->V - at < take)
                    take = (size_t)(rx->V - at);
                break;
            case RX_t:
                break;
            default:
                frame = true;
            }
            if (frame) {
                size_t want = FB_FRAME - rx->frame_at;

                if (rx->end != 0)
                    return out ? (ssize_t)out : rx_take_end(c, c->fd);
                if (take > want)
                    take = want;
                memcpy((char *)&rx->frame + rx->frame_at, p, take);
                rx->frame_at = (uint8_t)(rx->frame_at + take);
                c->x->own_rx += take;
                if (rx->frame_at < FB_FRAME)
                    rx_to(c, RE_PART);
                else
                    rx_take_frame(c);
            } else {
                struct iovec one = {p, take};
                size_t done = 0;

                rx_count(c, &one, 1, take);
                if (overlap) {
                    rx->skip -= take;
                    if (c->x->rail)
                        c->x->rail->wire->rx_consume(c->x->rail, take);
                }
                while (done < take) { /* close the gap that a frame left */
                    size_t room = v[w].iov_len - woff;
                    size_t m = take - done < room ? take - done : room;

                    if (m && (char *)v[w].iov_base + woff != p + done)
                        memmove((char *)v[w].iov_base + woff, p + done, m);
                    woff += m;
                    done += m;
                    if (woff == v[w].iov_len) {
                        w++;
                        woff = 0;
                    }
                }
                out += take;
            }
            p += take;
            have -= take;
        }
    }
    if (rx->state == RX_sk && c->s.pub->rx == rx->E && rx->skip == 0)
        rx_caught_up(c);
    if (out == 0)
        return rx->end != 0 ? rx_take_end(c, c->fd) : FB_RETRY;
    return (ssize_t)out;
}

/* A filter may forbid whatever the library would call to find out where it is. */
bool fb_rx_enter_for_good(struct fb_stream *s)
{
    struct fb_conn *c = conn_of(s);
    struct fb_rx *rx = &c->x->rx;
    uint32_t none = 0;
    bool by_tcp;

    fb_lock(&rx->lock);
    switch ((enum fb_rx_state)rx->state) {
    case RX_r:
    case RX_q2:
        by_tcp = rx->frozen; /* the ring's rest counts as never arrived */
        break;
    case RX_sk:
        by_tcp = s->pub->rx >= rx->V;
        break;
    default:
        by_tcp = true;
    }
    by_tcp = by_tcp && rx->end == 0 && !rx_front_left(c) &&
             atomic_compare_exchange_strong(&s->rx_in, &none, 1);
    rx->by_call = by_tcp;
    if (by_tcp)
        conn_set(c, CF_BY_CALL);
    rx_unlock(c);
    return by_tcp;
}

ssize_t rx_by_call_left(struct fb_conn *c, ssize_t n, const struct iovec *v, int cnt)
{
    struct fb_rx *rx = &c->x->rx;

    fb_lock(&rx->lock);
    rx->by_call = false;
    atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_BY_CALL);
    atomic_fetch_sub(&c->s.rx_in, 1);
    if (n > 0) {
        n = rx_feed(c, v, cnt, (size_t)n);
    } else if (n == 0 && fb_iov_size(v, cnt) > 0 && !c->shut &&
               (rx->state == RX_r || rx->state == RX_q2)) {
        rx_over(c, 0);
        n = c->s.pub->rx < rx->V ? FB_RETRY : rx_take_end(c, c->fd);
    } else if (n == 0 && fb_iov_size(v, cnt) > 0 && !c->shut && rx->state == RX_sk &&
               c->s.pub->rx < rx->E) {
        /* Of what the sender has sent something is missing. */
        rx_ended(c, -ECONNRESET);
        n = rx_take_end(c, c->fd);
    } else {
        n = conn_told(c, n);
    }
    rx_unlock(c);
    return n;
}
