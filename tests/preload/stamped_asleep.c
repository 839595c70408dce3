/*
 * stamped_asleep.c - each message that a thread waits for in recvmsg or recvmmsg has its
 * time stamp, also that with which the connection would board; a length of a name that is
 * none is refused.
 */
#include "pair.h"

#include <pthread.h>

enum { MESSAGES = 60 };

static void *sends(void *fd)
{
    char bytes[64] = "stamped", byte;

    for (int i = 0; i < MESSAGES; i++) {
        must(write(*(int *)fd, bytes, sizeof(bytes)) == sizeof(bytes), "write");
        must(read(*(int *)fd, &byte, 1) == 1, "read");
    }
    return NULL;
}

static int stamps_in(struct msghdr *m)
{
    int n = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
        n += c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMP;
    return n;
}

/* The kernel stamps what comes in for as long as somebody wants it, and begins, and ends, a
 * while after that. */
static void have_it_stamp(int l, const struct sockaddr_in *at)
{
    char control[256], byte;
    struct iovec v = {&byte, 1};
    struct msghdr m;
    int p[2], on = 1;

    pair_at(l, at, p);
    must(setsockopt(p[1], SOL_SOCKET, SO_TIMESTAMP, &on, sizeof(on)) == 0, "SO_TIMESTAMP");
    do {
        m = (struct msghdr){.msg_iov = &v,
                            .msg_iovlen = 1,
                            .msg_control = control,
                            .msg_controllen = sizeof(control)};
        must(write(p[0], "", 1) == 1 && recvmsg(p[1], &m, 0) == 1, "recvmsg");
    } while (!stamps_in(&m));
}

static void once(int l, const struct sockaddr_in *at, bool several)
{
    int p[2], on = 1, stamps = 0;
    struct sockaddr_in name;
    pthread_t t;
    char control[256], bytes[64];
    struct iovec v = {bytes, sizeof(bytes)};
    struct mmsghdr m = {0};

    pair_at(l, at, p);
    must(setsockopt(p[1], SOL_SOCKET, SO_TIMESTAMP, &on, sizeof(on)) == 0, "SO_TIMESTAMP");
    must(pthread_create(&t, NULL, sends, &p[0]) == 0, "pthread_create");
    for (int i = 0; i < MESSAGES; i++) {
        m.msg_hdr = (struct msghdr){.msg_iov = &v,
                                    .msg_iovlen = 1,
                                    .msg_control = control,
                                    .msg_controllen = sizeof(control)};
        if (several)
            must(recvmmsg(p[1], &m, 1, 0, NULL) == 1 && m.msg_len == sizeof(bytes), "recvmmsg");
        else
            must(recvmsg(p[1], &m.msg_hdr, 0) == sizeof(bytes), "recvmsg");
        stamps += stamps_in(&m.msg_hdr);
        must(write(p[1], "", 1) == 1, "write");
    }
    pthread_join(t, NULL);
    printf("%s: %d of %d\n", several ? "recvmmsg" : "recvmsg", stamps, MESSAGES);
    close(p[0]);
    close(p[1]);
    pair_at(l, at, p);
    on_rail(p);
    must(write(p[0], bytes, sizeof(bytes)) == sizeof(bytes), "write");
    m.msg_hdr = (struct msghdr){
        .msg_iov = &v, .msg_iovlen = 1, .msg_name = &name, .msg_namelen = (socklen_t)-1};
    SHOW(several ? recvmmsg(p[1], &m, 1, 0, NULL) : recvmsg(p[1], &m.msg_hdr, 0));
    SHOW(recv(p[1], bytes, sizeof(bytes), 0));
    close(p[0]);
    close(p[1]);
}

int main(void)
{
    struct sockaddr_in at;
    int l = listener(&at);

    alarm(120);
    have_it_stamp(l, &at);
    once(l, &at, false);
    once(l, &at, true);
    return 0;
}
