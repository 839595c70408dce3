/*
 * odd_arguments.c - what few programs ask for: a flag that only 32-bit calls have, more bytes than
 * there can be, and preadv2's flags, also on a connection that was reset.
 */
#include "pair.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

enum { COMPAT = (int)0x80000000u };

static void flag_of_compat(int p[2])
{
    char bytes[8];
    struct iovec v = {bytes, 2};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    struct mmsghdr mm = {.msg_hdr = m};

    deliver(p[0], p[1], "abcdefgh");
    SHOW(recv(p[1], bytes, 2, COMPAT | MSG_DONTWAIT));
    SHOW(recvfrom(p[1], bytes, 2, COMPAT, NULL, NULL));
    SHOW(recv(p[1], bytes, 1, COMPAT | MSG_PEEK));
    SHOW(recvmsg(p[1], &m, COMPAT | MSG_DONTWAIT));
    SHOW(recvmmsg(p[1], &mm, 1, COMPAT | MSG_DONTWAIT, NULL));
    SHOW(recv(p[1], bytes, 8, MSG_DONTWAIT));
    SHOW(send(p[0], "xy", 2, COMPAT));
    SHOW(sendto(p[0], "z", 1, COMPAT | MSG_NOSIGNAL, NULL, 0));
    SHOW(sendmsg(p[0], &m, COMPAT));
    SHOW(recv(p[1], bytes, 3, MSG_WAITALL));
    SHOW(recv(p[1], bytes, 8, MSG_DONTWAIT));
}

static void too_many(int p[2])
{
    int file = memfd_create("file", 0), pipes[2];
    char bytes[16];
    off_t at = 3;

    must(file >= 0 && write(file, "0123456789", 10) == 10 && pipe(pipes) == 0, "file");
    must(lseek(file, 0, SEEK_SET) == 0, "lseek");
    SHOW(sendfile(p[0], file, NULL, (size_t)-1));
    SHOW(sendfile(p[0], file, &at, (size_t)1 << 63));
    printf("%ld %ld\n", (long)lseek(file, 0, SEEK_CUR), (long)at);
    SHOW(recv(p[1], bytes, sizeof(bytes), MSG_DONTWAIT));
    deliver(p[0], p[1], "bytes");
    SHOW(sendfile(pipes[1], p[1], NULL, (size_t)-1));
    SHOW(recv(p[1], bytes, sizeof(bytes), MSG_DONTWAIT));
}

static void after_reset(int p[2], const char *before)
{
    struct linger at_once = {1, 0};
    char bytes[16];
    struct iovec v = {bytes, sizeof(bytes)};

    if (*before)
        deliver(p[0], p[1], before);
    must(setsockopt(p[0], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0, "SO_LINGER");
    close(p[0]);
    must(poll(&(struct pollfd){.fd = p[1]}, 1, -1) == 1, "poll"); /* until it has come */
    for (int i = 0; i < 3; i++)
        SHOW(preadv2(p[1], &v, 1, -1, RWF_NOWAIT));
    SHOW(preadv2(p[1], &v, 1, -1, 0x4000));
}

int main(void)
{
    int p[2];

    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < 4; i++) {
        tcp_pair(p);
        on_rail(p);
        if (i == 0)
            flag_of_compat(p);
        else if (i == 1)
            too_many(p);
        else
            after_reset(p, i == 2 ? "" : "0123456");
        close(p[1]);
    }
    return 0;
}
