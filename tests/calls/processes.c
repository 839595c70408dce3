/* processes.c - rows: forks, new programs, ends of processes. */
#define _GNU_SOURCE
#include "rows.h"

#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <wordexp.h>

extern char **environ;
pid_t __fork(void);
pid_t __vfork(void);
int __clone(int (*fn)(void *), void *stack, int flags, void *arg, ...);
FILE *_IO_popen(const char *command, const char *mode);

static void ended(pid_t pid)
{
    int status = -1;

    must(pid > 0 && waitpid(pid, &status, 0) == pid, "child");
    printf("  child: %d %d\n", WIFEXITED(status), WEXITSTATUS(status));
}

/* ---- forks: a child that does not use the streams leaves them alone ---- */

#define FORKS(name)                      \
    ROW(name, )                          \
    {                                    \
        pid_t pid = SYM(name)();         \
                                         \
        if (pid == 0)                    \
            syscall(SYS_exit_group, 11); \
        ended(pid);                      \
    }

FORKS(fork)
FORKS(__fork)
FORKS(_Fork)
FORKS(vfork)
FORKS(__vfork)

static int twelve(void *unused)
{
    (void)unused;
    return 12;
}

static char *stack(void)
{
    char *at = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    must(at != MAP_FAILED, "stack");
    return at + (1 << 16);
}

ROW(clone, )
{
    ended(SYM(clone)(twelve, stack(), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL));
}
ROW(__clone, )
{
    ended(SYM(__clone)(twelve, stack(), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL));
}
ROW(clone, copy)
{
    ended(SYM(clone)(twelve, stack(), SIGCHLD, NULL));
}

ROW(forkpty, )
{
    int master, pid = SYM(forkpty)(&master, NULL, NULL, NULL);

    if (pid == 0)
        syscall(SYS_exit_group, 13);
    ended(pid);
    close(master);
}

static void as_daemon(void)
{
    SHOW(SYM(daemon)(1, 1));
    SHOW(write(c, "as a daemon", 11));
    rows_hear(s, 11);
}

ROW(daemon, )
{
    rows_apart(as_daemon);
}

/* ---- shells ---- */

ROW(system, )
{
    SHOW(SYM(system)("exit 4") >> 8);
}

static void piped(FILE *file)
{
    char line[32] = "";

    must(file != NULL && fgets(line, sizeof(line), file) != NULL, "popen");
    printf("  %s", line);
    SHOW(pclose(file));
}

ROW(popen, )
{
    piped(SYM(popen)("echo popen", "r"));
}
ROW(_IO_popen, )
{
    piped(SYM(_IO_popen)("echo _IO_popen", "r"));
}

ROW(wordexp, )
{
    wordexp_t w;

    SHOW(SYM(wordexp)("one $(echo two)", &w, 0));
    printf("  %s %s\n", w.we_wordv[0], w.we_wordv[1]);
    wordfree(&w);
}

/* ---- new programs, which write through c and hear at s what it was ---- */

#define ME "/proc/self/exe"
#define ARGUMENTS                                \
    {                                            \
        "rows", ROWS_AFTER, rows_c, rows_s, NULL \
    }

static void numbers(void)
{
    snprintf(rows_c, sizeof(rows_c), "%d", c);
    snprintf(rows_s, sizeof(rows_s), "%d", s);
}

ROW(posix_spawn, )
{
    char *argv[] = ARGUMENTS;
    pid_t pid = -1;

    numbers();
    must(SYM(posix_spawn)(&pid, ME, NULL, NULL, argv, environ) == 0, "posix_spawn");
    ended(pid);
}

ROW(posix_spawnp, )
{
    char *argv[] = ARGUMENTS;
    pid_t pid = -1;

    numbers();
    must(SYM(posix_spawnp)(&pid, ME, NULL, NULL, argv, environ) == 0, "posix_spawnp");
    ended(pid);
}

/* Where spawn.h does not have them yet. */
int pidfd_spawn(int *pidfd, const char *path, const posix_spawn_file_actions_t *acts,
                const posix_spawnattr_t *attr, char *const argv[], char *const envp[]);
int pidfd_spawnp(int *pidfd, const char *file, const posix_spawn_file_actions_t *acts,
                 const posix_spawnattr_t *attr, char *const argv[], char *const envp[]);

static void ended_by_pidfd(int pidfd)
{
    siginfo_t how = {0};

    must(waitid((idtype_t)3 /* P_PIDFD */, (id_t)pidfd, &how, WEXITED) == 0, "waitid");
    printf("child: exited %d status %d\n", how.si_code == CLD_EXITED, how.si_status);
    close(pidfd);
}

