/*
 * jumped_first.c - a handler that jumps out of a process's first connect(), at each of its
 * instructions in turn, each in a process of its own: there the library begins to look after
 * handlers. Another handler can be set then, and another connection made.
 */
#include "rounds.h"
#include "walk.h"

#include <setjmp.h>

enum { EACH = 2 }; /* of so many instructions one: all of them take a minute */

static volatile bool *over;
static sigjmp_buf out;

static void jumping(int sig)
{
    (void)sig;
    siglongjmp(out, 1);
}

static void first_connect(const struct sockaddr_in *at)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    /* The dynamic linker, which nobody may jump out of, knows the function then. */
    (void)connect(-1, (const struct sockaddr *)at, sizeof(*at));
    if (sigsetjmp(out, 1) == 0) {
        raise(SIGTRAP);
        (void)connect(fd, (const struct sockaddr *)at, sizeof(*at));
    }
    *over = true;
    /* where it did not come by that instruction this time, or where it was only walked through */
    raise(SIGTRAP);
    close(fd);
}

static int child(const struct sockaddr_in *at)
{
    struct sigaction sa = {.sa_handler = jumping};
    struct sockaddr_in own;
    int q[2];

    must(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0, "PTRACE_TRACEME");
    must(sigaction(SIGUSR1, &sa, NULL) == 0, "sigaction");
    first_connect(at);
    must(sigaction(SIGUSR2, &sa, NULL) == 0, "another handler");
    pair_at(listener(&own), &own, q);
    pass(q, 0);
    must(close(q[0]) == 0 && recv(q[1], (char[1]){0}, 1, 0) == 0, "the end");
    return 0;
}

/* One child, which is walked through, or in which the handler runs at that place. */
static bool one(const struct sockaddr_in *at, struct walk *w, unsigned n)
{
    int status, sig = 0;
    pid_t pid;

    *over = false;
    fflush(stdout);
    pid = fork();
    if (pid == 0)
        exit(child(at));
    (void)first_stop(pid);
    if (w->places) {
        run_to(pid, w->at[n]);
        sig = SIGUSR1;
    } else {
        walk(w, pid, over);
    }
    while (goes_on(pid, PTRACE_CONT, sig, &status))
        sig = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
    if (status != 0)
        printf("status %d at place %u\n", status, n);
    return status == 0;
}

int main(int argc, char **argv)
{
    struct sockaddr_in at;
    static struct walk w;
    int l, fd;

    (void)argc;
    (void)argv;
    if (!CAN_WALK)
        return 0;
    start_deadline();
    doing = "the first connect";
    over = shared_by_all(sizeof(*over));
    l = listener(&at);
    must(fcntl(l, F_SETFL, O_NONBLOCK) == 0, "O_NONBLOCK");
    for (unsigned n = 0; (n == 0 || n < w.places) && one(&at, &w, n); n += walk_step(&w, EACH))
        /* Past the library, which must not have begun in the children's parent. */
        while ((fd = (int)syscall(SYS_accept4, l, NULL, NULL, 0)) >= 0)
            close(fd);
    puts("jumped out of it");
    return 0;
}
