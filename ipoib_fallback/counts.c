/*
 * counts.c - what else can be asked of a stream: FIONREAD, SIOCOUTQ, what has come and gone since
 * an edge was told, and the pending error, of ring and anchor as one stream. As exact as
 * readiness (ready.c).
 */
#include "ipoib_fallback/hold.h"
#include "ipoib_fallback/rx.h"
#include "ipoib_fallback/stream.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <sys/ioctl.h>

int fb_so_error(struct fb_stream *s)
{
    struct fb_conn *c = conn_of(s);

    /* The gate is up where there is one, but for a moment where there is or was a rail. Who never
     * wanted one has no page to look. */
    return conn_flag(c, CF_LINKED) || atomic_load(&s->tx_gate) ? conn_tell(c) : 0;
}

void fb_told(struct fb_stream *s, int fd)
{
    /* An error that ends nothing, as IP_RECVERR shows some, leaves the stream as it was. */
    if (atomic_load(&s->rx_gate) && fb_io.poll(fd, 0) & POLLHUP)
        atomic_store(&conn_of(s)->x->told, true);
}

void fb_keep_error(struct fb_stream *s, int err)
{
    conn_untold(conn_of(s), err);
}

/* Bytes that a receive would find. rx lock held. */
static int inq(struct fb_conn *c, int fd)
{
    struct rsk_rail *rail = c->x->rail;
    struct iovec have[2];
    int n = 0;

    if (c->x->rx.state != RX_r && c->x->rx.state != RX_q2)
        n = fb_io.inq(fd);
    switch ((enum fb_rx_state)c->x->rx.state) {
    case RX_r:
    case RX_q2:
        n = rail && !c->x->rx.frozen ? (int)rail->wire->rx_peek(rail, have) : 0;
        break;
    case RX_gS:
    case RX_f2:
        if (n > 0 && c->s.pub->rx < c->x->rx.S && (uint64_t)n > c->x->rx.S - c->s.pub->rx) {
            size_t more = rx_ahead_count(c, fd);

            /* Perhaps there was no switch after all. */
            n = c->x->rx.state == RX_t ? fb_io.inq(fd) : (int)(c->x->rx.S - c->s.pub->rx + more);
        } else if (n > 0 && c->s.pub->rx >= c->x->rx.S) {
            n = 0; /* a part of the frame */
        }
        break;
    case RX_sk: {
        uint64_t at = c->s.pub->rx, kernel = n > 0 ? (uint64_t)n : 0;

        /* Also beyond E: no frame comes before this half is plain. */
        kernel = kernel > c->x->rx.skip ? kernel - c->x->rx.skip : 0;
        n = (int)(kernel + (c->x->rx.V > at ? c->x->rx.V - at : 0));
        break;
    }
    default:
        break;
    }
    return n < 0 ? n : n + (int)rx_front_left(c);
}

bool rx_enough(struct fb_conn *c, int fd)
{
    int low = 1;
    socklen_t len = sizeof(low);

    return sys_getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, &len) < 0 || inq(c, fd) >= low;
}

int fb_inq(struct fb_stream *s, int fd)
{
    struct fb_conn *c = conn_of(s);
    int n;

    fb_lock(&c->x->rx.lock);
    /* Who only asks for the count must get past a frame, too. */
    (void)rx_readable(c, fd);
    n = inq(c, fd);
    if (n == 0)
        conn_no_data_here(c);
    rx_unlock(c);
    return n;
}

/* What has come of the stream so far, read or not; 0: not known. rx lock held. */
static uint64_t come(struct fb_conn *c, int fd, bool ended)
{
    uint64_t n, at;
    int unread;
    bool alone;

    if (c->x->rx.state == RX_gS || c->x->rx.state == RX_f2)
        (void)rx_readable(c, fd); /* past the frame, if it is its turn */
    /* SIOCINQ stops at urgent data. */
    if (c->x->rx.state == RX_t) {
        n = fb_io.received(fd);
        return n ? n - ended + conn_rail_rx(c) - c->x->own_rx + 1 : 0;
    }
    alone = atomic_load(&c->s.rx_in) == 0;
    at = c->s.pub->rx;
    unread = inq(c, fd);
    /* No plain receive was under way, nor has there been one between the two counts. */
    alone = alone && atomic_load(&c->s.rx_in) == 0 && c->s.pub->rx == at;
    return alone && unread >= 0 ? at + (uint64_t)unread + 1 : 0;
}

