/*
 * processes.c - fork, vfork, spawn and exec around connections: what the parent and the
 * child can do with inherited ones, with listeners, and with their own.
 */
#include "say.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;

static pid_t by_clone(void)
{
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

/* The child has its own connections, and leaves its parent's alone. What the parent then closes
 * ends, although it had two holders and neither end writes any more. */
static void left_alone(pid_t (*make)(void), const char *how)
{
    int p[2];
    pid_t pid;

    printf("-- %s, and the child leaves it alone\n", how);
    fflush(stdout);
    tcp_pair(p);
    pid = make();
    if (pid == 0) {
        int own[2];

        close(p[0]);
        close(p[1]);
        tcp_pair(own);
        deliver(own[0], own[1], "a child's own");
        hear(own[1], "own");
        _exit(8);
    }
    ended(pid);
    deliver(p[0], p[1], "as if nothing had been");
    hear(p[1], "end");
    close(p[0]);
    hear(p[1], "end of stream");
    close(p[1]);
}

/* A fork inside of a fork, by a hook. */
static bool hook_forks;

static void before_fork(void)
{
    pid_t pid;

    if (!hook_forks)
        return;
    hook_forks = false;
    pid = fork();
    if (pid == 0)
        _exit(0);
    waitpid(pid, NULL, 0);
}

static pid_t forked_twice(void)
{
    pthread_atfork(before_fork, NULL, NULL);
    hook_forks = true;
    return fork();
}

/* A server that accepts in its children. */
static void workers(void)
{
    struct sockaddr_in at;
    int l = listener(&at), i, c, a;
    pid_t pid[2];

    puts("-- workers");
    for (i = 0; i < 2; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            char buf[32];
            ssize_t n;

            a = accept(l, NULL, NULL);
            while ((n = read(a, buf, sizeof(buf))) > 0)
                must(write(a, buf, (size_t)n) == n, "echo");
            close(a);
            exit(3);
        }
    }
    for (i = 0; i < 2; i++) {
        int round;

        c = socket(AF_INET, SOCK_STREAM, 0);
        must(connect(c, (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
        for (round = 0; round < 30; round++) {
            char buf[8];

            must(write(c, "message", 7) == 7 && recv(c, buf, 7, MSG_WAITALL) == 7, "round trip");
        }
        shutdown(c, SHUT_WR);
        hear(c, "end of stream");
        close(c);
    }
    for (i = 0; i < 2; i++)
        ended(pid[i]);
    close(l);
}

/* A server that accepts, forks and leaves the connection to the child. */
static void per_connection(void)
{
    struct sockaddr_in at;
    int l = listener(&at), a, c;
    pid_t pid;

    puts("-- a child per connection");
    c = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(c, (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
    a = accept(l, NULL, NULL);
    pid = fork();
    if (pid == 0) {
        close(l);
        close(c);
        hear(a, "child");
        must(write(a, "answer", 6) == 6, "answer");
        exit(0);
    }
    close(a);
    must(write(c, "question", 8) == 8, "question");
    hear(c, "answer");
    hear(c, "end of stream");
    ended(pid);
    close(c);
    close(l);
}

/* In vfork's child, and in the program that it becomes. */
static void vforked(const char *self)
{
    int p[2], status;
    pid_t pid;

    puts("-- vfork");
    tcp_pair(p);
    pid = vfork();
    /* What these children do is undefined in POSIX, and what programs do on Linux. */
    // NOLINTBEGIN(clang-analyzer-unix.Vfork)
    if (pid == 0) {
        /* Closing and moving descriptors here must not touch the parent's. */
        close(p[1]);
        dup2(p[0], 40);
        close(p[0]);
        execl(self, self, "child", "40", "by execl", (char *)NULL);
        _exit(1);
    }
    ended(pid);
    hear(p[1], "end");
    deliver(p[0], p[1], "the parent's still");
    hear(p[1], "end");
    pid = vfork();
    if (pid == 0) {
        close(p[0]);
        _exit(5);
    }
    // NOLINTEND(clang-analyzer-unix.Vfork)
    must(waitpid(pid, &status, 0) == pid, "waitpid");
    deliver(p[1], p[0], "all the same");
    hear(p[0], "connected");
    close(p[0]);
    hear(p[1], "end of stream");
    close(p[1]);
}

/* What exec would close is kept for the program by vfork's child. */
static void kept_by_vfork(const char *self, bool by_ioctl)
{
    int p[2], kept;
    char number[16] = "41";
    pid_t pid;

    printf("-- kept by vfork, %s\n", by_ioctl ? "ioctl" : "duplicate");
    tcp_pair(p);
    for (int i = 0; i < 2; i++)
        must(fcntl(p[i], F_SETFD, FD_CLOEXEC) == 0, "F_SETFD");
    on_rail(p);
    if (by_ioctl)
        snprintf(number, sizeof(number), "%d", p[0]);
    pid = vfork();
    // NOLINTBEGIN(clang-analyzer-unix.Vfork)
    if (pid == 0) {
        kept = by_ioctl ? ioctl(p[0], FIONCLEX) : fcntl(p[0], F_DUPFD_CLOEXEC, 41);
        if (!by_ioctl)
            kept = kept == 41 ? fcntl(kept, F_SETFD, 0) : -1;
        if (kept == 0)
            execl(self, self, "child", number, "kept", (char *)NULL);
        _exit(1);
    }
    // NOLINTEND(clang-analyzer-unix.Vfork)
    ended(pid);
    hear(p[1], "end");
    close(p[0]);
    hear(p[1], "end of stream");
    close(p[1]);
}

static void spawned(const char *self)
{
    char number[16], command[400];
    int p[2], i;
    pid_t pid = -1;
    FILE *f;

    puts("-- spawn");
    tcp_pair(p);
    snprintf(number, sizeof(number), "%d", p[0]);
    for (i = 0; i < 2; i++) {
        char *argv[] = {(char *)self, "child", number, "spawned", NULL};

        errno = CLEAN;
        must((i ? posix_spawnp : posix_spawn)(&pid, self, NULL, NULL, argv, environ) == 0, "spawn");
        ended(pid);
        hear(p[1], "end");
    }
    snprintf(command, sizeof(command), "%s child %d 'by system'", self, p[0]);
    fflush(stdout);
    SHOW(system(command));
    hear(p[1], "end");
    SHOW(system(NULL) != 0);
    snprintf(command, sizeof(command), "%s child %d 'by popen' && echo words", self, p[0]);
    f = popen(command, "r");
    must(f && fgets(command, sizeof(command), f), "popen");
    printf("popen: %s", command);
    SHOW(pclose(f));
    hear(p[1], "end");
    close(p[0]);
    hear(p[1], "end of stream");
    close(p[1]);
}

static void replaced(const char *self)
{
    int p[2], i;
    char number[16];

    puts("-- exec");
    for (i = 0; i < 7; i++) {
        pid_t pid;

        tcp_pair(p);
        snprintf(number, sizeof(number), "%d", p[0]);
        pid = fork();
        if (pid == 0) {
            char *argv[] = {(char *)self, "child", number, "exec", NULL};
            int own[2], e;

            tcp_pair(own); /* a connection of the child's own, while it is about to go */
            e = open(self, O_RDONLY | O_CLOEXEC);
            SHOW(execv("/nonexistent", argv));
            deliver(own[0], own[1], "goes on");
            hear(own[1], "own");
            fflush(stdout);
            switch (i) {
            case 0:
                execve(self, argv, environ);
                break;
            case 1:
                execv(self, argv);
                break;
            case 2:
                execvp(self, argv);
                break;
            case 3:
                execvpe(self, argv, environ);
                break;
            case 4:
                execlp(self, self, "child", number, "exec", (char *)NULL);
                break;
            case 5:
                execle(self, self, "child", number, "exec", (char *)NULL, environ);
                break;
            default:
                fexecve(e, argv, environ);
            }
            _exit(99);
        }
        ended(pid);
        hear(p[1], "end");
        close(p[0]);
        hear(p[1], "end of stream");
        close(p[1]);
    }
}

/* Descriptors of this process, and (`links`) the last one that is the library's link to the process
 * it was forked off. */
static int descriptors(int *links)
{
    DIR *d = opendir("/proc/self/fd");
    struct dirent *e;
    int n = 0;

    must(d != NULL, "/proc/self/fd");
    while ((e = readdir(d))) {
        int fd = atoi(e->d_name), type = 0;

        n++;
        if (links && fd >= 512 &&
            getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &(socklen_t){sizeof(type)}) == 0 &&
            type == SOCK_SEQPACKET)
            *links = fd;
    }
    closedir(d);
    return n;
}

/* A child that sends its parent's library more than belongs into a question: nothing
 * is left there. */
static void given_too_much(void)
{
    enum { TIMES = 50 };
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(2 * sizeof(int))];
    } control = {.head = {CMSG_LEN(2 * sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    int p[2], to[2], from[2], before, link = -1;
    char c;
    pid_t pid;

    puts("-- two descriptors at once");
    fflush(stdout);
    tcp_pair(p);
    must(pipe(to) == 0 && pipe(from) == 0, "pipe");
    pid = fork();
    if (pid == 0) {
        descriptors(&link);
        must(link >= 0 || !mode_rail(), "the link to the parent");
        must(read(to[0], &c, 1) == 1, "read");
        memcpy(CMSG_DATA(&control.head), to, 2 * sizeof(int));
        for (int i = 0; i < TIMES && link >= 0; i++) {
            struct msghdr m = {.msg_iov = &(struct iovec){"question", 8},
                               .msg_iovlen = 1,
                               .msg_control = &control,
                               .msg_controllen = sizeof(control)};
            ssize_t n;

            while ((n = syscall(SYS_sendmsg, link, &m, 0)) < 0 && errno == EAGAIN)
                sched_yield();
            must(n == 8, "sendmsg");
        }
        deliver(p[0], p[1], "asked after that"); /* and answered after that */
        must(write(from[1], "", 1) == 1 && read(to[0], &c, 1) == 1, "done");
        _exit(7);
    }
    before = descriptors(NULL);
    must(write(to[1], "", 1) == 1 && read(from[0], &c, 1) == 1, "the child");
    printf("left behind: %s\n", descriptors(NULL) < before + TIMES / 2 ? "nothing" : "descriptors");
    must(write(to[1], "", 1) == 1, "end");
    ended(pid);
    for (int i = 0; i < 2; i++) {
        close(p[i]);
        close(to[i]);
        close(from[i]);
    }
}

static void ends(void)
{
    int i, p[2];
    pid_t pid;

    puts("-- ends");
    for (i = 0; i < 4; i++) {
        struct sockaddr_in at;
        int l = listener(&at);

        fflush(stdout);
        pid = fork();
        if (pid == 0) {
            p[0] = socket(AF_INET, SOCK_STREAM, 0);
            must(connect(p[0], (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
            must(write(p[0], "last words", 10) == 10, "write");
            switch (i) {
            case 0:
                exit(4);
            case 1:
                _exit(5);
            case 2:
                quick_exit(6);
            default:
                kill(getpid(), SIGKILL);
            }
        }
        p[1] = accept(l, NULL, NULL);
        ended(pid);
        hear(p[1], "end");
        hear(p[1], "end of stream");
        close(p[1]);
        close(l);
    }
}

static void daemons(void)
{
    int p[2], q[2];
    pid_t pid;

    puts("-- daemon");
    tcp_pair(p);
    must(pipe(q) == 0, "pipe");
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        int own[2];

        must(daemon(1, 1) == 0, "daemon");
        tcp_pair(own);
        deliver(own[0], own[1], "x");
        must(write(p[0], "from a daemon", 13) == 13, "daemon's write");
        _exit(0);
    }
    ended(pid);
    close(p[0]);
    must(recv(p[1], (char[16]){0}, 13, MSG_WAITALL | MSG_PEEK) == 13, "daemon's word");
    hear(p[1], "end");
    hear(p[1], "end of stream");
    close(p[1]);
    puts("-- forkpty");
    tcp_pair(p);
    pid = forkpty(&q[0], NULL, NULL, NULL);
    if (pid == 0) {
        must(write(p[0], "on a terminal", 13) == 13, "write");
        _exit(0);
    }
    ended(pid);
    hear(p[1], "end");
    close(p[0]);
    close(p[1]);
    close(q[0]);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 3 && strcmp(argv[1], "child") == 0)
        return write(atoi(argv[2]), argv[3], strlen(argv[3])) > 0 ? 0 : 9;
    signal(SIGPIPE, SIG_IGN);
    shared_by(fork, "fork");
    shared_by(_Fork, "_Fork");
    shared_by(forked_twice, "fork within a fork");
    left_alone(by_clone, "clone");
    left_alone(fork, "fork");
    workers();
    per_connection();
    vforked(argv[0]);
    kept_by_vfork(argv[0], true);
    kept_by_vfork(argv[0], false);
    spawned(argv[0]);
    replaced(argv[0]);
    given_too_much();
    ends();
    daemons();
    return 0;
}
