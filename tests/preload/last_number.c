/*
 * last_number.c - a server that has written as much as goes without waiting, and has no number left
 * when it closes: its client, which reads only then, gets all that was written, then the end.
 */
#include "warm.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { LIMIT = 1024, SMALL = 16384, MOST = 2 };

struct round {
    int cnt;
    int listener, closing[2], over[2];
    struct sockaddr_in at;
};

static int serve(const struct round *r, int i)
{
    char name[32];
    int fd = accept(r->listener, NULL, NULL), small = SMALL;

    must(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0, "SO_SNDBUF");
    snprintf(name, sizeof name, "connection %d", i);
    warms(name, fd);
    return fd;
}

static void take_numbers(void)
{
    while (open("/dev/null", O_RDONLY) >= 0)
        ;
    must(errno == EMFILE, "open");
}

static void server(const struct round *r)
{
    const struct rlimit limit = {LIMIT, LIMIT};
    int fd[MOST];
    long all[MOST] = {0};
    char byte;

    alarm(100);
    must(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    for (int i = 0; i < r->cnt; i++)
        fd[i] = serve(r, i);
    for (int i = 0; i < r->cnt; i++)
        all[i] = as_much_as_goes(fd[i]);
    take_numbers();
    must(write(r->closing[1], all, sizeof all) == sizeof all, "closing");
    for (int i = 0; i < r->cnt; i++) {
        if (i)
            take_numbers();
        must(close(fd[i]) == 0, "close");
    }
    must(read(r->over[0], &byte, 1) == 1, "over");
    exit(0);
}

/* All of them at once, up to their ends. */
static void read_all(const int *fd, int cnt, long *all)
{
    static char bytes[65536];
    struct pollfd p[MOST];

    for (int i = 0; i < cnt; i++)
        p[i] = (struct pollfd){.fd = fd[i], .events = POLLIN};
    for (int open = cnt; open > 0;) {
        must(poll(p, (nfds_t)cnt, -1) > 0, "poll");
        for (int i = 0; i < cnt; i++) {
            ssize_t n = p[i].revents ? read(p[i].fd, bytes, sizeof bytes) : 0;

            if (n > 0)
                all[i] += n;
            if (n < 0)
                printf("connection %d: %s\n", i, strerrorname_np(errno));
            if (p[i].revents && n <= 0) {
                p[i].fd = -1;
                open--;
            }
        }
    }
}

static void one(int cnt)
{
    struct round r = {.cnt = cnt};
    int fd[MOST], status;
    long written[MOST], got[MOST] = {0};
    pid_t pid;

    printf("-- %d of them\n", cnt);
    fflush(stdout);
    r.listener = listener(&r.at);
    must(pipe(r.closing) == 0 && pipe(r.over) == 0, "pipe");
    pid = fork();
    if (pid == 0)
        server(&r);
    for (int i = 0; i < cnt; i++) {
        fd[i] = socket(AF_INET, SOCK_STREAM, 0);
        must(connect(fd[i], (struct sockaddr *)&r.at, sizeof r.at) == 0, "connect");
        asks(fd[i], 0, pid);
    }
    must(read(r.closing[0], written, sizeof written) == sizeof written, "closing");
    until_process_sleeps(pid); /* in a close, or after all of them */
    read_all(fd, cnt, got);
    for (int i = 0; i < cnt; i++) {
        printf("connection %d: %s\n", i, got[i] == written[i] ? "all of it" : "not all of it");
        close(fd[i]);
    }
    must(write(r.over[1], "", 1) == 1 && waitpid(pid, &status, 0) == pid, "waitpid");
    printf("status %d\n", status);
    for (int i = 0; i < 2; i++) {
        close(r.closing[i]);
        close(r.over[i]);
    }
    close(r.listener);
}

int main(void)
{
    one(1);
    one(2);
    return 0;
}
