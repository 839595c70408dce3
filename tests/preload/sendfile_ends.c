/*
 * sendfile_ends.c - a sendfile that waits: a cancellation of its thread does not end it, but one
 * that a handler has taken out of it; when another thread ends the direction, it has sent what it
 * has, and SIGPIPE comes, as the kernel sends it.
 */
#include "../asleep.h"
#include "pair.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/sendfile.h>

enum { SIZE = 16 << 20 };

static int p[2], file;
static _Atomic int tid, pipes, code, its_pid, its_uid;
static _Atomic ssize_t sent;

static void broken(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)context;
    pipes++;
    code = info->si_code;
    its_pid = info->si_pid == getpid();
    its_uid = info->si_uid == getuid();
}

static void show_pipes(const char *what)
{
    printf("%s: %d times, %s, %s pid, %s uid\n", what, pipes,
           code == SI_USER ? "SI_USER" : "another code", its_pid ? "its" : "no",
           its_uid ? "its" : "no");
    pipes = code = its_pid = its_uid = 0;
}

static void *sends(void *unused)
{
    off_t at = 0;

    (void)unused;
    tid = gettid();
    sent = sendfile(p[0], file, &at, SIZE);
    if (sent != at)
        puts("the offset is not what was sent");
    pthread_testcancel();
    return NULL;
}

static sigjmp_buf out;

static void jump(int sig)
{
    (void)sig;
    siglongjmp(out, 1);
}

static void *is_taken_out(void *unused)
{
    off_t at = 0;

    (void)unused;
    if (sigsetjmp(out, 1) == 0) {
        tid = gettid();
        sendfile(p[0], file, &at, SIZE);
    }
    tid = -1;
    recv(p[0], &(char){0}, 1, 0);
    return NULL;
}

static ssize_t reads_all(void)
{
    static char room[1 << 16];
    ssize_t n, all = 0;

    while ((n = read(p[1], room, sizeof(room))) > 0)
        all += n;
    return all;
}

/* A thread that sleeps in a sendfile on a new connection. */
static pthread_t sleeps_in(void *(*run)(void *), int l, const struct sockaddr_in *at)
{
    pthread_t t;

    pair_at(l, at, p);
    on_rail(p);
    tid = 0;
    must(pthread_create(&t, NULL, run, NULL) == 0, "pthread_create");
    until_it_sleeps(&tid);
    return t;
}

int main(void)
{
    struct sigaction a = {.sa_sigaction = broken, .sa_flags = SA_SIGINFO};
    struct sockaddr_in at;
    int l = listener(&at);
    char name[] = "/tmp/sendfile_ends.XXXXXX";
    pthread_t t;
    void *result;

    alarm(120);
    sigaction(SIGPIPE, &a, NULL);
    file = mkstemp(name);
    must(file >= 0 && unlink(name) == 0 && ftruncate(file, SIZE) == 0, "a file");

    t = sleeps_in(sends, l, &at);
    pthread_cancel(t);
    for (ssize_t got = 0, n; got < SIZE; got += n) {
        static char room[1 << 16];

        n = read(p[1], room, sizeof(room));
        must(n > 0, "read");
    }
    pthread_join(t, &result);
    printf("cancelled: %s, %zd bytes\n", result == PTHREAD_CANCELED ? "yes" : "no", sent);
    close(p[0]);
    close(p[1]);

    t = sleeps_in(is_taken_out, l, &at);
    signal(SIGUSR1, jump);
    pthread_kill(t, SIGUSR1);
    while (tid != -1)
        sched_yield();
    pthread_cancel(t);
    pthread_join(t, &result);
    printf("taken out: %s\n", result == PTHREAD_CANCELED ? "cancelled" : "no");
    close(p[0]);
    close(p[1]);

    t = sleeps_in(sends, l, &at);
    shutdown(p[0], SHUT_WR);
    pthread_join(t, NULL);
    printf("ended: %s\n",
           sent > 0 && sent < SIZE && reads_all() == sent ? "what was sent has come" : "no");
    show_pipes("sendfile");
    SHOW(send(p[0], "x", 1, 0));
    show_pipes("send");
    return 0;
}
