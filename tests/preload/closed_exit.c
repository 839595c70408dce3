/*
 * closed_exit.c - a process that has sent more than its peer reads, closes and ends: whether the peer has it all by then is the
 * kernel's business, and nobody waits for that.
 */
#include "pair.h"

#include <sys/wait.h>

enum { BYTES = 1500000 };

static void writer(int fd, bool closes)
{
    static char bytes[BYTES];

    must(send(fd, bytes, sizeof(bytes), 0) == sizeof(bytes), "send");
    if (closes)
        close(fd);
    _exit(0);
}

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* How long it takes to end; the least of some times, since the machine may be busy. */
static uint64_t ends_after(bool closes)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < 5 && least > 1000; i++) {
        char bytes[16384];
        size_t got = 0;
        ssize_t n;
        int ready[2], p[2];
        pid_t child;

        must(pipe(ready) == 0, "pipe");
        child = fork();
        must(child >= 0, "fork");
        if (child == 0) {
            struct sockaddr_in at;
            int l = listener(&at), fd;

            must(write(ready[1], &at, sizeof(at)) == sizeof(at) &&
                     (fd = accept(l, NULL, NULL)) >= 0,
                 "accept");
            echo_words(fd);
            must(recv(fd, bytes, 1, 0) == 1, "go");
            writer(fd, closes);
        } else {
            struct sockaddr_in at;
            uint64_t began;

            must(read(ready[0], &at, sizeof(at)) == sizeof(at), "address");
            p[0] = socket(AF_INET, SOCK_STREAM, 0);
            must(connect(p[0], (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
            words_by_rail(p[0]);
            began = now_ms();
            must(send(p[0], "g", 1, 0) == 1 && waitpid(child, NULL, 0) == child, "waitpid");
            least = now_ms() - began < least ? now_ms() - began : least;
            while ((n = recv(p[0], bytes, sizeof(bytes), 0)) > 0)
                got += (size_t)n;
            if (got != BYTES || n < 0)
                printf("%zu bytes, then %zd\n", got, n);
            close(p[0]);
            close(ready[0]);
            close(ready[1]);
        }
    }
    return least;
}

int main(void)
{
    alarm(100);
    for (int closes = 0; closes < 2; closes++)
        printf("it ends %s\n", ends_after(closes) < 1500 ? "at once" : "late");
    return 0;
}