ROW(pidfd_spawn, )
{
    char *argv[] = ARGUMENTS;
    int pidfd = -1;

    numbers();
    must(SYM(pidfd_spawn)(&pidfd, ME, NULL, NULL, argv, environ) == 0, "pidfd_spawn");
    ended_by_pidfd(pidfd);
}

ROW(pidfd_spawnp, )
{
    char *argv[] = ARGUMENTS;
    int pidfd = -1;

    numbers();
    must(SYM(pidfd_spawnp)(&pidfd, ME, NULL, NULL, argv, environ) == 0, "pidfd_spawnp");
    ended_by_pidfd(pidfd);
}

/* c and s are not for children, but for the one that gets them as 70 and 71. */
ROW(posix_spawn_file_actions_adddup2, )
{
    char *argv[] = ARGUMENTS;
    posix_spawn_file_actions_t acts;
    pid_t pid = -1;

    fcntl(c, F_SETFD, FD_CLOEXEC);
    fcntl(s, F_SETFD, FD_CLOEXEC);
    strcpy(rows_c, "70");
    strcpy(rows_s, "71");
    posix_spawn_file_actions_init(&acts);
    SHOW(SYM(posix_spawn_file_actions_adddup2)(&acts, c, 70));
    SHOW(SYM(posix_spawn_file_actions_adddup2)(&acts, s, 71));
    must(posix_spawn(&pid, ME, &acts, NULL, argv, environ) == 0, "posix_spawn");
    ended(pid);
    posix_spawn_file_actions_destroy(&acts);
    rows_over();
}

#define EXECS(name, ...)          \
    static void do_##name(void)   \
    {                             \
        char *argv[] = ARGUMENTS; \
                                  \
        (void)argv;               \
        fflush(stdout);           \
        SYM(name)(__VA_ARGS__);   \
    }                             \
    ROW(name, )                   \
    {                             \
        rows_apart(do_##name);    \
    }

EXECS(execve, ME, argv, environ)
EXECS(execv, ME, argv)
EXECS(execvp, ME, argv)
EXECS(execvpe, ME, argv, environ)
EXECS(execl, ME, "rows", ROWS_AFTER, rows_c, rows_s, (char *)NULL)
EXECS(execlp, ME, "rows", ROWS_AFTER, rows_c, rows_s, (char *)NULL)
EXECS(execle, ME, "rows", ROWS_AFTER, rows_c, rows_s, (char *)NULL, environ)
EXECS(fexecve, open(ME, O_RDONLY | O_CLOEXEC), argv, environ)
EXECS(execveat, AT_FDCWD, ME, argv, environ, 0)

/* ---- ends, after which the peer has all that was written ---- */

static void by__exit(void)
{
    SYM(_exit)(21);
}
static void by__Exit(void)
{
    SYM(_Exit)(22);
}
static void by_quick_exit(void)
{
    SYM(quick_exit)(23);
}

ROW(_exit, )
{
    rows_last_words(by__exit);
}
ROW(_Exit, )
{
    rows_last_words(by__Exit);
}
ROW(quick_exit, )
{
    rows_last_words(by_quick_exit);
}

/* The main thread ends first; what another one does after it is done. */
static void *later(void *main_thread)
{
    must(pthread_join(*(pthread_t *)main_thread, NULL) == 0, "join");
    must(write(c, ", really", 8) == 8, "write");
    return NULL;
}

static void begin_later(void)
{
    static pthread_t self;
    pthread_t thread;

    self = pthread_self();
    must(pthread_create(&thread, NULL, later, &self) == 0, "thread");
    pthread_detach(thread);
}

static void by_pthread_exit(void)
{
    begin_later();
    SYM(pthread_exit)(NULL);
}

static void by_thrd_exit(void)
{
    begin_later();
    SYM(thrd_exit)(24);
}

ROW(pthread_exit, )
{
    rows_last_words(by_pthread_exit);
}
ROW(thrd_exit, )
{
    rows_last_words(by_thrd_exit);
}

ROW(pthread_setcanceltype, )
{
    int old;

    SHOW(SYM(pthread_setcanceltype)(PTHREAD_CANCEL_ASYNCHRONOUS, &old));
    SHOW(old == PTHREAD_CANCEL_DEFERRED);
    SHOW(SYM(pthread_setcanceltype)(PTHREAD_CANCEL_DEFERRED, &old));
    SHOW(old == PTHREAD_CANCEL_ASYNCHRONOUS);
    SHOW(SYM(pthread_setcanceltype)(42, &old));
}
