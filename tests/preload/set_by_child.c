/*
 * set_by_child.c - a forked child makes its parent's connection one that does not wait, and
 * another one that does not wait for long, and ends: so they are to the parent, also once they are
 * on a rail again.
 */
#include "say.h"

#include <poll.h>
#include <sys/time.h>

static void across(int from, int to)
{
    struct pollfd p = {to, POLLIN, 0};
    char bytes[64] = "some bytes";

    must(write(from, bytes, sizeof(bytes)) == sizeof(bytes), "write");
    for (size_t have = 0; have < sizeof(bytes);) {
        ssize_t n;

        must(poll(&p, 1, 20000) == 1, "poll");
        n = read(to, bytes, sizeof(bytes) - have);
        must(n > 0, "read");
        have += (size_t)n;
    }
}

static void on_rail_again(int p[2])
{
    time_t begin = time(NULL);
    bool tcp = mode_rail();

    while (tcp && others_run(begin)) {
        unsigned long long one = tcp_sent(p[0]), two = tcp_sent(p[1]);

        across(p[0], p[1]);
        across(p[1], p[0]);
        tcp = tcp_sent(p[0]) != one || tcp_sent(p[1]) != two;
    }
    if (tcp)
        puts("it is not on a rail");
}

int main(void)
{
    const struct timeval moment = {0, 20000};
    int p[2];
    char byte;
    pid_t pid;

    alarm(120);
    tcp_pair(p);
    on_rail(p);
    pid = fork();
    if (pid == 0) {
        must(fcntl(p[0], F_SETFL, O_NONBLOCK) == 0, "F_SETFL");
        must(setsockopt(p[1], SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof(moment)) == 0, "RCVTIMEO");
        _exit(0);
    }
    ended(pid);
    on_rail_again(p);
    SHOW(recv(p[0], &byte, 1, 0));
    SHOW(recv(p[1], &byte, 1, 0));
    must(fcntl(p[0], F_SETFL, 0) == 0 && fcntl(p[1], F_SETFL, O_NONBLOCK) == 0, "F_SETFL");
    SHOW(recv(p[1], &byte, 1, 0));
    SHOW(recv(p[0], &byte, 1, MSG_DONTWAIT));
    return 0;
}
