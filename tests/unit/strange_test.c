/*
 * strange_test.c - what strangers send is taken and closed without waiting, and
 * nothing of it stays.
 */
#include "tests/shim/shim.h"
#include "tests/unit/numbers.h"

#include "rsock/own.h"
#include "rsock/strange.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PASSPIDFD = 76 };

/* Whoever closes it last waits for the better part of a fortnight. *peer: keeps it so. */
static int lingering(int *peer)
{
    const struct linger l = {1, 1000000};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int listens = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
    static char bytes[65536];

    EXPECT(bind(listens, (struct sockaddr *)&at, len) == 0 && listen(listens, 1) == 0 &&
           getsockname(listens, (struct sockaddr *)&at, &len) == 0 &&
           connect(fd, (struct sockaddr *)&at, len) == 0);
    *peer = accept(listens, NULL, NULL);
    close(listens);
    while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        ;
    EXPECT_EQ_INT(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)), 0);
    return fd;
}

/* And it has the last reference. */
static void send_with(int sock, int fd, int flags)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.align = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec v = {"x", 1};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};

    memcpy(CMSG_DATA(&control.align), &fd, sizeof(fd));
    EXPECT_EQ_INT(sendmsg(sock, &m, flags), 1);
    close(fd);
}

static void pair_of(int type, int pair[2])
{
    ASSERT_EQ_INT(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair), 0);
}

/* In each kind of socket, behind an empty message and bytes, and in a socket in a socket. */
TEST_CASE(strange, what_waits_to_be_read)
{
    const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    int before = count_fds();
    int pair[2], inner[2], peer[2];

    alarm(60);
    for (unsigned i = 0; i < 3; i++) {
        pair_of(types[i], pair);
        pair_of(SOCK_SEQPACKET, inner);
        if (types[i] != SOCK_STREAM)
            ASSERT_EQ_INT(send(pair[0], "", 0, 0), 0);
        ASSERT_EQ_INT(send(pair[0], "bytes", 5, 0), 5);
        send_with(pair[0], lingering(&peer[0]), 0);
        send_with(inner[0], lingering(&peer[1]), 0);
        send_with(pair[0], inner[1], 0);
        close(inner[0]);
        close(pair[0]);
        strange_close(pair[1]);
        close(peer[0]);
        close(peer[1]);
    }
    EXPECT_EQ_INT(count_fds(), before);
}

TEST_CASE(strange, who_waits_to_be_accepted)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    socklen_t len = sizeof(at);
    int before = count_fds();
    int l = socket(AF_UNIX, SOCK_STREAM, 0), fd = socket(AF_UNIX, SOCK_STREAM, 0), peer;

    alarm(60);
    ASSERT(bind(l, (struct sockaddr *)&at, sizeof(at.sun_family)) == 0 && listen(l, 5) == 0 &&
           getsockname(l, (struct sockaddr *)&at, &len) == 0 &&
           connect(fd, (struct sockaddr *)&at, len) == 0);
    send_with(fd, lingering(&peer), 0);
    strange_close(l);
    close(fd);
    close(peer);
    EXPECT_EQ_INT(count_fds(), before);
}

/* The kernel says of each message who has sent it, by a number: who has asked for that has
 * made the socket. */
TEST_CASE(strange, numbers_of_who_sends)
{
    const int on = 1;
    int before = count_fds();
    int pair[2];

    pair_of(SOCK_DGRAM, pair);
    if (setsockopt(pair[1], SOL_SOCKET, PASSPIDFD, &on, sizeof(on)) < 0)
        SKIP("older than Linux 6.5");
    for (int i = 0; i < 5; i++)
        ASSERT_EQ_INT(send(pair[0], "x", 1, 0), 1);
    close(pair[0]);
    strange_close(pair[1]);
    EXPECT_EQ_INT(count_fds(), before);
}

TEST_CASE(strange, urgent_bytes)
{
    int before = count_fds();
    int pair[2], peer;

    alarm(60);
    pair_of(SOCK_STREAM, pair);
    if (send(pair[0], "x", 1, MSG_OOB) != 1)
        SKIP("unix sockets have none");
    send_with(pair[0], lingering(&peer), MSG_OOB);
    ASSERT_EQ_INT(send(pair[0], "x", 1, 0), 1);
    close(pair[0]);
    strange_close(pair[1]);
    close(peer);
    EXPECT_EQ_INT(count_fds(), before);
}

TEST_CASE(strange, what_is_received_is_noted)
{
    int pair[2], fds[STRANGE_FDS], flags, peer;
    unsigned count;
    char byte;

    alarm(60);
    pair_of(SOCK_STREAM, pair);
    ASSERT_EQ_INT(send(pair[0], "x", 1, 0), 1);
    ASSERT_EQ_INT(strange_recv(pair[1], &byte, 1, fds, &count, &flags), 1);
    EXPECT_EQ_INT(count, 0);
    send_with(pair[0], lingering(&peer), 0);
    ASSERT_EQ_INT(strange_recv(pair[1], &byte, 1, fds, &count, &flags), 1);
    ASSERT_EQ_INT(count, 1);
    EXPECT(rsk_own_has(fds[0]));
    strange_close(fds[0]);
    close(peer);
    EXPECT_EQ_INT(strange_recv(pair[1], &byte, 1, fds, &count, &flags), -EAGAIN);
    close(pair[0]);
    close(pair[1]);
}
