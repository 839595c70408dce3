/*
 * shm_msg.c - messages with descriptors, both ways. Progress thread.
 */
#include "rsock/shm_msg.h"

#include <errno.h>
#include <string.h>

#include "rsock/own.h"
#include "rsock/sys.h"

union control {
    struct cmsghdr align;
    char room[CMSG_SPACE(sizeof(int) * SHM_MAX_FDS)];
};

int shm_msg_send(int sock, const void *msg, size_t len, const struct shm_fds *fds)
{
    struct iovec v = {.iov_base = (void *)(uintptr_t)msg, .iov_len = len};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    union control control;
    ssize_t n;

    if (fds && fds->n) {
        const size_t size = sizeof(int) * (size_t)fds->n;
        struct cmsghdr *c;

        memset(&control, 0, sizeof control);
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE(size);
        c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(size);
        memcpy(CMSG_DATA(c), fds->fd, size);
    }
    n = sys_sendmsg(sock, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n < 0 ? (int)n : (size_t)n == len ? 0 : -EPROTO;
}

ssize_t shm_msg_recv(int sock, void *msg, size_t len, struct shm_fds *fds)
{
    struct iovec v = {.iov_base = msg, .iov_len = len};
    union control control = {0};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    bool bad = false;
    ssize_t n;

    fds->n = 0;
    rsk_own_enter();
    n = sys_recvmsg(sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    for (struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        int fd;

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < count; i++) {
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            fd = rsk_own_fd(fd);
            if (fd < 0 || fds->n == SHM_MAX_FDS) {
                rsk_own_close(fd);
                bad = true;
            } else {
                fds->fd[fds->n++] = fd;
            }
        }
    }
    rsk_own_leave();
    if (n < 0)
        return n;
    if (bad || (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        shm_fds_close(fds);
        return -EPROTO;
    }
    return n;
}

void shm_fds_close(struct shm_fds *fds)
{
    for (int i = 0; i < fds->n; i++)
        rsk_own_close(fds->fd[i]);
    fds->n = 0;
}

int shm_fds_take(struct shm_fds *fds, int i)
{
    int fd = fds->fd[i];

    fds->fd[i] = -1;
    return fd;
}
