/*
 * processes.c - the other end in a process of its own; fork, exec and death in the middle of a
 * transfer: fork(2), execve(2), exit(3), tcp(7).
 */
#include "tests/conform/kit.h"

#include <spawn.h>
#include <sys/wait.h>

static struct far far;

static void echoes(struct far *f)
{
    char buf[1000];
    ssize_t n;

    while ((n = recv(f->fd, buf, sizeof(buf), 0)) > 0)
        must(send(f->fd, buf, (size_t)n, 0) == n, "send");
}

CASE(echo)
{
    char buf[100];

    far_begin(&far, echoes);
    for (int i = 1; i < 100; i++) {
        must(send(far.fd, "0123456789", 10, 0) == 10, "send");
        must(recv(far.fd, buf, 10, MSG_WAITALL) == 10, "recv");
    }
    SHOW(shutdown(far.fd, SHUT_WR));
    say_rest(far.fd);
    far_end(&far);
}

static void writes_much(struct far *f)
{
    put(f->fd, 0, 3000000);
}

CASE(much_then_exit)
{
    far_begin(&far, writes_much);
    say("all %d", take(far.fd, 0, 3000000));
    say_rest(far.fd);
    far_end(&far);
}

static void writes_much_exits_at_once(struct far *f)
{
    put(f->fd, 0, 300000);
    _exit(7);
}

CASE(much_then_underscore_exit)
{
    far_begin(&far, writes_much_exits_at_once);
    say("all %d", take(far.fd, 0, 300000));
    say_rest(far.fd);
    far_end(&far);
}

static void writes_then_waits(struct far *f)
{
    must(send(f->fd, "last words", 10, 0) == 10, "send");
    far_step(f);
    for (;;)
        pause();
}

CASE(killed)
{
    far_begin(&far, writes_then_waits);
    far_wait(&far);
    arrived(far.fd, 10);
    SHOW(kill(far.pid, SIGKILL));
    far_end(&far);
    say_rest(far.fd);
}

/* Waits until what was sent is at the other end; on a rail it is at once. */
static void arrived_there(int fd)
{
    struct tcp_info ti;
    socklen_t len = sizeof(ti);

    for (int i = 0; i < 10000; i++, sleep_ms(1)) {
        must(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &ti, &len) == 0, "TCP_INFO");
        if (ti.tcpi_unacked == 0)
            return;
    }
    say("waited in vain for an acknowledgement");
}

CASE(killed_with_unread_bytes)
{
    far_begin(&far, writes_then_waits);
    far_wait(&far);
    arrived(far.fd, 10);
    SHOW(send(far.fd, "unread", 6, 0));
    arrived_there(far.fd);
    SHOW(kill(far.pid, SIGKILL));
    far_end(&far);
    until(far.fd, POLLHUP);
    SHOW(send(far.fd, "x", 1, MSG_NOSIGNAL) < 0 ? 0 : 1);
}

CASE(stopped_and_continued)
{
    char buf[10];

    far_begin(&far, echoes);
    SHOW(kill(far.pid, SIGSTOP));
    SHOW(send(far.fd, "echo", 4, 0));
    SHOW(poll(&(struct pollfd){far.fd, POLLIN, 0}, 1, 50));
    SHOW(kill(far.pid, SIGCONT));
    SHOW(recv(far.fd, buf, 4, MSG_WAITALL));
    SHOW(shutdown(far.fd, SHUT_WR));
    say_rest(far.fd);
    far_end(&far);
}

/* ---- fork with a connection */

static int p[2];

static pid_t child(void (*fn)(void))
{
    pid_t pid;

    fflush(stdout);
    pid = fork();
    must(pid >= 0, "fork");
    if (pid == 0) {
        fn();
        exit(0);
    }
    return pid;
}

