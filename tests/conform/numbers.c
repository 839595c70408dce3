/*
 * numbers.c - descriptors: which numbers calls return, dup and close in all forms, sockets
 * that were made in unusual ways, and passing them on: dup(2), close(2), close_range(2),
 * unix(7), socket(2).
 */
#include "tests/conform/kit.h"

#include <dirent.h>
#include <linux/close_range.h>
#include <sys/resource.h>
#include <sys/un.h>

static int p[2];

static void both_ways(int a, int b)
{
    char buf[10] = "";

    must(send(a, "ping", 4, MSG_NOSIGNAL) == 4 && recv(b, buf, 4, MSG_WAITALL) == 4, "ping");
    must(send(b, "pong", 4, MSG_NOSIGNAL) == 4 && recv(a, buf, 4, MSG_WAITALL) == 4, "pong");
    say_bytes("both ways", buf, 4);
}

CASE(lowest_number)
{
    int a, b, c;

    pair(p);
    a = dup(0);
    SHOW(close(p[0]));
    b = dup(0);
    c = dup(0);
    /* A thread of the library's that stands still in the middle of a step may have
     * had one of them. */
    for (int i = 0; (b != p[0] || c != a + 1) && i < 20; i++) {
        close(b);
        close(c);
        b = dup(0);
        c = dup(0);
    }
    say("%d %d", b == p[0], c == a + 1);
}

CASE(open_numbers)
{
    struct dirent *e;
    DIR *d;
    int n = 0;

    pair(p);
    d = opendir("/proc/self/fd");
    while ((e = readdir(d)))
        n += atoi(e->d_name) > 2 && atoi(e->d_name) < 512;
    closedir(d);
    say("%d", n); /* the pair, and the directory */
}

CASE(dup_dup2_dup3)
{
    int d;

    pair(p);
    d = dup(p[0]);
    both_ways(d, p[1]);
    SHOW_AS("dup2", dup2(p[0], 100));
    both_ways(100, p[1]);
    SHOW_AS("dup3", dup3(p[0], 101, O_CLOEXEC));
    SHOW(fcntl(101, F_GETFD));
    SHOW_AS("the same", dup3(100, 100, 0));
    SHOW(dup2(100, 100));
    SHOW(dup2(999, 100));
    SHOW(dup2(100, -1));
    SHOW(dup(-1));
    SHOW(fcntl(p[0], F_DUPFD, 200));
    SHOW(fcntl(p[0], F_DUPFD_CLOEXEC, 200));
    both_ways(201, p[1]);
    SHOW(close(p[0]));
    SHOW(close(d));
    both_ways(100, p[1]);
}

CASE(dup2_closes_what_was_there)
{
    int q[2];

    pair(p);
    pair(q);
    SHOW_AS("dup2", dup2(q[0], p[0]) == p[0] ? 0 : -1);
    until(p[1], POLLRDHUP);
    SHOW(recv(p[1], (char[1]){0}, 1, 0));
    both_ways(p[0], q[1]);
    SHOW(close(q[0]));
    both_ways(p[0], q[1]);
}

CASE(ranges)
{
    int q[2];

    pair(p);
    pair(q);
    SHOW(close_range(10, 5, 0));
    SHOW(close_range(3, 500, 1 << 10));
    SHOW_AS("CLOSE_RANGE_CLOEXEC",
            close_range((unsigned)p[0], (unsigned)p[0], CLOSE_RANGE_CLOEXEC));
    SHOW(fcntl(p[0], F_GETFD));
    both_ways(p[0], p[1]);
    SHOW_AS("close_range", close_range((unsigned)p[0], (unsigned)p[0], 0));
    SHOW(recv(p[1], (char[1]){0}, 1, 0));
    both_ways(q[0], q[1]);
    closefrom(3);
    SHOW(send(q[0], "x", 1, MSG_NOSIGNAL));
}

CASE(moved_out_of_the_way)
{
    pair(p);
    SHOW_AS("dup2", dup2(p[0], 300));
    SHOW(close(p[0]));
    SHOW_AS("dup2", dup2(p[1], 301));
    SHOW(close(p[1]));
    both_ways(300, 301);
}

CASE(swapped)
{
    int q[2], t;

    pair(p);
    pair(q);
    t = dup(p[0]);
    dup2(q[0], p[0]);
    dup2(t, q[0]);
    close(t);
    both_ways(p[0], q[1]);
    both_ways(q[0], p[1]);
}

static void give(int via, int fd)
{
    SHOW_AS("sendmsg(via, &m, 0)", pass_fd(via, fd));
}

