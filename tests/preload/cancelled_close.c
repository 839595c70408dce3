/*
 * cancelled_close.c - a thread is cancelled within close() on its connection, at one of its
 * instructions after another, in a child each; and as close() begins. Either the number is open,
 * and its connection works, or it is closed, and the other end is told.
 */
#include "cancelled.h"

static void left(void)
{
    char got[MOST];

    if (fcntl(p[0], F_GETFD) >= 0) {
        after();
        return;
    }
    must(read(p[1], got, PIECE) == PIECE && read(p[1], got, 1) == 0 && close(p[1]) == 0, "the end");
}

static void *canceller(void *unused)
{
    (void)unused;
    cancel_first(left);
    return NULL;
}

static void child(void)
{
    to_be_cancelled(canceller);
    raise(SIGTRAP);
    close(p[0]);
    both->over = true;
    if (!both->wish)
        raise(SIGTRAP); /* it did not come by that instruction this time */
    for (;;)
        pthread_testcancel();
}

static void one(struct walk *w, unsigned n)
{
    pid_t pid = next_child();

    if (pid == 0) {
        child();
        _exit(1);
    }
    if (!at_place(w, n, pid, first_stop(pid)))
        return;
    cancel_it_there();
    goes_well(w, n, pid, 0, "close");
}

/* ---- pending when close begins ---- */

static void bye(void *unused)
{
    ssize_t n = send(p[0], "bye", 3, MSG_NOSIGNAL);

    (void)unused;
    printf("clean-up: send %zd, close %d\n", n, close(p[0]));
}

static void *cancelled_at_once(void *how)
{
    pthread_cleanup_push(bye, NULL);
    pthread_cancel(pthread_self());
    if (how)
        printf("by syscall(): %ld\n", syscall(SYS_close, p[0]));
    else
        close(p[0]);
    pthread_testcancel();
    pthread_cleanup_pop(0);
    return NULL;
}

static void pending(void *how)
{
    char got[16];
    pthread_t t;
    ssize_t n;

    connected(p);
    must(pthread_create(&t, NULL, cancelled_at_once, how) == 0, "thread");
    must(pthread_join(t, NULL) == 0, "join");
    n = recv(p[1], got, sizeof(got), 0);
    printf("the other end: %.*s\n", n < 0 ? 0 : (int)n, got);
    close(p[1]);
}

int main(void)
{
    static struct walk w;

    setvbuf(stdout, NULL, _IOLBF, 0);
    pending(NULL);
    pending(&w);
    if (!CAN_WALK)
        return 0;
    both = shared_by_all(sizeof(*both));
    for (unsigned n = 0; n == 0 || n < w.places; n += walk_step(&w, 40))
        one(&w, n);
    printf("close: cancelled in it\n");
    return 0;
}
