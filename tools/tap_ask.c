/*
 * tap_ask.c - the tool's end of ipoib_fallback/tap_ring.h. The process that is tapped may be
 * hostile to whoever taps as root: its file is read and written, never mapped; the ring is ours, of
 * a size that nobody can change; what is in it is copied once and checked.
 */
#define _GNU_SOURCE
#include "tools/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static bool complain(const char *what)
{
    fprintf(stderr, "railsock tap: %s: %s\n", what, strerror(errno));
    return false;
}

/* ---- the process's file */

static off_t place_of(const struct tap_link *l, size_t field)
{
    return (off_t)(sizeof(struct fb_pub_file) + l->slot * sizeof(struct fb_pub) + field);
}

/* Where it mostly is, or where it is if another namespace's process of that number
 * was there first. */
static bool open_file(struct tap_link *l)
{
    static struct fb_pub_file head;
    char path[96];
    struct stat st;

    for (int i = 0; i < 2; i++) {
        if (i)
            snprintf(path, sizeof(path), FB_PUB_DIR ".%llu/%u", (unsigned)l->uid,
                     (unsigned long long)fb_pub_own_namespace(), (unsigned)l->pid);
        else
            snprintf(path, sizeof(path), FB_PUB_DIR "/%u", (unsigned)l->uid, (unsigned)l->pid);
        l->file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
        if (l->file < 0 && (i || errno != ENOENT))
            return complain(path);
        if (l->file >= 0 && fstat(l->file, &st) == 0 && S_ISREG(st.st_mode) &&
            st.st_uid == l->uid && pread(l->file, &head, sizeof(head), 0) == sizeof(head) &&
            head.magic == FB_PUB_MAGIC && head.version == FB_PUB_VERSION && head.pid == l->pid &&
            head.start_time == l->start_time)
            return true;
        if (l->file >= 0)
            close(l->file);
        l->file = -1;
    }
    fprintf(stderr, "railsock tap: %s is not the process's file any more\n", path);
    return false;
}

/* The generation of the slot and who taps it. False: the file is gone or broken. */
static bool look(const struct tap_link *l, uint32_t *gen, uint64_t *key)
{
    static struct fb_pub slot;

    if (pread(l->file, &slot, sizeof(slot), place_of(l, 0)) != sizeof(slot))
        return false;
    *gen = slot.gen;
    *key = slot.tap;
    return true;
}

static bool write_key(const struct tap_link *l, uint64_t key)
{
    return pwrite(l->file, &key, sizeof(key), place_of(l, offsetof(struct fb_pub, tap))) ==
           sizeof(key);
}

/* ---- sockets */

static socklen_t name_of(uint64_t key, struct sockaddr_un *a)
{
    int n;

    memset(a, 0, sizeof(*a));
    a->sun_family = AF_UNIX;
    n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, TAP_NAME, (unsigned long long)key);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* Abstract names belong to a network namespace: goes into the process's if it is another one. */
static bool join(const struct tap_link *l)
{
    char path[64];
    struct stat ours, theirs;
    bool in = true;
    int fd;

    snprintf(path, sizeof(path), "/proc/%u/task/%u/ns/net", (unsigned)l->pid, (unsigned)l->thread);
    if (stat("/proc/self/ns/net", &ours) < 0 || stat(path, &theirs) < 0 ||
        (ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev))
        return true;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) < 0) {
        fprintf(stderr,
                "railsock tap: process %u is in another network namespace, where only root can go: "
                "%s\n",
                (unsigned)l->pid, strerror(errno));
        in = false;
    }
    if (fd >= 0)
        close(fd);
    return in;
}

/* Is there somebody with that key? Its name may be what a tool that was killed has left. */
static bool is_tapped(uint64_t key, struct ucred *by)
{
    struct sockaddr_un a;
    socklen_t len = name_of(key, &a), size = sizeof(*by);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool is = fd >= 0 && connect(fd, (struct sockaddr *)&a, len) == 0 &&
              getsockopt(fd, SOL_SOCKET, SO_PEERCRED, by, &size) == 0;

    if (fd >= 0)
        close(fd);
    return is;
}

