/*
 * tap_link.c - how a tap begins and ends (tap_ring.h). What is here runs on the progress thread
 * unless it is said otherwise; the tool's death shows as the end of its socket there.
 *
 * A tap has no reference to its stream. Under the tap's lock `conn` is either NULL or a
 * stream that has not come through tap_gone(), which takes the same lock: so its slot is not
 * another stream's yet.
 */
#include "ipoib_fallback/tap.h"

#include "config/log.h"
#include "rsock/shm_bell.h"
#include "rsock/shm_msg.h"
#include "rsock/strange.h"
#include "rsock/sys.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/un.h>

static struct tap taps[TAPS];

/* tap's lock held, of a tap with a stream. */
static void part(struct tap *t)
{
    struct fb_conn *c = t->conn;
    uint64_t key = t->key;

    t->conn = NULL;
    t->ring = NULL;
    atomic_store(&c->x->tap, NULL);
    /* Another tool may have written its own, and comes next. */
    atomic_compare_exchange_strong(&c->s.pub->tap, &key, 0);
    atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_TAP);
}

static void end(struct tap *t)
{
    fb_lock(&t->lock);
    if (t->conn)
        part(t);
    t->ring = NULL;
    fb_unlock(&t->lock);
    rsk_unwatch(t->watch);
    rsk_own_unmap(&t->map);
    strange_close(t->fd);
    t->watch = NULL;
    t->fd = -1;
    t->used = false;
}

static void end_job(void *arg)
{
    struct tap *t = arg;
    bool taken;

    /* Posted for a stream that is gone; the place may have been given to another one meanwhile. */
    fb_lock(&t->lock);
    taken = t->conn != NULL;
    fb_unlock(&t->lock);
    if (t->used && !taken)
        end(t);
}

void tap_gone(struct fb_conn *c)
{
    struct tap *t = atomic_load(&c->x->tap);
    bool ours = false;

    atomic_store(&c->s.pub->tap, 0);
    if (!t)
        return;
    fb_lock(&t->lock);
    if (t->conn == c) {
        tap_last(t, 0);
        part(t);
        ours = true;
    }
    fb_unlock(&t->lock);
    /* If there is no thread any more, the descriptor stays until the process ends. */
    if (ours)
        rsk_loop_post_job(&t->end);
}

/* ---- beginning */

/* May this process be looked into by one without privileges? What ptrace(2) asks for: it is that
 * one's user in every respect, it is dumpable, and has no capability that the other one might not
 * have. So it cannot become another user while it is tapped. */
static bool traceable(const struct ucred *by)
{
    unsigned r = 0, e = 0, s = 0;
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

    if (SYS6(SYS_getresuid, &r, &e, &s, 0, 0, 0) < 0 || r != by->uid || e != r || s != r)
        return false;
    if (SYS6(SYS_getresgid, &r, &e, &s, 0, 0, 0) < 0 || r != by->gid || e != r || s != r)
        return false;
    return SYS6(SYS_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0, 0) == 1 &&
           SYS6(SYS_capget, &head, data, 0, 0, 0, 0) == 0 && !data[0].permitted &&
           !data[1].permitted;
}

static bool map_ring(struct tap *t, int memfd, const struct tap_grant *g)
{
    const size_t len = TAP_HEADER + (size_t)g->size;
    uint8_t *p;

    if (g->magic != TAP_MAGIC || g->version != TAP_VERSION || g->size < TAP_LEAST ||
        g->size > TAP_MOST || (g->size & (g->size - 1)) || !shm_sealed_good(memfd, len))
        return false;
    p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    if (p == MAP_FAILED)
        return false;
    rsk_own_map(&t->map, p, len);
    fb_lock(&t->lock);
    if (t->conn) {
        t->size = g->size;
        t->snap = g->snap;
        t->tail = 0;
        t->lost = 0;
        t->marked = 0;
        t->data = p + TAP_HEADER;
        t->ring = (struct tap_ring *)(void *)p;
        tap_first(t);
    }
    fb_unlock(&t->lock);
    return true;
}

