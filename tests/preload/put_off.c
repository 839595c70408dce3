/*
 * put_off.c - signals that a thread mostly causes itself, sent by another process to one that
 * is inside of our calls: each handler runs, with the mask that the program has asked for, and
 * the thread goes on.
 */
#include "rounds.h"

#include <sys/wait.h>

enum { MANY = 20000 };

static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
enum { SIGNALS = sizeof(signals) / sizeof(signals[0]) };

static volatile sig_atomic_t ran[SIGNALS], wrong;

static void handler(int sig)
{
    sigset_t now;

    pthread_sigmask(SIG_SETMASK, NULL, &now);
    for (int i = 0; i < SIGNALS; i++)
        if (signals[i] == sig)
            ran[i] = 1;
    if (!sigismember(&now, sig) || sigismember(&now, SIGTERM))
        wrong = 1;
}

/* One number at a time, or all. */
static void sender(pid_t to, bool many)
{
    for (int i = 0; i < MANY; i++)
        for (int j = 0; j < SIGNALS; j++)
            if (many || i * SIGNALS / MANY == j)
                kill(to, signals[j]);
    _exit(0);
}

static void hit_by(bool many, int blocked)
{
    int p[2], status;
    sigset_t mask;
    char byte;
    pid_t pid;

    sigemptyset(&mask);
    if (blocked)
        sigaddset(&mask, blocked);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    wrong = 0;
    for (int i = 0; i < SIGNALS; i++)
        ran[i] = 0;
    tcp_pair(p);
    on_rail(p);
    pid = fork();
    if (pid == 0)
        sender(getppid(), many);
    /* Nothing comes: in a call, and nowhere else. */
    while (waitpid(pid, &status, WNOHANG) == 0)
        for (int i = 0; i < 200; i++)
            must(recv(p[0], &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "recv");
    printf(many ? "many:" : "one by one:");
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    for (int i = 0; i < SIGNALS; i++) {
        printf(" %d", ran[i]);
        if (sigismember(&mask, signals[i]) != (signals[i] == blocked))
            wrong = 1;
    }
    printf(", a wrong mask: %d\n", wrong);
    pass(p, 0);
    close(p[0]);
    close(p[1]);
}

int main(void)
{
    start_deadline();
    for (int i = 0; i < SIGNALS; i++)
        must(signal(signals[i], handler) != SIG_ERR, "signal");
    hit_by(false, 0);
    hit_by(true, 0);
    hit_by(true, SIGTRAP);
    return 0;
}
