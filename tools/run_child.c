/*
 * run_child.c - see run_child.h. Signals that a process sends to us are the program's. Those of the
 * terminal's keys reach it by themselves, because it is in our process group, and so do those that
 * a process sends to the whole group, or to all of a control group: the program must not get them
 * twice. What run_witness.c has seen as well was not meant for us alone. A program that has made a
 * group of its own, as timeout does, gets everything from us.
 */
#include "tools/run_child.h"

#include "tools/commands.h"
#include "tools/elf_look.h"
#include "tools/report.h"
#include "tools/run_witness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* As run.c has it. */
enum { FAILED = 125, NOT_EXECUTABLE = 126, NOT_FOUND = 127 };

/* All that a program can be sent, and that is not our own fault. */
static void forwarded(sigset_t *set)
{
    static const int ours[] = {SIGKILL, SIGSTOP, SIGCHLD, SIGSEGV, SIGBUS,
                               SIGFPE,  SIGILL,  SIGTRAP, SIGSYS,  SIGPIPE};

    sigfillset(set);
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        sigdelset(set, ours[i]);
}

/* Is it from the terminal, which sends to its whole group? Then it comes from the kernel. But so
 * does the signal of a timer that was set before this command was executed, which is for the
 * program; and SIGHUP, with a SIGCONT, which the kernel sends to the session's leader alone. */
static bool of_terminal(const siginfo_t *info)
{
    switch (info->si_signo) {
    case SIGALRM:
    case SIGVTALRM:
    case SIGPROF:
    case SIGHUP:
    case SIGCONT:
        return false;
    default:
        return info->si_code == SI_KERNEL;
    }
}

/* As the shell has it that has started us. */
static void stop_with_it(const siginfo_t *info, bool terminal)
{
    if (info->si_signo == SIGTSTP ||
        (terminal && (info->si_signo == SIGTTIN || info->si_signo == SIGTTOU)))
        raise(SIGSTOP);
}

static void pass_on(pid_t pid, const siginfo_t *info, struct witness *w, const sigset_t *watched)
{
    bool terminal = of_terminal(info), alone = !witnessed(w, info->si_signo, watched);
    pid_t group = getpgid(pid);
    bool own = group > 0 && group != getpgrp();

    /* A program that has made a group of its own since gets nothing that is sent to ours. What the
     * terminal's keys send, and the SIGCONT after such a stop, then goes on to all of its group. */
    if (own || (!terminal && alone)) {
        if (own && (terminal || info->si_signo == SIGCONT))
            kill(-group, info->si_signo);
        else if (info->si_code == SI_QUEUE)
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
        if (sigtimedwait(watched, &info, &second) < 0) {
            report_look(r);
            report_collect(folder, false, r);
            witness_refresh(w, watched);
        } else if (info.si_signo != SIGCHLD) {
            pass_on(pid, &info, w, watched);
        }
    }
}

static bool is_stdout(const char *file)
{
    return strcmp(file, "-") == 0;
}

static void not_written(const char *file)
{
    fprintf(stderr, "railsock run: --report=json:%s: %s\n", file, strerror(errno));
}

static bool is_fifo(const char *file)
{
    struct stat st;

    return stat(file, &st) == 0 && S_ISFIFO(st.st_mode);
}

static int open_stdout(void)
{
    return command_has_output() ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0) : -1;
}

/* Before the program runs, which may take hours. What is in the file stays until then, and who
 * reads a FIFO need not come before: of that there is only a look. -1: said why not. */
static int open_json(const char *file)
{
    int fd;

    if (is_stdout(file))
        fd = open_stdout();
    else if (is_fifo(file))
        fd = access(file, W_OK) < 0 ? -1 : open(file, O_PATH | O_CLOEXEC);
    else
        fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
    if (fd < 0)
        not_written(file);
    return fd;
}

/* The program may have removed it, or put another in its place. Who reads a FIFO is waited for. */
static int find_again(int fd, const char *file)
{
    struct stat st;

    if (is_stdout(file) || fstat(fd, &st) < 0 || (st.st_nlink > 0 && !S_ISFIFO(st.st_mode)))
        return fd;
    close(fd);
    return open(file, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
}

/* Closes fd. False: said why not. */
static bool write_json(int fd, const char *file, const struct report *r, int64_t wall_ns,
                       const struct rusage *usage)
{
    FILE *f;

    fd = find_again(fd, file);
    f = fd < 0 ? NULL : fdopen(fd, "w");
    if (f) {
        if (!is_stdout(file))
            (void)!ftruncate(fd, 0); /* a pipe has no length */
        report_json(f, r, wall_ns, usage);
    }
    if (f && fclose(f) == 0)
        return true;
    not_written(file);
    return false;
}

/* As the program ended, so that the caller sees no difference. */
static int end_alike(int status)
{
    const struct rlimit none = {0, 0};
    sigset_t set;

    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    /* The program has left its own core. Where cores go to a program the limit means nothing. */
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_DUMPABLE, 0);
    signal(WTERMSIG(status), SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, WTERMSIG(status));
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    raise(WTERMSIG(status));
    return 128 + WTERMSIG(status);
}

