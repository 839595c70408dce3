/*
 * lab_hub.c - the Ethernet hub between the lab's hosts.
 *
 * QEMU's `-netdev stream` sends each frame behind its length, 4 bytes in network order.
 * The hub passes a frame to the host whose address it bears, or to all others. It never
 * reaches anything but the sockets it was given, and it learns nothing: the hosts'
 * addresses are fixed (see lab_host.c).
 *
 * Two things a naive hub gets wrong. If it drops frames whenever a receiver is slow, RDMA
 * over rxe crawls, for rxe goes back to the first lost packet: so a sender waits while a
 * receiver's buffer is full. If it waits for ever, a receiver that is stuck or not booted
 * yet stops the others: so a receiver that has taken nothing for a while loses frames.
 *
 * All runs on the hub's own thread; lab_hub_start() and _stop() are the main thread's.
 */
#include "lab_hub.h"

#include "lab.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FRAME_HEAD 4U
#define FRAME_MAX  (68U * 1024U) /* QEMU's own limit for a frame, rounded up */
#define IN_SIZE    (256U * 1024U)
#define OUT_SIZE   (1024U * 1024U)
#define STALL_MS   200

struct port {
    int fd;
    bool open;
    size_t in_len;
    size_t out_start, out_len;
    int64_t moved_ms; /* when the receiver last took something, or had nothing to take */
    unsigned char *in;
    unsigned char *out;
};

struct lab_hub {
    pthread_t thread;
    int wake;
    unsigned n;
    struct port ports[LAB_MAX_HOSTS];
};

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void port_close(struct port *p)
{
    p->open = false;
    p->in_len = 0;
    p->out_len = 0;
}

