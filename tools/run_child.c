/*
 * run_child.c - see run_child.h. Signals that a process sends to us are the program's. Those of the terminal
 * reach it by themselves, because it is in our process group.
 */
#include "tools/run_child.h"

#include "tools/report.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const int forwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM};

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Waits for the program's end, its signals meanwhile. */
static int attend(pid_t pid, const sigset_t *watched, const char *folder, struct report *r,
                  struct rusage *usage)
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
        else if (info.si_signo != SIGCHLD && info.si_code != SI_KERNEL)
            kill(pid, info.si_signo);
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
    sigset_t watched, before;
    void (*chld)(int);
    int64_t begun;
    int status, err;
    pid_t pid;

    err = report_begin(folder);
    if (err < 0) {
        fprintf(stderr, "railsock run: --report: %s: %s\n", folder, strerror(-err));
        return 125;
    }
    setenv("RAILSOCK_KEEP", folder, 1);
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    for (size_t i = 0; i < sizeof(forwarded) / sizeof(forwarded[0]); i++)
        sigaddset(&watched, forwarded[i]);
    sigprocmask(SIG_BLOCK, &watched, &before);
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
        report_end(folder);
        return 125;
    }
    status = attend(pid, &watched, folder, &r, &usage);
    begun = now_ns() - begun;
    report_collect(folder, true, &r);
    report_end(folder);
    if (json)
        write_json(json, &r, begun, &usage);
    else if (when == REPORT_ALWAYS || report_off(&r))
        report_print(stderr, argv[0], &r);
    return end_alike(status);
}