/* Of a script whose file is there: what its first line names, perhaps by way of others, is not. */
static bool lacks_interpreter(const char *path, char runs[PATH_MAX])
{
    return access(path, F_OK) == 0 && elf_check(path, runs) == ELF_UNKNOWN &&
           strcmp(path, runs) != 0 && access(runs, F_OK) < 0;
}

int run_failed(const char *command, const char *path)
{
    int err = errno;
    bool text = err == ENOEXEC && path && elf_is_text(path);
    char runs[PATH_MAX];

    if (err == ENOENT && path && lacks_interpreter(path, runs)) {
        fprintf(stderr, "railsock run: %s: its interpreter %s: %s\n", command, runs, strerror(err));
        return NOT_FOUND;
    }
    fprintf(
        stderr, "railsock run: %s: %s%s%s\n", command, strerror(err),
        text
            ? ": it has no #! line that names its interpreter; if it is a shell's: railsock run sh "
            : "",
        text ? path : "");
    return err == ENOENT ? NOT_FOUND : NOT_EXECUTABLE;
}

/* The program, with the signals that it had and not ours. */
static pid_t start(const char *path, char **argv, const sigset_t *before)
{
    void (*chld)(int) = signal(SIGCHLD, SIG_DFL); /* ignored, there would be nothing to wait for */
    pid_t pid = fork();

    if (pid < 0)
        perror("railsock run");
    if (pid != 0)
        return pid;
    signal(SIGCHLD, chld);
    sigprocmask(SIG_SETMASK, before, NULL);
    execv(path, argv);
    _exit(run_failed(argv[0], path));
}

/* From its beginning to its end. *wall_ns: how long that took. False: said why it
 * could not begin. */
static bool run(const char *path, char **argv, const char *folder, struct report *r, int *status,
                int64_t *wall_ns, struct rusage *usage)
{
    struct witness w = {0};
    sigset_t watched, before;
    int64_t begun;
    pid_t pid;

    forwarded(&watched);
    sigprocmask(SIG_BLOCK, &watched, &before);
    witness_begin(&w, &watched);
    sigaddset(&watched, SIGCHLD);
    sigprocmask(SIG_BLOCK, &watched, NULL);
    begun = now_ns();
    pid = start(path, argv, &before);
    if (pid > 0)
        *status = attend(pid, &watched, &w, folder, r, usage);
    witness_end(&w);
    *wall_ns = now_ns() - begun;
    return pid > 0;
}

/* Where the processes leave what they show; folder is empty if nowhere. False: said why, and that
 * there is no report without. */
static bool begin(char folder[REPORT_FOLDER_SIZE], bool json, struct report *r)
{
    int err = report_begin(folder);

    report_look(r);
    if (err < 0) {
        fprintf(stderr, "railsock run: warning: %s: %s: %s\n", folder, strerror(-err),
                json ? "the report will lack all processes" : "there will be no report");
        if (!r->lacking)
            r->lacking = "there is no folder for them in /dev/shm";
        folder[0] = '\0';
        return json;
    }
    if (r->lacking)
        fprintf(stderr, "railsock run: warning: %s: the report may lack processes\n", r->lacking);
    return true;
}

static void end(const char *folder)
{
    if (*folder)
        report_end(folder);
}

int run_child(const char *path, char **argv, enum report_when when, const char *json)
{
    char folder[REPORT_FOLDER_SIZE];
    struct report r = {0};
    struct rusage usage = {0};
    int64_t wall_ns;
    int status, fd = -1;
    bool written = true;

    if (json && (fd = open_json(json)) < 0)
        return FAILED;
    if (!begin(folder, json, &r))
        return -1;
    if (*folder)
        setenv("RAILSOCK_KEEP", folder, 1);
    if (!run(path, argv, folder, &r, &status, &wall_ns, &usage)) {
        end(folder);
        return FAILED;
    }
    report_look(&r);
    report_collect(folder, true, &r);
    end(folder);
    if (json)
        written = write_json(fd, json, &r, wall_ns, &usage);
    else if (when == REPORT_ALWAYS || report_off(&r))
        report_print(stderr, argv[0], &r);
    status = end_alike(status);
    return status || written ? status : FAILED;
}
