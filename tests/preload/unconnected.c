/*
 * unconnected.c - what stands for a socket before it is connected stands for the stream afterwards:
 * a number by dup, a FILE, another process's copy; and a FILE whose number a stream is given.
 */
#include "say.h"

#include <fcntl.h>
#include <signal.h>

static int unconnected(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    must(fd >= 0, "socket");
    return fd;
}

/* p[0] is connected now, and p[1] accepted. */
static void connected(int p[2], int fd)
{
    struct sockaddr_in at;
    int l = listener(&at);

    p[0] = fd;
    must(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
    p[1] = accept(l, NULL, NULL);
    must(p[1] >= 0, "accept");
    close(l);
    warm(p);
}

static void heard_at_its_end(int fd)
{
    hear(fd, "end");
    hear(fd, "end of stream");
    close(fd);
}

/* Both numbers are used, and the one that was connected is closed first. */
static void another_number(int (*duplicate)(int), const char *how)
{
    int p[2], fd = unconnected(), other = duplicate(fd);

    printf("-- %s\n", how);
    must(other >= 0, how);
    may_board = false;
    connected(p, fd);
    may_board = true;
    must(write(other, "by the other", 12) == 12, "write");
    hear(p[1], "end");
    deliver(p[1], other, "to the other");
    hear(p[0], "number");
    close(p[0]);
    must(write(other, "the last", 8) == 8, "write");
    close(other);
    heard_at_its_end(p[1]);
}

static int by_fcntl(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 100);
}

static int by_dup2(int fd)
{
    return dup2(fd, 101);
}

static int by_dup3(int fd)
{
    return dup3(fd, 102, O_CLOEXEC);
}

/* As programs do that want to keep low numbers free. */
static void moved(void)
{
    int p[2], fd = unconnected(), other = by_fcntl(fd);

    puts("-- moved");
    close(fd);
    connected(p, other);
    must(write(other, "from a high number", 18) == 18, "write");
    close(other);
    heard_at_its_end(p[1]);
}

static void said_by(FILE *f, int peer)
{
    SHOW(fputs("by a FILE", f));
    SHOW(fclose(f));
    heard_at_its_end(peer);
}

static void with_a_file(void)
{
    int p[2], fd = unconnected();
    FILE *f = fdopen(fd, "r+");

    puts("-- fdopen");
    may_board = false;
    connected(p, fd);
    said_by(f, p[1]);
    may_board = true;
}

static void file_follows(bool before)
{
    int p[2], fd = unconnected();
    FILE *f = fopen("/dev/null", "w");

    printf("-- dup2 to a FILE's number%s\n", before ? ", before" : "");
    must(f != NULL, "fopen");
    if (!before)
        connected(p, fd);
    must(dup2(fd, fileno(f)) == fileno(f), "dup2");
    may_board = false;
    if (before)
        connected(p, fd);
    else
        warm(p);
    close(fd);
    said_by(f, p[1]);
    may_board = true;
}

static pid_t by_clone(void)
{
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static void with_a_child(pid_t (*make)(void), const char *how)
{
    int p[2], go[2], fd = unconnected();
    char x;
    pid_t child;

    printf("-- %s\n", how);
    fflush(stdout);
    must(pipe(go) == 0, "pipe");
    child = make();
    must(child >= 0, "fork");
    if (child == 0) {
        must(read(go[0], &x, 1) == 1, "go on");
        must(write(fd, "from the child", 14) == 14, "child's write");
        _exit(7);
    }
    may_board = false;
    connected(p, fd);
    may_board = true;
    must(write(go[1], "x", 1) == 1, "go on");
    ended(child);
    hear(p[1], "end");
    must(write(fd, "from the parent", 15) == 15, "write");
    close(fd);
    heard_at_its_end(p[1]);
    close(go[0]);
    close(go[1]);
}

/* What such a child closes is not its parent's, although it has its memory. */
static void closed_by_vfork(void)
{
    int p[2], fd = unconnected();
    pid_t child;

    puts("-- vfork");
    must(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0, "F_SETFD");
    // NOLINTBEGIN(clang-analyzer-unix.Vfork)
    child = vfork();
    if (child == 0) {
        close(fd);
        _exit(0);
    }
    // NOLINTEND(clang-analyzer-unix.Vfork)
    ended(child);
    connected(p, fd);
    must(write(fd, "still here", 10) == 10, "write");
    close(fd);
    heard_at_its_end(p[1]);
}

int main(void)
{
    another_number(dup, "dup");
    another_number(by_fcntl, "F_DUPFD_CLOEXEC");
    another_number(by_dup2, "dup2");
    another_number(by_dup3, "dup3");
    moved();
    with_a_file();
    file_follows(false);
    file_follows(true);
    with_a_child(fork, "fork");
    with_a_child(_Fork, "_Fork");
    with_a_child(by_clone, "clone");
    closed_by_vfork();
    return 0;
}
