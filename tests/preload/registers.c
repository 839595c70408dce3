/*
 * registers.c - a program that registers a socket for each answer that it waits for, and takes it
 * out again, as redis-benchmark and many users of libevent do. The stream boards meanwhile. Nobody
 * but the program's own threads has to run for each message then.
 */
#include "pair.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/epoll.h>

enum { MESSAGES = 2000, SELDOM = MESSAGES / 10 };

static void *echo(void *arg)
{
    int fd = *(int *)arg;
    char buf[64];
    ssize_t n;

    while ((n = read(fd, buf, sizeof(buf))) > 0)
        must(write(fd, buf, (size_t)n) == n, "write");
    return NULL;
}

/* How often the library's thread has gone to sleep; 0: there is none. */
static unsigned long sleeps(void)
{
    DIR *d = opendir("/proc/self/task");
    unsigned long n = 0;
    struct dirent *e;

    must(d != NULL, "/proc/self/task");
    while ((e = readdir(d))) {
        char path[300], line[80];
        bool ours = false;
        FILE *f;

        snprintf(path, sizeof(path), "/proc/self/task/%s/status", e->d_name);
        f = fopen(path, "r");
        while (f && fgets(line, sizeof(line), f)) {
            if (strcmp(line, "Name:\trailsock\n") == 0)
                ours = true;
            if (ours)
                (void)sscanf(line, "voluntary_ctxt_switches: %lu", &n);
        }
        if (f)
            fclose(f);
    }
    closedir(d);
    return n;
}

static void ask(int ep, int fd, useconds_t pause)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP, .data.fd = fd};
    char b[16];

    must(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0, "EPOLL_CTL_ADD");
    if (pause)
        usleep(pause);
    must(write(fd, "a message", 9) == 9, "write");
    must(epoll_wait(ep, &ev, 1, 20000) == 1, "no answer");
    must(read(fd, b, sizeof(b)) == 9, "read");
    must(epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL) == 0, "EPOLL_CTL_DEL");
}

/* One connection: how often that thread was woken once the stream had had time to board. */
static unsigned long woken(int ep)
{
    struct sockaddr_in at;
    unsigned long before;
    pthread_t t;
    int p[2], l;

    l = listener(&at);
    pair_at(l, &at, p);
    close(l);
    must(pthread_create(&t, NULL, echo, &p[1]) == 0, "pthread_create");
    for (int i = 0; i < 200; i++)
        ask(ep, p[0], 500);
    before = sleeps();
    for (int i = 0; i < MESSAGES; i++)
        ask(ep, p[0], 0);
    before = sleeps() - before;
    shutdown(p[0], SHUT_WR);
    pthread_join(t, NULL);
    close(p[0]);
    close(p[1]);
    return before;
}

int main(void)
{
    int ep = epoll_create1(EPOLL_CLOEXEC);
    unsigned long least = MESSAGES, n;

    /* A rail that was made while the socket was not registered is not the instance's:
     * once more then. */
    for (int i = 0; i < 5 && least > SELDOM; i++) {
        n = woken(ep);
        least = n < least ? n : least;
    }
    if (least > SELDOM)
        printf("the library's thread is woken %lu times for %d messages\n", least, MESSAGES);
    else
        printf("nobody else is woken for each message\n");
    return 0;
}