/* What was sent, in the same way. */
static uint64_t sent(struct fb_conn *c)
{
    bool alone = atomic_load(&c->s.tx_in) == 0;
    uint64_t n = c->s.pub->tx + ((uint64_t)atomic_load(&c->x->no_room) << 44);

    return alone && atomic_load(&c->s.tx_in) == 0 ? n + 1 : 0;
}

/* Bytes that another process takes are not counted here. */
static bool countable(struct fb_conn *c)
{
    return !conn_without_rail(atomic_load(&c->s.flags)) && !conn_flag(c, CF_SHARED | CF_LENT) &&
           !(atomic_load(&c->s.pub->lent) & FB_LENT_FOREIGN);
}

/*
 * Can come() be counted on? A pinned stream may have calls that go past the library, and what they
 * read is not counted, which matters in gS and f2, where it is a part of the sum. In other states
 * the stream leaves its rail first, if it has one, and then the kernel tells once more what was
 * told before. What such calls send is not counted either (conn_tally).
 */
static bool counts_in(struct fb_conn *c)
{
    return !conn_flag(c, CF_PINNED) || (c->x->rx.state != RX_gS && c->x->rx.state != RX_f2);
}

struct fb_tally conn_tally(struct fb_conn *c, int fd, bool ended)
{
    struct fb_tally t = {0};

    if (!countable(c))
        return t;
    if (counts_in(c))
        t.in = come(c, fd, ended);
    if (t.in)
        t.in += ((uint64_t)(atomic_load(&c->x->no_data) + c->x->rx.no_data) << 44) +
                ((uint64_t)ended << 63);
    if (!conn_flag(c, CF_PINNED))
        t.out = sent(c);
    return t;
}

struct fb_tally fb_tally(struct fb_stream *s, int fd)
{
    struct fb_conn *c = conn_of(s);
    struct fb_tally t = {0};
    bool ended;

    if (!countable(c))
        return t;
    ended = fb_ready(s, fd, POLLRDHUP) & (POLLRDHUP | POLLHUP);
    fb_lock(&c->x->rx.lock);
    t = conn_tally(c, fd, ended);
    rx_unlock(c);
    return t;
}

int fb_inq_told(struct fb_stream *s, int fd)
{
    int n;

    if (!conn_of(s)->x->tells_inq || hold_for_good())
        return -1;
    n = fb_inq(s, fd);
    if (n < 0)
        n = 0;
    /* As TCP: the end that has come counts as a byte. One that this end has made
     * itself does not. */
    return n + (!conn_of(s)->shut && (fb_ready(s, fd, POLLRDHUP) & POLLRDHUP) != 0);
}

bool fb_stamps(struct fb_stream *s)
{
    conn_settings(conn_of(s));
    return conn_of(s)->x->stamps && !hold_for_good();
}

/* Of so many that nobody has read: what is there is acknowledged, up to the window, which may be
 * less at this moment. */
static int unacknowledged(int fd, uint64_t unread)
{
    enum { WINDOW = 65536 };
    struct tcp_info ti = {0};
    socklen_t len = sizeof(ti);
    uint64_t window;

    if (unread <= WINDOW)
        return 0;
    sys_getsockopt(fd, IPPROTO_TCP, TCP_INFO, &ti, &len);
    window = ti.tcpi_snd_wnd > WINDOW ? ti.tcpi_snd_wnd : WINDOW;
    return unread > window ? (int)(unread - window) : 0;
}

int fb_outq(struct fb_stream *s, int fd)
{
    struct fb_conn *c = conn_of(s);
    struct rsk_rail *rail;
    int n = 0;

    sys_ioctl(fd, SIOCOUTQ, &n);
    fb_lock(&c->x->tx.lock);
    rail = c->x->rail;
    if (c->x->tx.state == TX_R && rail) {
        uint64_t sent = c->s.pub->tx, read = rail->wire->tx_freed(rail);
        uint64_t there = rail->wire->tx_arrived ? rail->wire->tx_arrived(rail) : sent;

        n += (int)(sent - there) + unacknowledged(fd, there - read);
    } else if (c->x->tx.state >= TX_L1) {
        n += (int)(c->x->tx.E - (c->x->tx.state == TX_L3 ? c->x->tx.cur : c->x->tx.F));
    }
    tx_unlock(c);
    return n;
}
