/*
 * shapes.c - connections of several shapes, whose system calls short_test.sh counts with the
 * library and without: how many there are does not depend on which of two processes is quicker.
 *
 *   shapes ends N    N connections with a request and its answer, each of which both ends shut down
 *   shapes calls N   with ten of them: more calls than a rail is asked for after
 *   shapes epoll N   with one, whose ends wait in epoll instances
 *   shapes long N    with ten, in epoll instances
 */
#include "tests/bench/bench.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 64, MANY = 10 };

static char buf[SIZE];
static int ep;

static void receive(int fd)
{
    for (ssize_t have = 0, n; have < SIZE; have += n)
        must((n = recv(fd, buf, (size_t)(SIZE - have), 0)) > 0, "recv");
}

static void transmit(int fd)
{
    must(send(fd, buf, SIZE, 0) == SIZE, "send");
}

static void end(int fd)
{
    must(recv(fd, buf, 1, 0) == 0, "end");
}

static void add(int fd)
{
    struct epoll_event ev = {.events = EPOLLIN};

    must(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0, "epoll_ctl");
}

static void await(void)
{
    struct epoll_event ev;

    must(epoll_wait(ep, &ev, 1, -1) == 1, "epoll_wait");
}

static void ends_server(int fd)
{
    receive(fd);
    transmit(fd);
    end(fd);
    must(shutdown(fd, SHUT_RDWR) == 0, "shutdown");
}

static void ends_client(int fd)
{
    transmit(fd);
    receive(fd);
    must(shutdown(fd, SHUT_WR) == 0, "shutdown");
    end(fd);
}

static void calls_server(int fd)
{
    for (int i = 0; i < MANY; i++) {
        receive(fd);
        transmit(fd);
    }
    end(fd);
}

static void calls_client(int fd)
{
    for (int i = 0; i < MANY; i++) {
        transmit(fd);
        receive(fd);
    }
}

static void waiting_server(int fd, int n)
{
    add(fd);
    for (int i = 0; i < n; i++) {
        await();
        receive(fd);
        transmit(fd);
    }
    await();
    end(fd);
}

static void waiting_client(int fd, int n)
{
    add(fd);
    for (int i = 0; i < n; i++) {
        transmit(fd);
        await();
        receive(fd);
    }
}

static void epoll_server(int fd)
{
    waiting_server(fd, 1);
}

static void epoll_client(int fd)
{
    waiting_client(fd, 1);
}

static void long_server(int fd)
{
    waiting_server(fd, MANY);
}

static void long_client(int fd)
{
    waiting_client(fd, MANY);
}

static const struct shape {
    const char *name;
    void (*server)(int fd), (*client)(int fd);
} shapes[] = {{"ends", ends_server, ends_client},
              {"calls", calls_server, calls_client},
              {"epoll", epoll_server, epoll_client},
              {"long", long_server, long_client}};

/* A program of its own, so that it has the library for itself. */
static void serve(const struct shape *s, int n)
{
    struct sockaddr_in at;
    int l = listening(&at, 1024);

    must(write(1, &at, sizeof(at)) == sizeof(at), "port");
    for (int i = 0; i < n; i++) {
        int fd = accept4(l, NULL, NULL, SOCK_CLOEXEC);

        must(fd >= 0, "accept");
        s->server(fd);
        close(fd);
    }
}

static void visit(const struct shape *s, int n, const char *self, char **argv)
{
    struct sockaddr_in at;
    int p[2], status;
    pid_t child;

    must(pipe(p) == 0, "pipe");
    child = fork();
    if (child == 0) {
        dup2(p[1], 1);
        execl(self, self, argv[1], argv[2], "serve", (char *)NULL);
        _exit(1);
    }
    must(read(p[0], &at, sizeof(at)) == sizeof(at), "port");
    for (int i = 0; i < n; i++) {
        int fd = connected(&at);

        s->client(fd);
        close(fd);
    }
    must(waitpid(child, &status, 0) == child && status == 0, "server");
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc >= 3 && i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        if (strcmp(argv[1], shapes[i].name) != 0)
            continue;
        ep = epoll_create1(EPOLL_CLOEXEC);
        must(ep >= 0, "epoll_create1");
        if (argc == 4)
            serve(&shapes[i], atoi(argv[2]));
        else
            visit(&shapes[i], atoi(argv[2]), argv[0], argv);
        return 0;
    }
    return 2;
}