static void port_flush(struct port *p)
{
    while (p->out_len > 0) {
        ssize_t r = send(p->fd, p->out + p->out_start, p->out_len, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (r < 0) {
            if (errno != EAGAIN && errno != EINTR)
                port_close(p);
            return;
        }
        p->out_start += (size_t)r;
        p->out_len -= (size_t)r;
        p->moved_ms = now_ms();
    }
    p->out_start = 0;
}

static bool port_has_room(const struct port *p, size_t len)
{
    return OUT_SIZE - p->out_len >= len;
}

static void port_append(struct port *p, const unsigned char *data, size_t len)
{
    if (OUT_SIZE - p->out_start - p->out_len < len) {
        memmove(p->out, p->out + p->out_start, p->out_len);
        p->out_start = 0;
    }
    if (p->out_len == 0)
        p->moved_ms = now_ms();
    memcpy(p->out + p->out_start + p->out_len, data, len);
    p->out_len += len;
}

/* The index of the host with this address, or n for a frame to all. */
static unsigned frame_target(const struct lab_hub *hub, const unsigned char *frame)
{
    static const unsigned char prefix[5] = {0x52, 0x54, 0, 0, 0};

    if (memcmp(frame, prefix, sizeof prefix) == 0 && frame[5] >= 1 && frame[5] <= hub->n)
        return frame[5] - 1U;
    return hub->n;
}

/* Forwards one frame, or returns false if a receiver that still moves has no room. */
static bool forward(struct lab_hub *hub, unsigned from, const unsigned char *data, size_t len)
{
    unsigned target = frame_target(hub, data + FRAME_HEAD);
    int64_t now = now_ms();

    for (int deliver = 0; deliver < 2; deliver++) {
        for (unsigned i = 0; i < hub->n; i++) {
            struct port *p = &hub->ports[i];

            if (i == from || !p->open || (target < hub->n && i != target))
                continue;
            if (port_has_room(p, len)) {
                if (deliver)
                    port_append(p, data, len);
            } else if (!deliver && now - p->moved_ms < STALL_MS) {
                return false;
            }
        }
    }
    return true;
}

/* Forwards whole frames out of what was read. */
static void port_forward(struct lab_hub *hub, unsigned index)
{
    struct port *p = &hub->ports[index];
    size_t done = 0;

    while (p->in_len - done >= FRAME_HEAD) {
        uint32_t len;

        memcpy(&len, p->in + done, sizeof len);
        len = ntohl(len);
        if (len < 14 || len > FRAME_MAX) {
            port_close(p);
            return;
        }
        if (p->in_len - done - FRAME_HEAD < len ||
            !forward(hub, index, p->in + done, FRAME_HEAD + len))
            break;
        done += FRAME_HEAD + len;
    }
    if (done > 0) {
        p->in_len -= done;
        memmove(p->in, p->in + done, p->in_len);
    }
}

static void port_read(struct port *p)
{
    ssize_t r = recv(p->fd, p->in + p->in_len, IN_SIZE - p->in_len, MSG_DONTWAIT);

    if (r > 0)
        p->in_len += (size_t)r;
    else if (r == 0 || (errno != EAGAIN && errno != EINTR))
        port_close(p);
}

static void *hub_main(void *arg)
{
    struct lab_hub *hub = arg;

    for (;;) {
        struct pollfd pfd[LAB_MAX_HOSTS + 1];
        int timeout = -1;

        for (unsigned i = 0; i < hub->n; i++) {
            struct port *p = &hub->ports[i];

            pfd[i].fd = p->open ? p->fd : -1;
            pfd[i].events = 0;
            pfd[i].revents = 0;
            if (p->in_len < IN_SIZE)
                pfd[i].events = POLLIN;
            if (p->out_len > 0)
                pfd[i].events |= POLLOUT;
            /* A whole frame may lie there, held back by a full receiver. */
            if (p->in_len >= FRAME_HEAD)
                timeout = STALL_MS / 4;
        }
        pfd[hub->n] = (struct pollfd){.fd = hub->wake, .events = POLLIN};
        if (poll(pfd, hub->n + 1, timeout) < 0 && errno != EINTR)
            return NULL;
        if (pfd[hub->n].revents)
            return NULL;
        for (unsigned i = 0; i < hub->n; i++) {
            if (pfd[i].revents & (POLLIN | POLLHUP | POLLERR))
                port_read(&hub->ports[i]);
            port_forward(hub, i);
        }
        for (unsigned i = 0; i < hub->n; i++)
            port_flush(&hub->ports[i]);
    }
}

static void hub_free(struct lab_hub *hub)
{
    for (unsigned i = 0; i < hub->n; i++) {
        close(hub->ports[i].fd);
        free(hub->ports[i].in);
        free(hub->ports[i].out);
    }
    if (hub->wake >= 0)
        close(hub->wake);
    free(hub);
}

struct lab_hub *lab_hub_start(const int *fds, unsigned n)
{
    struct lab_hub *hub = calloc(1, sizeof *hub);
    bool complete = true;
    int err;

    if (!hub) {
        for (unsigned i = 0; i < n; i++)
            close(fds[i]);
        return NULL;
    }
    hub->n = n;
    for (unsigned i = 0; i < n; i++) {
        struct port *p = &hub->ports[i];

        p->fd = fds[i];
        p->open = true;
        p->moved_ms = now_ms();
        p->in = malloc(IN_SIZE);
        p->out = malloc(OUT_SIZE);
        complete = complete && p->in && p->out;
    }
    hub->wake = eventfd(0, EFD_CLOEXEC);
    err = complete ? 0 : ENOMEM;
    if (!err && hub->wake < 0)
        err = errno;
    if (!err)
        err = pthread_create(&hub->thread, NULL, hub_main, hub);
    if (err) {
        hub_free(hub);
        errno = err;
        return NULL;
    }
    return hub;
}

void lab_hub_stop(struct lab_hub *hub)
{
    if (!hub)
        return;
    eventfd_write(hub->wake, 1);
    pthread_join(hub->thread, NULL);
    hub_free(hub);
}
