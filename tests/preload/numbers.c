/*
 * numbers.c - descriptors: dup and close in all their forms, numbers that are used again,
 * stdio, and a socket passed to itself.
 */
#include "say.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

static void dups(void)
{
    int p[2], d, e, f;

    puts("-- dup");
    tcp_pair(p);
    d = dup(p[0]);
    e = fcntl(p[0], F_DUPFD_CLOEXEC, 50);
    f = fcntl(p[0], F_DUPFD, 50);
    printf("%d %d %d\n", d - p[0] > 0, e, f);
    printf("cloexec %d %d\n", fcntl(e, F_GETFD), fcntl(f, F_GETFD));
    deliver(d, p[1], "by dup");
    hear(p[1], "end");
    SHOW(close(p[0]));
    deliver(e, p[1], "by fcntl");
    hear(p[1], "end");
    SHOW(fcntl(e, F_SETFL, O_NONBLOCK));
    SHOW(fcntl(f, F_GETFL) & O_NONBLOCK);
    hear(f, "non-blocking");
    SHOW(dup2(f, 60));
    SHOW(dup2(f, f));
    SHOW(dup2(99, 60));
    SHOW(dup3(f, 60, O_CLOEXEC));
    SHOW(dup3(f, 61, 12345));
    SHOW(dup3(f, f, 0));
    deliver(60, p[1], "by dup3");
    hear(p[1], "end");
    SHOW(close(d));
    SHOW(close(e));
    SHOW(close(f));
    deliver(60, p[1], "the last");
    SHOW(close(60));
    hear(p[1], "end");
    hear(p[1], "end of stream");
    SHOW(close(p[1]));
}

static void over(void)
{
    int p[2], q[2];

    puts("-- dup2 over a connection");
    tcp_pair(p);
    tcp_pair(q);
    SHOW(dup2(q[0], p[0]) == p[0]);
    hear(p[1], "the old peer");
    deliver(p[0], q[1], "new number");
    hear(q[1], "the new peer");
    close(p[0]);
    close(p[1]);
    close(q[0]);
    hear(q[1], "the new peer");
    close(q[1]);
}

static void ranges(void)
{
    int p[2];

    puts("-- ranges");
    tcp_pair(p);
    SHOW(dup2(p[0], 70));
    SHOW(dup2(p[0], 80));
    SHOW(close_range(70, 60, 0));
    SHOW(close_range(70, 75, 99));
    SHOW(close_range(70, 75, CLOSE_RANGE_CLOEXEC));
    SHOW(fcntl(70, F_GETFD));
    SHOW(close_range(65, 75, 0));
    SHOW(fcntl(70, F_GETFD));
    deliver(80, p[1], "survives");
    hear(p[1], "end");
    close(p[0]);
    SHOW(close_range(76, 200, CLOSE_RANGE_UNSHARE));
    hear(p[1], "end");
    SHOW(dup2(p[1], 90));
    closefrom(85);
    SHOW(fcntl(90, F_GETFD));
    close(p[1]);
}

static void again(void)
{
    char name[] = "/tmp/preload-numbers-XXXXXX";
    int p[2], q[2], fd, file;

    puts("-- a number used again");
    tcp_pair(p);
    close(p[0]);
    file = mkstemp(name);
    unlink(name);
    for (int i = 0; (fd = fcntl(file, F_DUPFD, p[0])) != p[0] && i < TRIES_FOR_A_NUMBER; i++)
        close(fd);
    SHOW(fd == p[0]);
    SHOW(write(fd, "in a file", 9));
    SHOW(lseek(fd, 0, SEEK_SET));
    hear(fd, "file");
    close(fd);
    close(file);
    close(p[1]);
    puts("-- closed behind the library's back");
    tcp_pair(p);
    syscall(SYS_close, p[0]);
    syscall(SYS_close, p[1]);
    tcp_pair(q);
    deliver(q[0], q[1], "after all");
    hear(q[1], "end");
    close(q[0]);
    hear(q[1], "end of stream");
    close(q[1]);
}

