/*
 * heir_child.c - the child's side of heir.c: it asks for what it inherited before it uses it,
 * makes it its own, and learns when nobody else has it. Any thread of a forked child; heir_alone on
 * its progress thread.
 */
#include "ipoib_fallback/heir.h"

#include "config/log.h"
#include "ipoib_fallback/address.h"
#include "ipoib_fallback/pubfile.h"
#include "ipoib_fallback/rx.h"
#include "rsock/own.h"
#include "rsock/shm_msg.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct gone {
    struct gone *next;
    uint32_t slot, gen, alone;
    struct heir_counts counts;
};

struct fb_heritage {
    int link;
    int32_t pid; /* of the child of that fork; others have it from him */
    uint32_t seq;
    struct fb_pub_file *file;
    struct heir_link *siblings; /* as they were at the fork */
    struct gone *gone;          /* under `told`: what the owner has told */
    bool ended;
};

static struct fb_lock told;
static void *spare; /* memory for them, under `told` */

void heir_child_forget(void)
{
    told = (struct fb_lock){0};
    spare = NULL;
}

void fb_fork_keep(struct fb_fork *f)
{
    if (f->theirs >= 0)
        rsk_own_keep(f->theirs);
}

struct fb_heritage *fb_fork_child(struct fb_fork *f)
{
    /* No malloc: see heir.c. */
    struct fb_heritage *h = f->theirs < 0 ? NULL
                                          : mmap(NULL, sizeof *h, PROT_READ | PROT_WRITE,
                                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (h == MAP_FAILED)
        h = NULL;
    if (h) {
        h->link = f->theirs;
        h->pid = sys_getpid();
        h->siblings = heir_siblings(f->link, &h->seq);
        h->file = fb_pub_hand_on();
    } else if (f->theirs >= 0) {
        rsk_own_close(f->theirs);
    }
    fb_after_fork_child();
    return h;
}

void fb_heritage_end(struct fb_heritage *h)
{
    rsk_own_close(h->link);
    h->link = -1;
    fb_pub_end(h->file);
    h->file = NULL;
}

bool fb_inherited(const struct fb_stream *s)
{
    const struct fb_conn *c = conn_of((struct fb_stream *)s);

    return c->x && c->x->heritage;
}

/* Puts a question, with a socket for the answer; returns ours, or -errno. */
static int post(struct fb_heritage *h, const struct heir_note *n)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec v = {(void *)n, sizeof *n};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int pair[2] = {-1, -1};
    ssize_t r;

    rsk_own_enter();
    r = SYS6(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair, 0, 0);
    /* A child may have set its limit so low that it has to ask from among its own numbers. */
    for (int i = 0; r >= 0 && i < 2; i++)
        pair[i] = sys_hide_if_possible(pair[i]);
    rsk_own_leave();
    if (r < 0)
        return (int)r;
    control.head.cmsg_level = SOL_SOCKET;
    control.head.cmsg_type = SCM_RIGHTS;
    control.head.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.head), &pair[1], sizeof(int));
    r = sys_sendmsg(h->link, &m, MSG_NOSIGNAL);
    sys_close(pair[1]);
    if (r >= 0)
        return pair[0];
    sys_close(pair[0]);
    return (int)r;
}

static bool owner_is_gone(const struct fb_heritage *h)
{
    struct pollfd p = {h->link, 0, 0};
    struct timespec now = {0, 0};

    return sys_ppoll(&p, 1, &now, NULL) > 0 && (p.revents & POLLHUP);
}

/* The answer to a question: 1 with *answer, and perhaps *front; -ETIMEDOUT; or something else:
 * nobody answers it. Gives ours back. */
static ssize_t await(int ours, uint64_t until, uint8_t *answer, int *front)
{
    uint64_t now = sys_now(), ns = now < until ? until - now : 0;
    struct timespec left = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    struct pollfd p = {ours, POLLIN, 0};
    struct shm_fds fds = {.n = 0};
    ssize_t r;

    do
        r = sys_ppoll(&p, 1, &left, NULL);
    while (r == -EINTR);
    r = r > 0 ? shm_msg_recv(ours, answer, 1, &fds) : -ETIMEDOUT;
    sys_close(ours);
    if (r == 1 && fds.n == 1 && front)
        *front = shm_fds_take(&fds, 0);
    shm_fds_close(&fds);
    return r;
}

static uint64_t patience(void)
{
    return sys_now() + HEIR_ASK_NS + 1000000000u;
}

