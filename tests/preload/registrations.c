/*
 * registrations.c - what an epoll instance goes on telling of: a socket that is disconnected and
 * connected again, one that is connected under another number than it was registered under, and one
 * that a forked child has, too, and that is closed here.
 */
#include "pair.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>

enum { WORDS = 3000, LIMIT_MS = 20000 };

static int l, ep;
static struct sockaddr_in at;

static void add(int fd, uint32_t name)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u32 = name};

    must(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0, "epoll_ctl");
}

/* Words to fd, which answers each when it is told of it; boards: until they go over a rail,
 * where they are to. */
static void talk(const char *what, int fd, int peer, bool boards)
{
    time_t begin = time(NULL);
    struct epoll_event ev;
    char word[64] = {0};
    bool tcp = boards && mode_rail();

    for (int i = 0; i < WORDS || (tcp && others_run(begin)); i++) {
        unsigned long long before = tcp_sent(peer);

        must(write(peer, word, sizeof(word)) == sizeof(word), "write");
        if (epoll_wait(ep, &ev, 1, LIMIT_MS) != 1) {
            printf("%s: nothing is told\n", what);
            return;
        }
        must(read(fd, word, sizeof(word)) == sizeof(word), "read");
        must(write(fd, word, sizeof(word)) == sizeof(word), "write back");
        must(read(peer, word, sizeof(word)) == sizeof(word), "read back");
        tcp = tcp && tcp_sent(peer) != before;
    }
    printf("%s: all is told\n", what);
}

static int connects(int fd)
{
    int peer;

    must(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
    peer = accept(l, NULL, NULL);
    must(peer >= 0, "accept");
    return peer;
}

static void connected_again(void)
{
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    int fd = socket(AF_INET, SOCK_STREAM, 0), peer = connects(fd);

    add(fd, 1);
    talk("connected", fd, peer, true);
    must(connect(fd, &none, sizeof(none)) == 0, "disconnect");
    close(peer);
    peer = connects(fd);
    talk("connected again", fd, peer, false);
    close(fd);
    close(peer);
}

static void under_another_number(bool added_first)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0), other, peer;

    if (added_first)
        add(fd, 2);
    other = dup(fd);
    if (!added_first)
        add(fd, 2);
    close(fd);
    peer = connects(other);
    talk("another number", other, peer, false);
    close(other);
    close(peer);
}

/* Not on a rail: one that was is taken out (README, limits). */
static void closed_here(void)
{
    struct epoll_event ev = {0};
    struct pollfd p;
    pid_t child;
    int fds[2];
    char word[64] = {0};

    close(ep);
    ep = epoll_create1(0);
    p = (struct pollfd){.fd = ep, .events = POLLIN};
    pair_at(l, &at, fds);
    add(fds[1], 3);
    SHOW(poll(&p, 1, 0)); /* an instance that is itself waited for */
    for (int i = 0; i < 2; i++) {
        must(write(fds[0], word, sizeof(word)) == sizeof(word), "write");
        SHOW(epoll_wait(ep, &ev, 1, LIMIT_MS));
        must(read(fds[1], word, sizeof(word)) == sizeof(word), "read");
    }
    child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    close(fds[1]);
    must(write(fds[0], word, sizeof(word)) == sizeof(word), "write");
    printf("closed here: %s\n", mode_rail() || (epoll_wait(ep, &ev, 1, LIMIT_MS) == 1 &&
                                                ev.data.u32 == 3 && poll(&p, 1, LIMIT_MS) == 1)
                                    ? "the child's is told"
                                    : "nothing is told");
    kill(child, SIGKILL);
    SHOW(waitpid(child, NULL, 0) == child);
    close(fds[0]);
}

int main(void)
{
    l = listener(&at);
    ep = epoll_create1(0);
    closed_here(); /* before anything has boarded */
    connected_again();
    under_another_number(true);
    under_another_number(false);
    return 0;
}