/* Sends back what comes, until it is to stand still, with bytes sent that nobody reads. */
static void stand_still(const struct sockaddr_in *at)
{
    char bytes[64];
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    must(connect(fd, (const struct sockaddr *)at, sizeof(*at)) == 0, "connect");
    do {
        must(recv(fd, bytes, sizeof(bytes), MSG_WAITALL) == sizeof(bytes), "recv");
        must(write(fd, bytes, sizeof(bytes)) == sizeof(bytes), "write");
    } while (bytes[0] != 'e');
    raise(SIGSTOP);
    hear(fd, "end");
    hear(fd, "end of stream");
    fflush(stdout);
    _exit(0);
}

/* Another process's end, whose last 64 bytes are unread, and which stands still. */
static pid_t still_pair(int *fd)
{
    struct sockaddr_in at;
    int l = listener(&at), status, one = 1;
    char bytes[64] = "some bytes, and the last of them begin with an e";
    unsigned long long sent, received;
    time_t begin = time(NULL);
    int trips = 0;
    pid_t child;
    bool tcp;

    fflush(stdout);
    child = fork();
    must(child >= 0, "fork");
    if (child == 0)
        stand_still(&at);
    *fd = accept(l, NULL, NULL);
    must(*fd >= 0, "accept");
    close(l);
    /* A reset takes what still waits for an answer. */
    must(setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0, "TCP_NODELAY");
    do {
        sent = tcp_sent(*fd);
        received = tcp_received(*fd);
        must(write(*fd, bytes, sizeof(bytes)) == sizeof(bytes), "write");
        must(recv(*fd, bytes, sizeof(bytes), MSG_WAITALL) == sizeof(bytes), "recv");
        trips++;
        tcp = tcp_sent(*fd) != sent || tcp_received(*fd) != received;
    } while (trips < 20 || (mode_rail() && tcp && others_run(begin)));
    must(!(mode_rail() && tcp), "a rail");
    bytes[0] = 'e';
    must(write(*fd, bytes, sizeof(bytes)) == sizeof(bytes), "write");
    must(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status), "stop");
    return child;
}

/* What was buffered goes before the end, although the peer does not give the stream back. */
static void closed_with_a_buffer(bool again)
{
    int fd;
    pid_t child = still_pair(&fd);
    FILE *f = fdopen(fd, "w");

    must(f && fputs("buffered", f) > 0, "fputs");
    if (again) {
        FILE *same = freopen("/dev/null", "w", f);

        SHOW(same == f);
    }
    SHOW(fclose(f));
    fflush(stdout);
    kill(child, SIGCONT);
    must(waitpid(child, NULL, 0) == child, "waitpid");
}

static void stdio(void)
{
    int p[2];
    FILE *f;

    puts("-- stdio");
    tcp_pair(p);
    f = fdopen(p[0], "r+");
    fprintf(f, "a line\n");
    fflush(f);
    hear(p[1], "end");
    deliver(p[1], p[0], "number 42\n");
    fscanf(f, "number %d", p);
    printf("%d\n", p[0]);
    p[0] = fileno(f);
    SHOW(fclose(f));
    SHOW(is_closed(p[0]));
    hear(p[1], "end of stream");
    close(p[1]);
    closed_with_a_buffer(false);
    closed_with_a_buffer(true);
    tcp_pair(p);
    SHOW(dprintf(p[0], "%s %d", "dprintf", 7));
    hear(p[1], "end");
    close(p[0]);
    close(p[1]);
}

