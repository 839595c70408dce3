/*
 * raw_behind.c - receives by number on a stream that cannot leave before they are done: with unread
 * bytes in front of a switch, and with bytes that came before a reset.
 */
#include "pair.h"

#include <poll.h>
#include <sys/uio.h>

enum { FORMS = 6 };

/* Ten bytes, in each way that there is. */
static long raw(int form, int fd, char *to)
{
    struct iovec v = {to, 10};
    struct mmsghdr m = {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}};

    switch (form) {
    case 0:
        return syscall(SYS_read, fd, to, 10);
    case 1:
        return syscall(SYS_readv, fd, &v, 1);
    case 2:
        return syscall(SYS_preadv2, fd, &v, 1, -1L, -1L, 0);
    case 3:
        return syscall(SYS_recvfrom, fd, to, 10, 0, NULL, NULL);
    case 4:
        return syscall(SYS_recvmsg, fd, &m.msg_hdr, 0);
    default:
        return syscall(SYS_recvmmsg, fd, &m, 1, 0, NULL) == 1 ? (long)m.msg_len : -1;
    }
}

static char nth(size_t i)
{
    return (char)('a' + i % 26);
}

/* After 64 bytes: writes until more has gone by TCP than was written, which is a frame. It may come
 * with the first bytes, and what follows it does not go by TCP. */
static size_t fill(int fd)
{
    time_t begin = time(NULL);
    bool framed = false;
    size_t n = 0;

    do {
        char bytes[10];

        for (size_t i = 0; i < sizeof(bytes); i++)
            bytes[i] = nth(n + i);
        must(write(fd, bytes, sizeof(bytes)) == sizeof(bytes), "write");
        n += sizeof(bytes);
        usleep(2000);
        framed = framed || tcp_sent(fd) > 64 + n;
    } while (n < 100 || (mode_rail() && !framed && others_run(begin)));
    if (mode_rail() && !framed)
        puts("it is not on a rail");
    return n;
}

static void behind(int form)
{
    struct sockaddr_in at;
    int p[2], l = listener(&at);
    size_t n, got;
    char buf[256];

    pair_at(l, &at, p);
    close(l);
    pass(p, 0);
    pass(p, 1);
    n = fill(p[0]);
    must(shutdown(p[0], SHUT_WR) == 0, "shutdown");
    printf("form %d: %ld", form, raw(form, p[1], buf));
    for (got = 10; got < n;) {
        ssize_t r = recv(p[1], buf, sizeof(buf), 0);

        for (ssize_t i = 0; i < r; i++)
            if (got + (size_t)i >= n || buf[i] != nth(got + (size_t)i))
                r = -2;
        if (r <= 0) {
            printf(", not what was written");
            break;
        }
        got += (size_t)r;
    }
    printf(", then %zd\n", recv(p[1], buf, sizeof(buf), 0));
    must(write(p[1], "back", 4) == 4 && recv(p[0], buf, 4, MSG_WAITALL) == 4, "back");
    close(p[0]);
    close(p[1]);
}

static void reset(int form)
{
    struct linger at_once = {1, 0};
    struct pollfd pfd = {0};
    char buf[16] = "";
    int p[2];

    tcp_pair(p);
    deliver(p[0], p[1], "seven..");
    must(setsockopt(p[0], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0, "linger");
    close(p[0]);
    pfd.fd = p[1];
    must(poll(&pfd, 1, 30000) == 1, "reset");
    printf("form %d: ", form);
    SHOW(raw(form, p[1], buf));
    printf("[%s]\n", buf);
    SHOW(recv(p[1], buf, sizeof(buf), 0));
    close(p[1]);
}

int main(void)
{
    alarm(200);
    for (int i = 0; i < FORMS; i++)
        behind(i);
    for (int i = 0; i < FORMS; i++)
        reset(i);
    return 0;
}