/* 1: the owner has handed it over, and *front, if front is not NULL, is a descriptor of what is in
 * front of it (rx_front.c); 0: it does not answer; -1: it is no more. */
static int ask(struct fb_heritage *h, const struct heir_note *n, int *front, uint64_t until)
{
    while (sys_now() < until) {
        struct timespec pause = {0, 5000000};
        int ours = post(h, n);
        uint8_t answer = 0;
        ssize_t r = ours >= 0 ? await(ours, until, &answer, front) : 0;

        if (r == 1 || r == -ETIMEDOUT)
            return answer == 1;
        if (owner_is_gone(h))
            return -1;
        /* One of us has no descriptors or memory left at this moment. */
        sys_ppoll(NULL, 0, &pause, NULL);
    }
    return 0;
}

/* told held. Takes what the owner has sent. */
static void hear(struct fb_heritage *h)
{
    struct heir_note n = {0};

    while (!h->ended) {
        ssize_t got = sys_recv(h->link, &n, sizeof n, MSG_DONTWAIT);
        struct gone *g;

        if (got == -EAGAIN || got == -EINTR)
            return;
        if (got <= 0) {
            h->ended = true;
            return;
        }
        g = got == sizeof n && n.what == HEIR_LET_GO ? heir_piece(&spare, sizeof *g) : NULL;
        if (!g)
            continue;
        *g = (struct gone){h->gone, n.slot, n.gen, n.alone, n.counts};
        h->gone = g;
    }
}

/* told held. What the owner has said when it let the stream go; NULL: it has not. */
static const struct gone *let_go(struct fb_heritage *h, uint32_t slot, uint32_t gen)
{
    const struct gone *g;

    hear(h);
    for (g = h->gone; g && (g->slot != slot || g->gen != gen); g = g->next)
        ;
    return g;
}

/* By its owner, before it ended: to another program, or by SCM_RIGHTS. Had it been closed first,
 * that was said. */
static bool given_away(const struct fb_heritage *h, const struct fb_conn *c)
{
    const struct fb_pub *pub = &h->file->slot[c->x->old_slot];

    return pub->gen == c->x->old_gen && atomic_load(&pub->lent) & FB_LENT_AWAY;
}

/* Does nobody but this process have the stream any more? */
bool heir_alone(struct fb_heritage *h, const struct fb_conn *c)
{
    const struct gone *said;
    struct heir_link *l;
    bool yes;

    fb_lock(&told);
    said = let_go(h, c->x->old_slot, c->x->old_gen);
    yes = said && said->alone;
    /* An owner that has died, or is another program now, has told nothing. Then it is this
     * process's alone if the owner has not forked since, nor given it away, and no child that it
     * forked before may have it. */
    if (!said && h->ended && h->file && h->file->forks == h->seq && !given_away(h, c)) {
        for (l = h->siblings; l && l->seq <= c->x->old_born; l = l->next)
            ;
        yes = !l;
    }
    fb_unlock(&told);
    return yes;
}

/* The numbers may mean another file by now: closed where nobody saw it. Of a connection that was
 * not worth a rail when the process forked that is not known; then the kernel's counters will
 * disagree before there is one. */
static bool same_connection(struct fb_conn *old, struct fb_conn *c)
{
    return !conn_flag(old, CF_ADDRESSES) || (conn_addresses(c) && old->id == c->id);
}

static struct heir_note question(const struct fb_conn *old, bool for_ever)
{
    return (struct heir_note){.what = for_ever ? HEIR_ASK_STREAM_FOR_EVER : HEIR_ASK_STREAM,
                              .slot = old->s.slot,
                              .gen = old->gen};
}

/* False: the kernel alone has the owner's stream from now on, and nobody has to be told. */
static bool must_ask(struct fb_heritage *h, const struct fb_conn *old, bool for_ever)
{
    struct fb_pub *pub = &h->file->slot[old->s.slot];
    bool busy;

    /* The slot may have been given to another stream since: then this one is closed. */
    if (pub->gen != old->gen)
        return false;
    busy =
        atomic_fetch_or(&pub->lent, for_ever ? FB_LENT_FOREIGN | FB_LENT_AWAY : FB_LENT_FOREIGN) &
        FB_LENT_BUSY;
    return busy || (for_ever && h->file->serving);
}

