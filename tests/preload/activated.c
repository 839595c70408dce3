/*
 * activated.c - servers that somebody else has opened the sockets of: a listener as descriptor 3
 * and a connection as descriptor 3 (systemd's two kinds of socket units), and a connection as 0, 1
 * and 2 (inetd's nowait).
 */
#include "say.h"

#include <fcntl.h>

extern char **environ;

enum { FIRST = 3 /* SD_LISTEN_FDS_START */ };

static void activate(int fd, const char *self, const char *as)
{
    char pid[16];

    snprintf(pid, sizeof(pid), "%d", getpid());
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", "1", 1);
    if (fd == FIRST)
        must(fcntl(fd, F_SETFD, 0) == 0, "F_SETFD");
    else
        must(dup2(fd, FIRST) == FIRST && close(fd) == 0, "dup2");
    fflush(stdout);
    execl(self, self, as, (char *)NULL);
    _exit(99);
}

/* As sd_listen_fds and sd_is_socket look. */
static void look(bool listens)
{
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    int is = -1;

    must(pid && atoi(pid) == getpid() && n && atoi(n) == 1, "LISTEN_*");
    must(getsockopt(FIRST, SOL_SOCKET, SO_ACCEPTCONN, &is, &(socklen_t){sizeof(is)}) == 0,
         "SO_ACCEPTCONN");
    must(is == listens, "the kind of socket");
}

/* What this program accepts from it is as good as from a listener of its own: on_rail says if it
 * does not board. */
static int serve_listener(void)
{
    struct sockaddr_in at;
    int p[2];

    look(true);
    must(getsockname(FIRST, (struct sockaddr *)&at, &(socklen_t){sizeof(at)}) == 0, "getsockname");
    for (int i = 0; i < 3; i++) {
        pair_at(FIRST, &at, p);
        warm(p);
        talk(p, "on descriptor 3:");
        close(p[0]);
        hear(p[1], "end of stream");
        close(p[1]);
    }
    return 3;
}

static int serve_one(int in, int out)
{
    char buf[64];
    ssize_t n;

    while ((n = read(in, buf, sizeof(buf))) > 0)
        must(write(out, buf, (size_t)n) == n, "echo");
    return n == 0 ? 4 : 5;
}

/* Round trips with a server that echoes, then the end of both directions. */
static void asks(int fd)
{
    char buf[16];

    for (int i = 0; i < 200; i++)
        must(write(fd, "to be sent back!", 16) == 16 && recv(fd, buf, 16, MSG_WAITALL) == 16 &&
                 memcmp(buf, "to be sent back!", 16) == 0,
             "echo");
    must(shutdown(fd, SHUT_WR) == 0, "shutdown");
    hear(fd, "answered; the end of stream");
}

int main(int argc, char **argv)
{
    struct sockaddr_in at;
    pid_t pid;
    int l;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1 && strcmp(argv[1], "listener") == 0)
        return serve_listener();
    if (argc > 1 && strcmp(argv[1], "connection") == 0) {
        look(false);
        return serve_one(FIRST, FIRST);
    }
    if (argc > 1 && strcmp(argv[1], "inetd") == 0)
        return serve_one(0, 1);
    puts("-- a listener as descriptor 3");
    fflush(stdout);
    pid = fork();
    if (pid == 0)
        activate(listener(&at), argv[0], "listener");
    ended(pid);
    for (int i = 0; i < 4; i++) {
        bool inetd = i & 1, talked = i & 2;
        int p[2];

        printf("-- a connection as %s%s\n", inetd ? "0, 1 and 2" : "descriptor 3",
               talked ? ", after it was used" : "");
        fflush(stdout);
        l = listener(&at);
        pair_at(l, &at, p);
        close(l);
        /* What comes again after a rail comes at once, and not when the parent's copy
         * is long closed. */
        must(setsockopt(p[0], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) == 0,
             "TCP_NODELAY");
        if (talked)
            warm(p);
        pid = fork();
        if (pid == 0) {
            close(p[0]);
            if (!inetd)
                activate(p[1], argv[0], "connection");
            for (int fd = 0; fd < 3; fd++)
                must(dup2(p[1], fd) == fd, "dup2");
            close(p[1]);
            execl(argv[0], argv[0], "inetd", (char *)NULL);
            _exit(99);
        }
        close(p[1]);
        asks(p[0]);
        ended(pid);
        close(p[0]);
    }
    return 0;
}