static void passed(void)
{
    int p[2], u[2], fd;
    char one = 'x', control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec v = {&one, 1};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);

    puts("-- passed");
    tcp_pair(p);
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, u) == 0, "socketpair");
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &p[0], sizeof(int));
    SHOW(sendmsg(u[0], &m, 0));
    close(p[0]);
    SHOW(recvmsg(u[1], &m, 0));
    c = CMSG_FIRSTHDR(&m);
    must(c != NULL, "SCM_RIGHTS");
    memcpy(&fd, CMSG_DATA(c), sizeof(int));
    deliver(fd, p[1], "after the journey");
    hear(p[1], "end");
    deliver(p[1], fd, "and back");
    hear(fd, "passed");
    close(fd);
    hear(p[1], "end of stream");
    close(p[1]);
    close(u[0]);
    close(u[1]);
}

static void accepting(void)
{
    struct sockaddr_in at;
    struct sockaddr_storage from = {0};
    socklen_t len = sizeof(from);
    int l = listener(&at), i, c, a;

    puts("-- accept");
    for (i = 0; i < 4; i++) {
        c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        SHOW(connect(c, (struct sockaddr *)&at, sizeof(at)));
        if (i == 0) {
            /* O_NONBLOCK is not inherited. */
            fcntl(l, F_SETFL, O_NONBLOCK);
            must(poll(&(struct pollfd){l, POLLIN, 0}, 1, -1) == 1, "poll");
            a = accept(l, (struct sockaddr *)&from, &len);
            printf("length %u family %d\n", len, from.ss_family);
            fcntl(l, F_SETFL, 0);
        } else {
            a = accept4(l, NULL, NULL, (i & 1 ? SOCK_NONBLOCK : 0) | (i & 2 ? SOCK_CLOEXEC : 0));
        }
        printf("O_NONBLOCK %d FD_CLOEXEC %d\n", !!(fcntl(a, F_GETFL) & O_NONBLOCK),
               fcntl(a, F_GETFD));
        SHOW(connect(c, (struct sockaddr *)&at, sizeof(at)));
        SHOW(connect(c, (struct sockaddr *)&at, sizeof(at)));
        must(fcntl(c, F_SETFL, 0) == 0, "F_SETFL");
        deliver(a, c, "hello");
        hear(c, "end");
        close(a);
        close(c);
    }
    SHOW(accept4(l, NULL, NULL, 7));
    SHOW(accept(-1, NULL, NULL));
    fcntl(l, F_SETFL, O_NONBLOCK);
    SHOW(accept(l, NULL, NULL));
    close(l);
    SHOW(accept(l, NULL, NULL));
    puts("-- connect");
    c = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(connect(c, (struct sockaddr *)&at, sizeof(at)));
    SHOW(connect(c, NULL, 0));
    SHOW(connect(c, (struct sockaddr *)&at, 3));
    SHOW(write(c, "x", 1));
    close(c);
    l = listener(&at);
    c = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(connect(c, (struct sockaddr *)&at, sizeof(at)));
    a = accept(l, NULL, NULL);
    SHOW(connect(c, &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr)));
    hear(a, "disconnected");
    close(a);
    SHOW(connect(c, (struct sockaddr *)&at, sizeof(at)));
    a = accept(l, NULL, NULL);
    deliver(a, c, "connected anew");
    hear(c, "end");
    close(a);
    close(c);
    close(l);
}

/* The number stays, without the connection. */
static void disconnected(void)
{
    struct sockaddr_in at;
    int l = listener(&at), q[2];

    puts("-- disconnected");
    for (int i = 0; i < 3; i++) {
        pair_at(l, &at, q);
        warm(q);
        SHOW(connect(q[0], &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr)));
        hear(q[1], "disconnected");
        close(q[1]);
        SHOW(connect(q[0], (struct sockaddr *)&at, sizeof(at)));
        q[1] = accept(l, NULL, NULL);
        deliver(q[1], q[0], "connected anew");
        close(q[0]);
        hear(q[1], "end");
        close(q[1]);
    }
    close(l);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    dups();
    over();
    again();
    disconnected();
    stdio();
    passed();
    accepting();
    ranges(); /* last: nothing boards after it */
    return 0;
}