static void ended(pid_t pid)
{
    int status = -1;

    must(waitpid(pid, &status, 0) == pid, "waitpid");
    say("child: status %d", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

static void nothing(void)
{
}

CASE(child_that_does_nothing)
{
    pair(p);
    ended(child(nothing));
    deliver(p[0], p[1], "goes on");
    SHOW(close(p[0]));
    say_rest(p[1]);
}

static void sends(void)
{
    must(send(p[0], "from the child", 14, 0) == 14, "send");
}

CASE(child_sends)
{
    pair(p);
    SHOW(send(p[0], "before, ", 8, 0));
    ended(child(sends));
    SHOW(send(p[0], ", after", 7, 0));
    SHOW(close(p[0]));
    say_rest(p[1]);
}

static void receives(void)
{
    char buf[10] = "";

    must(recv(p[1], buf, 5, MSG_WAITALL) == 5, "recv");
    say_bytes("child", buf, 5);
}

CASE(child_receives)
{
    pair(p);
    deliver(p[0], p[1], "0123456789");
    ended(child(receives));
    SHOW(close(p[0]));
    say_rest(p[1]);
}

static void closes_and_sends(void)
{
    close(p[1]);
    sends();
}

CASE(server_that_forks)
{
    pid_t pid;

    pair(p);
    pid = child(closes_and_sends);
    SHOW(close(p[0]));
    say_rest(p[1]);
    ended(pid);
}

static void sends_much(void)
{
    put(p[0], 100000, 100000);
}

static void takes(void *ok)
{
    *(bool *)ok = take(p[1], 0, 300000);
}

CASE(in_the_middle_of_a_transfer)
{
    struct later l;
    bool ok = false;

    pair(p);
    later(&l, takes, &ok);
    put(p[0], 0, 100000);
    ended(child(sends_much));
    put(p[0], 200000, 100000);
    later_end(&l);
    say("all %d", ok);
}

static void execs(void)
{
    char number[16];

    fcntl(p[0], F_SETFD, 0);
    snprintf(number, sizeof(number), "%d", p[0]);
    execl("/bin/sh", "sh", "-c", "eval \"exec 9<&$0\"; read line <&9; echo \"$line, too\" >&9",
          number, NULL);
    _exit(9);
}

CASE(child_executes)
{
    char buf[20] = "";

    pair(p);
    SHOW(send(p[1], "read me\n", 8, 0));
    arrived(p[0], 8);
    ended(child(execs));
    SHOW(recv(p[1], buf, 13, MSG_WAITALL));
    say_bytes("got", buf, 12);
}

CASE(executed_after_the_end)
{
    char buf[20] = "";

    pair(p);
    SHOW(send(p[1], "read me\n", 8, 0));
    SHOW(shutdown(p[1], SHUT_WR));
    until(p[0], POLLRDHUP);
    ended(child(execs));
    SHOW(recv(p[1], buf, 13, MSG_WAITALL));
    say_bytes("got", buf, 12);
}

CASE(close_on_exec)
{
    extern char **environ;
    pid_t pid;
    char *argv[] = {(char[]){"true"}, NULL};

    pair(p);
    SHOW(fcntl(p[0], F_SETFD, FD_CLOEXEC));
    SHOW(posix_spawnp(&pid, "true", NULL, NULL, argv, environ));
    ended(pid);
    SHOW(system("exit 3") >> 8);
    deliver(p[0], p[1], "untouched");
    SHOW(close(p[0]));
    say_rest(p[1]);
}

/* A listener that parent and child share, as pre-forking servers have it. */
static int l;

static void accepts(void)
{
    char buf[10];
    int s = accept(l, NULL, NULL);

    must(s >= 0, "accept");
    board_one(s, true);
    must(recv(s, buf, 4, MSG_WAITALL) == 4 && send(s, "pong", 4, 0) == 4, "pong");
}

CASE(preforked_server)
{
    struct sockaddr_storage at;
    socklen_t len;
    char buf[10] = "";
    pid_t pid;
    int c;

    l = listener(&net4, &at, &len);
    pid = child(accepts);
    c = socket(AF_INET, SOCK_STREAM, 0); /* not the child's as well: that would stay on TCP */
    SHOW(connect(c, (struct sockaddr *)&at, len));
    board_one(c, false);
    SHOW(send(c, "ping", 4, 0));
    SHOW(recv(c, buf, 4, MSG_WAITALL));
    say_bytes("got", buf, 4);
    say_rest(c);
    ended(pid);
}

CASE(vfork_child)
{
    pid_t pid;

    pair(p);
    pid = vfork();
    if (pid == 0)
        _exit(4);
    ended(pid);
    deliver(p[0], p[1], "goes on");
    SHOW(close(p[0]));
    say_rest(p[1]);
}
