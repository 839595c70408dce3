/*
 * aio_reset.c - POSIX asynchronous reads of a connection that its peer has reset: what had come
 * before is read, then the error is told, then the end; each with its notification.
 */
#include "pair.h"

#include <aio.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>

enum { PART = 700, PARTS = 3 };

static sem_t told;

static void by_signal(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)context;
    if (info->si_code == SI_ASYNCIO && info->si_value.sival_int == 42)
        sem_post(&told);
}

static void by_thread(union sigval v)
{
    if (v.sival_int == 42)
        sem_post(&told);
}

static void show(const struct aiocb *cb, const char *how)
{
    const char *buf = (const char *)cb->aio_buf;
    int err = aio_error(cb);
    ssize_t n = aio_return((struct aiocb *)cb);

    if (n < 0)
        printf("%s: %s\n", how, strerrorname_np(err));
    else
        printf("%s: %zd%s\n", how, n,
               n > 0 && (buf[0] != 'a' || buf[n - 1] != 'a') ? ", other bytes" : "");
}

static void wait_for(struct aiocb *cb)
{
    const struct aiocb *list[] = {cb};

    if (cb->aio_sigevent.sigev_notify != SIGEV_NONE)
        while (sem_wait(&told))
            ;
    while (aio_error(cb) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
}

static void one(int fd, int notify)
{
    static char buf[PART];
    struct aiocb cb = {.aio_fildes = fd, .aio_buf = buf, .aio_nbytes = PART};

    cb.aio_sigevent.sigev_notify = notify;
    cb.aio_sigevent.sigev_signo = SIGUSR1;
    cb.aio_sigevent.sigev_value.sival_int = 42;
    if (notify == SIGEV_THREAD)
        cb.aio_sigevent.sigev_notify_function = by_thread;
    must(aio_read(&cb) == 0, "aio_read");
    wait_for(&cb);
    show(&cb, "aio_read");
}

/* Two reads in one list. */
static void listed(int fd, int mode)
{
    static char buf[2][PART];
    struct aiocb cb[2];
    struct aiocb *list[] = {&cb[0], NULL, &cb[1]};
    struct sigevent all = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};

    all.sigev_value.sival_int = 42;
    for (int i = 0; i < 2; i++) {
        cb[i] = (struct aiocb){
            .aio_fildes = fd, .aio_buf = buf[i], .aio_nbytes = PART, .aio_lio_opcode = LIO_READ};
        cb[i].aio_sigevent.sigev_notify = SIGEV_NONE;
    }
    SHOW(lio_listio(mode, list, 3, &all));
    if (mode == LIO_NOWAIT)
        while (sem_wait(&told))
            ;
    for (int i = 0; i < 2; i++) {
        wait_for(&cb[i]);
        show(&cb[i], "lio_listio");
    }
}

/* A connection that has brought so many bytes, and was reset then. */
static int reset_after(size_t n)
{
    static char bytes[PART * PARTS];
    struct linger at_once = {1, 0};
    int p[2];

    tcp_pair(p);
    memset(bytes, 'a', sizeof(bytes));
    must(write(p[0], bytes, n) == (ssize_t)n, "write");
    must(setsockopt(p[0], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0, "SO_LINGER");
    close(p[0]);
    must(poll(&(struct pollfd){.fd = p[1]}, 1, -1) == 1, "poll");
    return p[1];
}

int main(void)
{
    static const int ways[] = {SIGEV_NONE, SIGEV_SIGNAL, SIGEV_THREAD};
    struct sigaction sa = {.sa_sigaction = by_signal, .sa_flags = SA_SIGINFO | SA_RESTART};

    alarm(200);
    sem_init(&told, 0, 0);
    sigaction(SIGUSR1, &sa, NULL);
    for (int i = 0; i < 3; i++) {
        int fd = reset_after(PART * PARTS - 100);

        for (int j = 0; j < PARTS + 2; j++)
            one(fd, ways[i]);
        close(fd);
    }
    for (int i = 0; i < 2; i++) {
        int fd = reset_after(PART + 100);

        listed(fd, i ? LIO_WAIT : LIO_NOWAIT);
        listed(fd, i ? LIO_WAIT : LIO_NOWAIT);
        close(fd);
    }
    return 0;
}