CASE(passed_and_received)
{
    int via[2], got;

    pair(p);
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, via) == 0, "socketpair");
    deliver(p[1], p[0], "before");
    give(via[0], p[0]);
    SHOW(close(p[0]));
    got = passed_fd(via[1]);
    SHOW(recv(got, (char[10]){0}, 10, 0));
    both_ways(got, p[1]);
}

CASE(passed_after_the_end)
{
    char buf[20] = "";
    int via[2], got;

    pair(p);
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, via) == 0, "socketpair");
    deliver(p[1], p[0], "the last words");
    SHOW(shutdown(p[1], SHUT_WR));
    until(p[0], POLLRDHUP);
    give(via[0], p[0]);
    SHOW(close(p[0]));
    got = passed_fd(via[1]);
    SHOW(recv(got, buf, 20, MSG_WAITALL));
    say_bytes("got", buf, 20);
}

CASE(control_data_on_tcp)
{
    char control[64] = "", buf[10] = "";
    struct iovec v = {buf, sizeof(buf)};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control};

    pair(p);
    deliver(p[0], p[1], "data");
    m.msg_controllen = sizeof(control);
    SHOW(recvmsg(p[1], &m, 0));
    say("control %zu, flags %#x", m.msg_controllen, (unsigned)m.msg_flags);
    v.iov_len = 4;
    m.msg_controllen = 0;
    SHOW(sendmsg(p[0], &m, 0));
    arrived(p[1], 4);
    give(p[0], 0); /* rights cannot go over TCP */
    arrived(p[1], 5);
    while (recv(p[1], buf, sizeof(buf), MSG_DONTWAIT) > 0)
        ;
    both_ways(p[1], p[0]);
}

CASE(stdio)
{
    char line[20] = "";
    FILE *in, *out;

    pair(p);
    in = fdopen(dup(p[1]), "r");
    out = fdopen(dup(p[0]), "w");
    SHOW(fprintf(out, "a line\nand more"));
    SHOW(fflush(out));
    must(fgets(line, sizeof(line), in) != NULL, "fgets");
    say_bytes("got", line, 6);
    SHOW(fclose(out));
    SHOW(close(p[0]));
    must(fgets(line, sizeof(line), in) != NULL, "fgets");
    say_bytes("got", line, 8);
    say("end %d %d", fgets(line, sizeof(line), in) == NULL, feof(in));
}

CASE(stdio_after_the_end)
{
    char line[20] = "";
    FILE *in;

    pair(p);
    deliver(p[0], p[1], "the last line\n");
    SHOW(close(p[0]));
    until(p[1], POLLRDHUP);
    in = fdopen(p[1], "r");
    say("%d", fgets(line, sizeof(line), in) != NULL);
    say_bytes("got", line, (ssize_t)strlen(line));
    say("%d", fgets(line, sizeof(line), in) != NULL);
}

CASE(standard_numbers)
{
    int keep = dup(1);
    char buf[10] = "";

    pair(p);
    must(dup2(p[0], 0) == 0 && dup2(p[0], 1) == 1, "dup2");
    must(write(1, "out", 3) == 3, "write");
    must(recv(p[1], buf, 3, MSG_WAITALL) == 3, "recv");
    must(send(p[1], "in", 2, 0) == 2, "send");
    must(read(0, buf + 3, 2) == 2, "read");
    dup2(keep, 1);
    say_bytes("got", buf, 5);
}

CASE(no_more_numbers)
{
    struct rlimit l;
    struct sockaddr_storage at;
    socklen_t len;
    int s = listener(&net4, &at, &len), c = socket(AF_INET, SOCK_STREAM, 0), n = 0;

    pair(p);
    must(getrlimit(RLIMIT_NOFILE, &l) == 0, "getrlimit");
    l.rlim_cur = 40;
    SHOW(setrlimit(RLIMIT_NOFILE, &l));
    while (dup(0) >= 0)
        n++;
    say("%d, %s", n, strerrorname_np(errno));
    SHOW(socket(AF_INET, SOCK_STREAM, 0));
    SHOW(connect(c, (struct sockaddr *)&at, len));
    SHOW(accept(s, NULL, NULL));
    both_ways(p[0], p[1]);
    SHOW(close(39));
    p[1] = accept(s, NULL, NULL);
    say("%d", p[1]);
    both_ways(c, p[1]);
}

CASE(sockets_that_are_not_ours)
{
    int u[2];

    SHOW(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
    SHOW(socket(AF_INET, 77, 0));
    SHOW(socket(9999, SOCK_STREAM, 0));
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, u) == 0, "socketpair");
    both_ways(u[0], u[1]);
    SHOW(ioctl(u[0], FIONREAD, (int[1]){0}));
    SHOW(send(u[0], "x", 1, MSG_OOB));
    SHOW(shutdown(u[0], SHUT_WR));
}