static bool make_listener(struct tap_link *l)
{
    struct sockaddr_un a;
    socklen_t len;

    do
        if (getrandom(&l->key, sizeof(l->key), 0) != sizeof(l->key))
            return complain("getrandom");
    while (!l->key);
    len = name_of(l->key, &a);
    l->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->listener < 0 || bind(l->listener, (struct sockaddr *)&a, len) < 0 ||
        listen(l->listener, 64) < 0)
        return complain("unix socket");
    return true;
}

static bool make_ring(struct tap_link *l)
{
    const size_t len = TAP_HEADER + (size_t)l->size;
    void *p;

    l->memfd = memfd_create("railsock-tap", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (l->memfd < 0 || ftruncate(l->memfd, (off_t)len) < 0 ||
        fallocate(l->memfd, 0, 0, (off_t)len) < 0 ||
        fcntl(l->memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return complain("memory for the ring");
    p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, l->memfd, 0);
    if (p == MAP_FAILED)
        return complain("memory for the ring");
    l->ring = p;
    l->data = (const uint8_t *)p + TAP_HEADER;
    return true;
}

bool tap_request(struct tap_link *l, const struct stat_process *p, const struct stat_conn *c,
                 uint32_t size, uint32_t snap)
{
    struct ucred by;
    uint32_t gen;
    uint64_t key;

    *l = (struct tap_link){.pid = p->pid,
                           .thread = p->thread,
                           .slot = c->slot,
                           .gen = c->gen,
                           .uid = p->uid,
                           .start_time = p->start_time,
                           .file = -1,
                           .listener = -1,
                           .sock = -1,
                           .memfd = -1,
                           .size = size,
                           .snap = snap};
    if (!open_file(l) || !join(l) || !make_listener(l) || !make_ring(l))
        return false;
    if (!look(l, &gen, &key) || gen != l->gen) {
        fputs("railsock tap: the connection has just been closed\n", stderr);
        return false;
    }
    if (key && is_tapped(key, &by)) {
        fprintf(stderr, "railsock tap: process %d taps this connection already\n", (int)by.pid);
        return false;
    }
    return write_key(l, l->key) || complain("request");
}

/* ---- the process comes */

/* Has it come to this socket, and no other one? 1; 0: somebody else; -1: it refuses, said why. */
static int welcome(struct tap_link *l, int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct tap_hello h;
    struct ucred cred;
    socklen_t len = sizeof(cred);

    /* Its process thread may have another user by now, but the kernel says which process it is. */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 || cred.pid != (pid_t)l->pid ||
        (geteuid() != 0 && cred.uid != geteuid()))
        return 0;
    if (poll(&p, 1, 1000) != 1 || recv(fd, &h, sizeof(h), 0) != sizeof(h) || h.magic != TAP_MAGIC)
        return 0;
    if (h.version != TAP_VERSION) {
        fputs("railsock tap: the process runs another version of the library\n", stderr);
        return -1;
    }
    if (h.why == TAP_FULL) {
        fputs("railsock tap: the process refuses: it is tapped too often already\n", stderr);
        return -1;
    }
    if (h.why != TAP_WELCOME) {
        fputs("railsock tap: the process refuses: as with ptrace, one that is not dumpable, has "
              "capabilities or another group may only be looked into by root\n",
              stderr);
        return -1;
    }
    return h.slot == l->slot && h.gen == l->gen;
}

static bool grant(struct tap_link *l, int fd)
{
    struct tap_grant g = {
        .magic = TAP_MAGIC, .version = TAP_VERSION, .size = l->size, .snap = l->snap};
    struct iovec v = {&g, sizeof(g)};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    struct cmsghdr *cm = CMSG_FIRSTHDR(&m);

    cm->cmsg_level = SOL_SOCKET;
    cm->cmsg_type = SCM_RIGHTS;
    cm->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(cm), &l->memfd, sizeof(int));
    return sendmsg(fd, &m, MSG_NOSIGNAL) == sizeof(g);
}

