/*
 * walks_more.c - steps of random walks: options, urgent data, what happens to descriptors, and
 * calls that are for other sockets.
 */
#include "tests/conform/walks.h"

#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/wait.h>

/* ---- options */

void least(struct walk *w, int i)
{
    int n = 1 + (int)below(w, 2 * FEW);

    SHOW(setsockopt(w->fd[i], SOL_SOCKET, SO_RCVLOWAT, &n, sizeof(n)));
    say(" %d", n);
}

void option(struct walk *w, int i)
{
    static const struct {
        const char *name;
        int level, of, most;
    } options[] = {
        {"TCP_QUICKACK", IPPROTO_TCP, TCP_QUICKACK, 2},
        {"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 2},
        {"TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT, 9000},
        {"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, 90},
        {"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE, 2},
        {"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR, 2},
        {"SO_SNDBUF", SOL_SOCKET, SO_SNDBUF, 90000},
        {"SO_RCVBUF", SOL_SOCKET, SO_RCVBUF, 90000},
        {"TCP_MAXSEG", IPPROTO_TCP, TCP_MAXSEG, 9000},
        {"TCP_NOTSENT_LOWAT", IPPROTO_TCP, TCP_NOTSENT_LOWAT, 9000},
        {"TCP_LINGER2", IPPROTO_TCP, TCP_LINGER2, 50},
        {"TCP_DEFER_ACCEPT", IPPROTO_TCP, TCP_DEFER_ACCEPT, 2},
        {"SO_BUSY_POLL", SOL_SOCKET, SO_BUSY_POLL, 2},
        {"SO_TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP, 2},
        {"TCP_REPAIR", IPPROTO_TCP, TCP_REPAIR, 1},
        {"SO_PRIORITY", SOL_SOCKET, SO_PRIORITY, 6},
        {"IP_TOS", IPPROTO_IP, IP_TOS, 200},
        {"TCP_INQ", IPPROTO_TCP, TCP_INQ, 2},
    };
    unsigned which = below(w, COUNT(options));
    int n = (int)below(w, (unsigned)options[which].most), now = -1;
    socklen_t len = sizeof(now);

    if (below(w, 2))
        SHOW_AS(options[which].name,
                setsockopt(w->fd[i], options[which].level, options[which].of, &n, sizeof(n)));
    SHOW_AS(options[which].name,
            getsockopt(w->fd[i], options[which].level, options[which].of, &now, &len));
    if (options[which].of != TCP_QUICKACK && options[which].of != TCP_MAXSEG)
        say(" %d", now);
}

void in_time(struct walk *w, int i)
{
    struct timeval ms = {0, 1000}, none = {0, 0};
    char bytes[1];

    must(setsockopt(w->fd[i], SOL_SOCKET, SO_RCVTIMEO, &ms, sizeof(ms)) == 0, "SO_RCVTIMEO");
    SHOW(recv(w->fd[i], bytes, 1, MSG_PEEK));
    must(setsockopt(w->fd[i], SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none)) == 0, "SO_RCVTIMEO");
}

void not_blocking(struct walk *w, int i)
{
    bool by_ioctl = below(w, 2);
    char bytes[FEW];
    int on = 1;
    ssize_t n;

    if (by_ioctl)
        must(ioctl(w->fd[i], FIONBIO, &on) == 0, "FIONBIO");
    else
        nonblock(w->fd[i], true);
    n = SHOW(read(w->fd[i], bytes, sizeof(bytes)));
    has_got(w, i, bytes, n, true);
    on = 0;
    if (by_ioctl)
        nonblock(w->fd[i], false);
    else
        must(ioctl(w->fd[i], FIONBIO, &on) == 0, "FIONBIO");
}

void state(struct walk *w, int i)
{
    struct tcp_info info;
    socklen_t len = sizeof(info);

    must(getsockopt(w->fd[i], IPPROTO_TCP, TCP_INFO, &info, &len) == 0, "TCP_INFO");
    /* FIN may not be acknowledged yet. */
    say("state %d", info.tcpi_state == TCP_FIN_WAIT1 ? TCP_FIN_WAIT2 : info.tcpi_state);
}

/* ---- urgent bytes */

void sends_urgent(struct walk *w, int i)
{
    char byte = (char)pattern(w->sent[i]);

    if (SHOW(send(w->fd[i], &byte, 1, MSG_OOB)) == 1)
        w->sent[i]++;
}

/* SIGURG, once there is something. */
void owns(struct walk *w, int i)
{
    SHOW(fcntl(w->fd[i], F_SETOWN, getpid()));
    SHOW_AS("F_GETOWN", fcntl(w->fd[i], F_GETOWN) == getpid());
}

void receives_urgent(struct walk *w, int i)
{
    char byte = 0;

    SHOW(recv(w->fd[i], &byte, 1, MSG_OOB | MSG_DONTWAIT));
    SHOW(ioctl(w->fd[i], SIOCATMARK, &(int){0}));
}

/* ---- descriptors, processes, threads */

void another_number(struct walk *w, int i)
{
    int old = w->fd[i], now;

    switch (below(w, 5)) {
    case 0:
        now = dup(old);
        break;
    case 1:
        now = dup2(old, 200 + (int)below(w, 100));
        break;
    case 2: /* one of those that stay on TCP, unless the other end has it */
        now = w->fd[!i] == 0 ? old : dup2(old, 0);
        break;
    case 3:
        now = dup3(old, 400 + (int)below(w, 100), O_CLOEXEC);
        break;
    default:
        now = fcntl(old, F_DUPFD_CLOEXEC, 100);
    }
    must(now >= 0, "dup");
    if (now == old)
        return;
    close(old);
    w->fd[i] = now;
    say("another number");
}

void over_itself(struct walk *w, int i)
{
    int of = dup(w->fd[i]);

    must(dup2(of, w->fd[i]) == w->fd[i], "dup2");
    close(of);
    say("its own number again");
}

void passed_back(struct walk *w, int i)
{
    int way[2];

    /* What is unread behind a reset, or before a switch, stays with this process; so does an epoll
     * registration of a number that is closed. */
    if (w->fd[!i] < 0 || unread(w, i) > 0)
        return;
    for (int n = 0; n < 2; n++)
        epoll_ctl(w->ep[n], EPOLL_CTL_DEL, w->fd[i], NULL);
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, way) == 0, "socketpair");
    must(pass_fd(way[0], w->fd[i]) == 1, "SCM_RIGHTS");
    close(w->fd[i]);
    w->fd[i] = passed_fd(way[1]);
    close(way[0]);
    close(way[1]);
    say("passed");
}

void child(struct walk *w, int i)
{
    unsigned what = below(w, 4);
    char bytes[FEW];
    int status, fd = w->fd[i];
    pid_t pid;

    for (size_t k = 0; k < sizeof(bytes); k++)
        bytes[k] = (char)pattern(w->sent[i] + k);
    if (w->fd[!i] < 0 || unread(w, i) > 0) /* as in passed_back */
        return;
    if (what == 1 && MOST_UNREAD - unread(w, !i) < sizeof(bytes))
        what = 0;
    fflush(stdout);
    pid = fork();
    must(pid >= 0, "fork");
    if (pid == 0) {
        ssize_t n = 0;

        if (what == 1)
            n = send(fd, bytes, 10, MSG_NOSIGNAL);
        else if (what == 2)
            n = recv(fd, bytes, 10, MSG_DONTWAIT);
        else if (what == 3)
            close(fd);
        _exit(n < 0 ? 100 : (int)n);
    }
    must(waitpid(pid, &status, 0) == pid && WIFEXITED(status), "child");
    say("child %u: %d", what, WEXITSTATUS(status));
    if (what == 1 && WEXITSTATUS(status) == 10)
        w->sent[i] += 10;
    if (what == 2 && WEXITSTATUS(status) <= 10)
        w->got[i] += (size_t)WEXITSTATUS(status);
}

/* Another stream has the number, and ends by this. */
void over_another(struct walk *w, int i)
{
    struct pollfd q;
    int p[2], far;

    pair(p);
    far = p[!i];
    must(dup2(w->fd[i], p[i]) == p[i], "dup2");
    close(w->fd[i]);
    w->fd[i] = p[i];
    q = (struct pollfd){.fd = far, .events = POLLIN | POLLRDHUP};
    must(poll(&q, 1, 10000) == 1, "the other stream's end");
    say_events("the other stream", q.revents);
    close(far);
}

/* Programs that know nothing of it have it, and nobody uses it. */
void system_of(struct walk *w, int i)
{
    (void)i;
    if (w->fd[!i] < 0 || unread(w, i) > 0 || unread(w, !i) > 0) /* as in passed_back */
        return;
    fflush(stdout);
    SHOW(system("true"));
    w->inherited = true;
}

void by_stdio(struct walk *w, int i)
{
    char bytes[10];
    FILE *f;

    if (w->deaf[!i] || MOST_UNREAD - unread(w, !i) < sizeof(bytes))
        return;
    for (size_t k = 0; k < sizeof(bytes); k++)
        bytes[k] = (char)pattern(w->sent[i] + k);
    f = fdopen(dup(w->fd[i]), "r+");
    must(f != NULL, "fdopen");
    SHOW(fwrite(bytes, 1, sizeof(bytes), f));
    if (SHOW(fflush(f)) == 0)
        w->sent[i] += sizeof(bytes);
    SHOW(fclose(f));
}

void polls_all(struct walk *w, int i)
{
    struct pollfd q[] = {
        {w->fd[i], POLLIN | POLLOUT, 0}, {w->fd[!i], POLLIN | POLLRDHUP, 0},
        {w->fd[i], POLLOUT, 0},          {-1, POLLIN, 0},
        {w->ep[0], POLLIN, 0},           {w->fd[i], POLLPRI, 0},
    };

    SHOW(poll(q, COUNT(q), 0));
    for (size_t k = 0; k < COUNT(q); k++)
        say_events(" ", q[k].revents);
}

struct wake {
    int from, to;
    char byte;
    ssize_t sent;
};

static void sends_byte(void *arg)
{
    struct wake *k = arg;

    k->sent = send(k->from, &k->byte, 1, MSG_NOSIGNAL);
    if (k->sent != 1)
        shutdown(k->to, SHUT_RDWR);
}

/* Somebody waits for a byte that then comes. */
void wakes(struct walk *w, int i)
{
    struct wake k = {w->fd[!i], w->fd[i], (char)pattern(w->sent[!i]), 0};
    struct pollfd q = {.fd = w->fd[i], .events = POLLIN | POLLRDHUP};
    struct later l;
    char byte;

    if (w->fd[!i] < 0 || poll(&q, 1, 0) != 0)
        return;
    later(&l, sends_byte, &k);
    SHOW(recv(w->fd[i], &byte, 1, MSG_PEEK));
    later_end(&l);
    say("sent %zd", k.sent);
    if (k.sent == 1)
        w->sent[!i]++;
}

/* ---- calls that are for other sockets */

void other_calls(struct walk *w, int i)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof(a);
    char byte = 0;
    off_t at = 0;
    int fd = w->fd[i];

    if (w->deaf[i]) /* it could listen and wait for somebody */
        return;
    memset(&a, 0, sizeof(a));
    switch (below(w, 10)) {
    case 0:
        SHOW(listen(fd, 1));
        break;
    case 1:
        SHOW(accept(fd, NULL, NULL));
        break;
    case 2:
        a.ss_family = AF_INET;
        SHOW(bind(fd, (struct sockaddr *)&a, sizeof(struct sockaddr_in)));
        break;
    case 3:
        SHOW(getpeername(fd, (struct sockaddr *)&a, &len));
        break;
    case 4:
        SHOW(pread(fd, &byte, 1, 0));
        break;
    case 5:
        SHOW(lseek(fd, 0, SEEK_CUR));
        break;
    case 6:
        SHOW(ftruncate(fd, 0));
        break;
    case 7:
        SHOW(sendto(fd, &byte, 0, 0, NULL, 0));
        break;
    case 8:
        SHOW(sendfile(fd, fd, &at, 1));
        break;
    default:
        a.ss_family = AF_INET;
        ((struct sockaddr_in *)&a)->sin_port = htons(9);
        SHOW(connect(fd, (struct sockaddr *)&a, sizeof(struct sockaddr_in)));
    }
}

void disconnects(struct walk *w, int i)
{
    struct sockaddr a = {.sa_family = AF_UNSPEC};

    /* Not one that the peer has reset by the same: what is left of its error is
     * nobody's business. */
    if (!w->deaf[!i] && SHOW(connect(w->fd[i], &a, sizeof(a))) == 0)
        w->deaf[i] = true;
}