/* What ask() says of it. True: the kernel alone has it. */
static bool was_lent(struct fb_heritage *h, const struct fb_conn *old, int said)
{
    struct fb_pub *pub = &h->file->slot[old->s.slot];

    if (said >= 0)
        return said == 1;
    /* An orderly end has left the rail; a killed owner took the stream with it. */
    return !(atomic_load(&pub->lent) & FB_LENT_BUSY) || pub->gen != old->gen;
}

/* True: the kernel alone has the stream from now on. */
static bool lend(struct fb_heritage *h, const struct fb_conn *old, int *front)
{
    const struct heir_note n = question(old, false);

    return !must_ask(h, old, false) || was_lent(h, old, ask(h, &n, front, patience()));
}

/* A digest as it was at the fork, of which the bytes up to `passed` may have gone by
 * elsewhere since. */
static uint8_t inherit(struct fb_digest *mine, const struct fb_digest *old, uint8_t mark,
                       uint64_t passed)
{
    if (mark & FB_DIGEST_STATE)
        return mark;
    *mine = *old;
    if (passed)
        fb_digest_unseen(mine, 0, passed);
    return fb_digest_mark(mine);
}

static void front_lost(int fd)
{
    char who[FB_WHO];

    log_error("descriptor %d: no memory for what its owner has handed over: it is reset (%s)", fd,
              address_who(NULL, fd, who));
    sys_reset(fd);
}

/* What its owner has taken out. Gives the descriptor back. False: no memory. */
static bool take_front(struct fb_conn *c, int fd)
{
    struct stat st = {0};
    void *p = SYS6(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH, 0, 0)
                  ? MAP_FAILED
                  : mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    rsk_own_close(fd);
    if (p == MAP_FAILED)
        return false;
    rx_front_inherit(c, p, (size_t)st.st_size, true);
    return true;
}

/* When the owner answered, only what is in front was between the stream and the kernel, and nothing
 * else will be: BUSY goes. An owner that lives finds by itself that it is over. */
void heir_front_over(struct fb_conn *c)
{
    struct fb_heritage *h = c->x->heritage;
    struct fb_pub *pub = h ? &h->file->slot[c->x->old_slot] : NULL;

    if (h && !conn_flag(c, CF_LINKED) && pub->gen == c->x->old_gen)
        atomic_fetch_and(&pub->lent, (uint8_t)~FB_LENT_BUSY);
}

/* What its owner had counted when it let the stream go, if it has said so. Else what its file says
 * now; but the library's own bytes in the kernel are taken from this memory, as of the fork. False:
 * it has not said so, and the slot is not that stream's any more. That is looked at last, since it
 * may have become another's meanwhile. */
static bool owners_counts(struct fb_heritage *h, struct fb_conn *old, struct heir_counts *counts)
{
    const struct fb_pub *pub = old->s.pub;
    const struct gone *said;

    fb_lock(&told);
    said = let_go(h, old->s.slot, old->gen);
    if (said)
        *counts = said->counts;
    fb_unlock(&told);
    if (said)
        return true;
    *counts = (struct heir_counts){.tx = pub->tx, .rx = pub->rx};
    counts->kernel_tx = counts->tx + old->x->own_tx - conn_rail_tx(old);
    counts->kernel_rx = counts->rx + old->x->own_rx - conn_rail_rx(old);
    return atomic_load(&pub->gen) == old->gen;
}

struct fb_stream *fb_adopt(struct fb_heritage *h, struct fb_stream *s, int fd)
{
    struct fb_conn *old = conn_of(s), *c;
    struct fb_stream *mine;
    bool known = old->s.pub->gen == old->gen, moved = false;
    struct heir_counts counts = {0};
    char who[FB_WHO];
    int front = -1;