int tap_wait(struct tap_link *l, int ms)
{
    struct pollfd p = {.fd = l->listener, .events = POLLIN};
    uint32_t gen;
    uint64_t key;
    int fd, is;

    if (poll(&p, 1, ms) == 1 && (fd = accept4(l->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        is = welcome(l, fd);
        if (is == 1 && grant(l, fd)) {
            l->sock = fd;
            return 1;
        }
        close(fd);
        return is < 0 ? -1 : 0;
    }
    if (!look(l, &gen, &key) || gen != l->gen || (kill((pid_t)l->pid, 0) < 0 && errno == ESRCH))
        fputs("railsock tap: the connection was closed before anything moved on it\n", stderr);
    else if (!key)
        fputs("railsock tap: the process refuses; its log says why (RAILSOCK_LOG=info)\n", stderr);
    else if (key != l->key)
        fputs("railsock tap: another one taps this connection now\n", stderr);
    else
        return 0;
    return -1;
}

/* ---- records */

static void copy_out(const struct tap_link *l, uint64_t pos, void *to, size_t n)
{
    size_t at = (size_t)pos & (l->size - 1), first = l->size - at;

    if (first > n)
        first = n;
    memcpy(to, l->data + at, first);
    memcpy((char *)to + first, l->data, n - first);
}

int tap_next(struct tap_link *l, struct tap_record *r, const uint8_t **bytes)
{
    static uint8_t buffer[TAP_PIECE];
    /* Acquire: what lies before it has been written. */
    uint64_t have = atomic_load_explicit(&l->ring->tail, memory_order_acquire) - l->head, need;

    if (have == 0)
        return 0;
    if (have > l->size || have < sizeof(*r))
        return -1;
    copy_out(l, l->head, r, sizeof(*r));
    need = sizeof(*r) + (((uint64_t)r->kept + 7) & ~7ull);
    if (r->kept > TAP_PIECE || r->kept > r->len || need > have || r->kind > TAP_END ||
        r->path > FB_PATH_VERBS || (r->len > TAP_PIECE && !(r->flags & TAP_UNSEEN)))
        return -1;
    copy_out(l, l->head + sizeof(*r), buffer, r->kept);
    *bytes = buffer;
    l->head += need;
    /* Release: the room may be written again. */
    atomic_store_explicit(&l->ring->head, l->head, memory_order_release);
    return 1;
}

void tap_count_lost(struct tap_link *l)
{
    l->lost_bytes = 0;
    for (int i = 0; i <= FB_PATH_VERBS; i++) {
        l->lost_packets[i] = atomic_load_explicit(&l->ring->lost[i].packets, memory_order_relaxed);
        l->lost_bytes += atomic_load_explicit(&l->ring->lost[i].bytes, memory_order_relaxed);
    }
}

void tap_where(const struct tap_link *l, char where[32])
{
    struct fb_pub_rail r = {0};
    off_t at = (off_t)(FB_PUB_RAILS + l->slot * sizeof(r));
    uint32_t gen;
    uint64_t key;
    size_t n = 0;

    if (pread(l->file, &r, sizeof(r), at) == sizeof(r) && look(l, &gen, &key) && gen == l->gen &&
        memchr(r.where, '/', sizeof(r.where)))
        for (; n < sizeof(r.where) && r.where[n]; n++)
            where[n] = r.where[n] > ' ' && r.where[n] < 0x7f ? r.where[n] : '?';
    where[n] = '\0';
}

bool tap_sleep(struct tap_link *l, int ms)
{
    struct pollfd p[2] = {{.fd = l->sock, .events = POLLIN}, {.fd = l->listener, .events = POLLIN}};
    int fd;

    if (poll(p, 2, ms) <= 0)
        return true;
    /* Another tool asks whether we are there; now it knows. */
    if (p[1].revents && (fd = accept4(l->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        close(fd);
    return !p[0].revents;
}

void tap_close(struct tap_link *l)
{
    uint32_t gen;
    uint64_t key;

    /* A request that nobody has come for; what the library has begun it ends by itself. */
    if (l->sock < 0 && l->key && l->file >= 0 && look(l, &gen, &key) && gen == l->gen &&
        key == l->key)
        write_key(l, 0);
    if (l->ring)
        munmap(l->ring, TAP_HEADER + (size_t)l->size);
    for (int i = 0, *fd[] = {&l->sock, &l->listener, &l->memfd, &l->file}; i < 4; i++)
        if (*fd[i] >= 0)
            close(*fd[i]);
    *l = TAP_NO_LINK;
}
