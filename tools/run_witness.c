/*
 * run_witness.c - see run_witness.h. The witness is a process in our group with all signals
 * blocked: what is pending there was sent to more than us. It cannot be a fork of ours: who ends
 * all processes that are called railsock, or all whose file is the command's, would send to both of
 * us and not to the program. So it is a shell that waits for the end of a pipe.
 */
#include "tools/run_witness.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* How long the kernel may take from one process of a group to the next, or somebody who goes
 * through a list. */
enum { WITNESS_MS = 20 };

void witness_begin(struct witness *w, const sigset_t *signals)
{
    static char *const argv[] = {"sh", "-c", "read -r report_witness", NULL};
    static char *const environment[] = {NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    int p[2];

    *w = (struct witness){0};
    if (pipe2(p, O_CLOEXEC) != 0)
        return;
    w->fd = p[1];
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, p[0], STDIN_FILENO);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, signals);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    /* It returns when the shell is executed, so nobody finds a second process of our file. */
    if (posix_spawn(&w->pid, "/bin/sh", &files, &attributes, argv, environment) != 0) {
        w->pid = 0;
        close(w->fd);
    }
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    close(p[0]);
}

void witness_end(struct witness *w)
{
    if (!w->pid)
        return;
    kill(w->pid, SIGKILL);
    waitpid(w->pid, NULL, 0);
    close(w->fd);
    w->pid = 0;
}

/* What it has got: a bit for each signal. */
static unsigned long long pending(const struct witness *w)
{
    char path[32], line[128];
    unsigned long long set = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)w->pid);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f) && sscanf(line, "ShdPnd: %llx", &set) != 1)
        ;
    if (f)
        fclose(f);
    return set;
}

/* A signal that is pending cannot be taken from another process, so after these there is a new one.
 * What comes meanwhile comes to the old one, or to both. */
static void renew(struct witness *w, const sigset_t *signals, unsigned long long taken)
{
    struct witness old = *w;
    unsigned long long set;

    witness_begin(w, signals);
    set = pending(&old);
    w->owed = (old.owed | set) & ~taken & ~pending(w);
    witness_end(&old);
}

bool witnessed(struct witness *w, int signal, const sigset_t *signals)
{
    const struct timespec step = {.tv_nsec = 1000000};
    unsigned long long mask = 1ull << (signal - 1);

    for (int i = 0; w->pid && i <= WITNESS_MS; i++) {
        if (w->owed & mask) {
            w->owed &= ~mask;
            return true;
        }
        if (pending(w) & mask) {
            renew(w, signals, mask);
            return true;
        }
        nanosleep(&step, NULL);
    }
    return false;
}

void witness_refresh(struct witness *w, const sigset_t *signals)
{
    siginfo_t ended = {0};
    unsigned long long set;

    if (!w->pid)
        return;
    set = pending(w) | w->owed;
    waitid(P_PID, (id_t)w->pid, &ended, WEXITED | WNOHANG | WNOWAIT);
    if (ended.si_pid || set)
        renew(w, signals, set);
}
