/*
 * run_child.c - see run_child.h. Signals that a process sends to us are the program's. Those of the terminal
 * reach it by themselves, because it is in our process group, and so do those that a process sends to the whole group, or to
 * all of a control group: the program must not get them twice. So there is a third process, the witness, which does
 * nothing but tell us which signals it gets: what it has got as well was not meant for us alone.
 */
#include "tools/run_child.h"

#include "tools/report.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* How long the kernel may take from one process of a group to the next. */
enum { WITNESS_MS = 20 };

/* All that a program can be sent, and that is not our own fault. */
static void forwarded(sigset_t *set)
{
    static const int ours[] = {SIGKILL, SIGSTOP, SIGCHLD, SIGSEGV, SIGBUS,
                               SIGFPE,  SIGILL,  SIGTRAP, SIGSYS,  SIGPIPE};

    sigfillset(set);
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        sigdelset(set, ours[i]);
}

struct witness {
    pid_t pid; /* 0: there is none, and nobody but us has got anything */
    int fd;    /* a byte for each signal */
    unsigned got[_NSIG];
};

static void witness_begin(struct witness *w, const sigset_t *signals)
{
    pid_t parent = getpid();
    int p[2];

    if (pipe2(p, O_CLOEXEC) != 0)
        return;
    w->pid = fork();
    if (w->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "railsock-report");
        report_let_go();
        sigprocmask(SIG_SETMASK, signals, NULL);
        close(p[0]);
        while (getppid() == parent) {
            unsigned char number = (unsigned char)sigwaitinfo(signals, NULL);

            if (write(p[1], &number, 1) < 0)
                break;
        }
        _exit(0);
    }
    close(p[1]);
    w->fd = p[0];
    if (w->pid < 0) {
        close(p[0]);
        w->pid = 0;
    }
}

static void witness_end(struct witness *w)
{
    if (!w->pid)
        return;
    kill(w->pid, SIGKILL);
    waitpid(w->pid, NULL, 0);
    close(w->fd);
}

/* Has it got that signal, too? */
static bool witnessed(struct witness *w, int signal)
{
    struct pollfd p = {.fd = w->fd, .events = POLLIN};
    unsigned char number;

    while (w->pid && !w->got[signal] && poll(&p, 1, WITNESS_MS) > 0 && read(w->fd, &number, 1) == 1)
        if (number < _NSIG)
            w->got[number]++;
    if (!w->pid || !w->got[signal])
        return false;
    w->got[signal]--;
    return true;
}

/* The kernel's, but for what a timer of before has for the program, come from the terminal and go to its group. */
static bool of_terminal(const siginfo_t *info)
{
    return info->si_code == SI_KERNEL && info->si_signo != SIGALRM && info->si_signo != SIGVTALRM &&
           info->si_signo != SIGPROF;
}

/* As the shell has it that has started us. */
static void stop_with_it(const siginfo_t *info, bool terminal)
{
    if (info->si_signo == SIGTSTP ||
        (terminal && (info->si_signo == SIGTTIN || info->si_signo == SIGTTOU)))
        raise(SIGSTOP);
}

static void pass_on(pid_t pid, const siginfo_t *info, struct witness *w)
{
    bool terminal = of_terminal(info);

    /* One that has a group of its own since gets nothing by ours. */
    if (!terminal && (!witnessed(w, info->si_signo) || getpgid(pid) != getpgrp())) {
        if (info->si_code == SI_QUEUE)
            sigqueue(pid, info->si_signo, info->si_value);
        else
            kill(pid, info->si_signo);
    }
    stop_with_it(info, terminal);
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Waits for the program's end, its signals meanwhile. */
static int attend(pid_t pid, const sigset_t *watched, struct witness *w, const char *folder,
                  struct report *r, struct rusage *usage)
{
    /* Once a second is often enough that the files of ended children do not heap up. */
    const struct timespec second = {.tv_sec = 1};
    siginfo_t info;
    int status = 0;

    for (;;) {
        pid_t ended = wait4(pid, &status, WNOHANG, usage);

        if (ended == pid)
            return status;
        if (ended < 0 && errno != EINTR)
            return 0;
        /* SIGCHLD is blocked: one that came since wait4 ends this at once. */
        if (sigtimedwait(watched, &info, &second) < 0)
            report_collect(folder, false, r);
        else if (info.si_signo != SIGCHLD)
            pass_on(pid, &info, w);
    }
}

static void write_json(const char *file, const struct report *r, int64_t wall_ns,
                       const struct rusage *usage)
{
    FILE *f = fopen(file, "we");

    if (f)
        report_json(f, r, wall_ns, usage);
    if (!f || fclose(f) != 0)
        fprintf(stderr, "railsock run: %s: %s\n", file, strerror(errno));
}

/* As the program ended, so that the caller sees no difference. */
static int end_alike(int status)
{
    const struct rlimit none = {0, 0};
    sigset_t set;

    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    setrlimit(RLIMIT_CORE, &none); /* the program has left its own */
    signal(WTERMSIG(status), SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, WTERMSIG(status));
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    raise(WTERMSIG(status));
    return 128 + WTERMSIG(status);
}

int run_child(const char *path, char **argv, enum report_when when, const char *json)
{
    char folder[REPORT_FOLDER_SIZE];
    struct report r = {0};
    struct rusage usage = {0};
    struct witness w = {0};
    sigset_t watched, before;
    void (*chld)(int);
    int64_t begun;
    int status, err;
    pid_t pid;

    err = report_begin(folder);
    if (err < 0) {
        fprintf(stderr, "railsock run: warning: %s: %s: there will be no report\n", folder,
                strerror(-err));
        return -1;
    }
    setenv("RAILSOCK_KEEP", folder, 1);
    forwarded(&watched);
    sigprocmask(SIG_BLOCK, &watched, &before);
    witness_begin(&w, &watched);
    sigaddset(&watched, SIGCHLD);
    sigprocmask(SIG_BLOCK, &watched, NULL);
    chld = signal(SIGCHLD, SIG_DFL); /* ignored, there would be nothing to wait for */
    begun = now_ns();
    pid = fork();
    if (pid == 0) {
        signal(SIGCHLD, chld);
        sigprocmask(SIG_SETMASK, &before, NULL);
        execv(path, argv);
        err = errno;
        fprintf(stderr, "railsock run: %s: %s\n", argv[0], strerror(err));
        _exit(err == ENOENT ? 127 : 126);
    }
    if (pid < 0) {
        perror("railsock run");
        witness_end(&w);
        report_end(folder);
        return 125;
    }
    status = attend(pid, &watched, &w, folder, &r, &usage);
    witness_end(&w);
    begun = now_ns() - begun;
    report_collect(folder, true, &r);
    report_end(folder);
    if (json)
        write_json(json, &r, begun, &usage);
    else if (when == REPORT_ALWAYS || report_off(&r))
        report_print(stderr, argv[0], &r);
    return end_alike(status);
}