/* The grant comes, and after that nothing but the end. */
static void on_tool(void *arg, uint32_t events)
{
    struct tap *t = arg;
    struct tap_grant g = {0};
    struct shm_fds memfd;
    ssize_t n = shm_msg_recv(t->fd, &g, sizeof(g), &memfd);
    bool good;

    (void)events;
    if (n == -EAGAIN || n == -EINTR)
        return;
    good = n == sizeof(g) && memfd.n == 1 && !t->map.addr && map_ring(t, memfd.fd[0], &g);
    shm_fds_close(&memfd);
    if (!good)
        end(t);
}

/* A socket that is connected to the tool, and who that is; -errno. */
static int reach(uint64_t key, struct ucred *tool)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    socklen_t len = sizeof(*tool);
    int n = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, TAP_NAME, (unsigned long long)key);
    int fd = rsk_own_fd(sys_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)), r;

    if (fd < 0)
        return fd;
    r = sys_connect(fd, &a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n));
    if (!r)
        r = sys_getsockopt(fd, SOL_SOCKET, SO_PEERCRED, tool, &len);
    if (!r)
        return fd;
    strange_close(fd);
    return r;
}

static struct tap *free_place(void)
{
    for (int i = 0; i < TAPS; i++)
        if (!taps[i].used)
            return &taps[i];
    return NULL;
}

/* 0, or why not. */
static int begin(struct fb_conn *c, uint64_t key)
{
    struct tap_hello hello = {
        .magic = TAP_MAGIC, .version = TAP_VERSION, .slot = c->s.slot, .gen = c->gen};
    struct tap *t = free_place();
    struct ucred tool = {0};
    int fd = reach(key, &tool);

    if (fd < 0)
        return fd;
    if (tool.uid != 0 && tool.uid != sys_geteuid()) {
        log_warn("stream %u: user %u may not tap it", c->s.slot, tool.uid);
        strange_close(fd);
        return -EPERM;
    }
    if (tool.uid != 0 && !traceable(&tool))
        hello.why = TAP_UNTRACEABLE;
    else if (!t)
        hello.why = TAP_FULL;
    if (sys_send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) != (ssize_t)sizeof(hello) || hello.why ||
        !(t->watch = rsk_watch_fd(fd, POLLIN, false, on_tool, t))) {
        strange_close(fd);
        return -EACCES;
    }
    t->fd = fd;
    t->uid = tool.uid;
    t->used = true;
    t->end.fn = end_job; /* it may still stand in the queue for the place's last stream */
    t->end.arg = t;
    fb_lock(&t->lock);
    t->key = key;
    t->conn = c;
    fb_unlock(&t->lock);
    atomic_store(&c->x->tap, t);
    log_info("stream %u: tapped by process %d of user %u", c->s.slot, (int)tool.pid, tool.uid);
    return 0;
}

static void asked(void *arg)
{
    struct fb_conn *c = arg;
    uint64_t key = atomic_load(&c->s.pub->tap);
    int r = key ? begin(c, key) : -ENOENT;

    if (r < 0) {
        log_info("stream %u: there is no tap: error %d", c->s.slot, -r);
        atomic_compare_exchange_strong(&c->s.pub->tap, &key, 0);
        atomic_fetch_and(&c->s.flags, ~(uint32_t)CF_TAP);
    }
    fb_put(&c->s);
}

void tap_ask(struct fb_conn *c)
{
    link_post_once(c, CF_TAP, JOB_TAP, asked);
}

/* ---- ends that are this process's doing */

void tap_end_all(int reason)
{
    for (int i = 0; i < TAPS; i++) {
        struct tap *t = &taps[i];
        bool ours;

        fb_lock(&t->lock);
        ours = t->conn != NULL;
        if (ours) {
            tap_last(t, reason);
            part(t);
        }
        fb_unlock(&t->lock);
        if (!ours)
            continue;
        if (rsk_loop_running()) {
            rsk_loop_post_job(&t->end);
        } else { /* nor will there be: its watches are nobody's */
            rsk_own_unmap(&t->map);
            strange_close(t->fd);
        }
    }
}

void tap_forget(void)
{
    memset(taps, 0, sizeof(taps));
}