    if (!lend(h, old, &front)) {
        log_error("descriptor %d: its owner does not hand the connection over: it is reset (%s)",
                  fd, address_who(known ? old->s.pub : NULL, fd, who));
        sys_reset(fd);
    }
    mine = fb_track(fd, (enum fb_role)s->role, -1);
    c = mine ? conn_of(mine) : NULL;
    if (!c || !same_connection(old, c)) {
        if (!c && (front >= 0 || rx_front_left(old)))
            front_lost(fd);
        rsk_own_close(front);
        if (c)
            fb_put(mine);
        return NULL;
    }
    conn_give_away(c);
    c->x->heritage = h;
    c->x->old_slot = old->s.slot;
    c->x->old_gen = old->gen;
    c->x->old_born = old->born;
    /* Before the first rail our memory has the count as of the fork, later only the owner. */
    known = conn_flag(old, CF_LINKED) && owners_counts(h, old, &counts);
    if (!conn_flag(old, CF_LINKED)) {
        mine->pub->tx = old->s.past_tx;
        mine->pub->rx = old->s.past_rx;
    } else if (known) {
        mine->pub->tx = counts.tx;
        mine->pub->rx = counts.rx;
        /* what the owner has sent and received since the fork our digests have not seen */
        moved = true;
        c->x->own_tx = counts.kernel_tx - counts.tx;
        c->x->own_rx = counts.kernel_rx - counts.rx;
    }
    mine->tx_mark =
        inherit(&conn_seen(c)->tx, &conn_seen(old)->tx, s->tx_mark, moved ? mine->pub->tx : 0);
    mine->rx_mark =
        inherit(&conn_seen(c)->rx, &conn_seen(old)->rx, s->rx_mark, moved ? mine->pub->rx : 0);
    c->s.past_tx = mine->pub->tx;
    c->s.past_rx = mine->pub->rx;
    conn_reason(c, RSN_INHERITED);
    /* Who else has it cannot be known: pinned. */
    if (atomic_load(&s->fds) != 1 || atomic_load(&heir_forks) || heir_has_forked() ||
        h->pid != sys_getpid() || conn_flag(old, CF_PINNED | CF_SHARED) ||
        (conn_flag(old, CF_LINKED) && !known))
        conn_set(c, CF_PINNED | CF_ASKED);
    if (front >= 0) {
        if (!take_front(c, front))
            front_lost(fd);
    } else if (!conn_flag(old, CF_LINKED)) { /* else its owner has told us, if some are left */
        (void)rx_front_known(c, old);
    }
    return mine;
}

static void disowned(struct fb_stream *s, bool lent)
{
    if (!lent || rx_front_left(conn_of(s)))
        log_warn("stream %u: its owner does not hand it over to a new program", s->slot);
}

void fb_disown(struct fb_asks *a, struct fb_heritage *h, struct fb_stream *s)
{
    const struct fb_conn *old = conn_of(s);
    const struct heir_note n = question(old, true);
    int ours;

    if (!must_ask(h, old, true)) {
        disowned(s, true);
        return;
    }
    if (a->n == FB_ASKS)
        fb_disowned(a);
    ours = post(h, &n);
    if (ours >= 0)
        a->ask[a->n++] = (struct fb_ask){h, s, ours};
    else
        disowned(s, was_lent(h, old, ask(h, &n, NULL, patience())));
}

void fb_disowned(struct fb_asks *a)
{
    uint64_t until = patience();

    for (unsigned i = 0; i < a->n; i++) {
        struct fb_ask *q = &a->ask[i];
        const struct heir_note n = question(conn_of(q->stream), true);
        uint8_t answer = 0;
        ssize_t r = await(q->reply, until, &answer, NULL);

        disowned(
            q->stream,
            was_lent(q->heritage, conn_of(q->stream),
                     r == 1 || r == -ETIMEDOUT ? answer == 1 : ask(q->heritage, &n, NULL, until)));
    }
    a->n = 0;
}

/* It was handed over when it was adopted, so nobody has to wait for the answer, least of all the
 * progress thread of an owner that is itself a child. */
void heir_disown(struct fb_conn *c)
{
    struct heir_note n = {
        .what = HEIR_ASK_STREAM_FOR_EVER, .slot = c->x->old_slot, .gen = c->x->old_gen};
    int reply = c->x->heritage ? post(c->x->heritage, &n) : -1;

    if (reply >= 0)
        sys_close(reply);
}

void fb_ask_epoll(struct fb_heritage *h, uint64_t id)
{
    struct heir_note n = {.what = HEIR_ASK_EPOLL, .id = id};
    unsigned i = 0;

    /* First it is marked, for an owner that has no rail yet. */
    while (i < FB_PUB_FOREIGN) {
        uint64_t none = 0;

        if (atomic_compare_exchange_strong(&h->file->foreign_epoll[i], &none, id) || none == id)
            break;
        i++;
    }
    if (i == FB_PUB_FOREIGN)
        atomic_store(&h->file->foreign_epolls, 1);
    if (atomic_load(&h->file->serving) && ask(h, &n, NULL, patience()) == 0)
        log_warn("an epoll instance of the parent's is not handed over");
}
