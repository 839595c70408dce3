/*
 * ends_after_fork.c - a server whose only child has ended long before: it has its connection alone
 * again, and its own end is the connection's, also for a client that is stopped meanwhile and has
 * most of what was said still to come.
 */
#include "warm.h"

#include <signal.h>
#include <sys/wait.h>

enum { MORE = 50, SMALL = 4096 };

static struct sockaddr_in at;
static int written[2]; /* how much is left to the client, from who ends */

static void waits_for(pid_t pid)
{
    int status;

    must(waitpid(pid, &status, 0) == pid, "waitpid");
    printf("status %d\n", status);
}

/* It asks for nothing more after that. The kernel has little room for what it does not read. */
static void client(void)
{
    static char got[65536];
    int fd = socket(AF_INET, SOCK_STREAM, 0), small = SMALL;
    long all = 0, of;
    ssize_t n;

    close(written[1]);
    must(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0, "SO_RCVBUF");
    must(connect(fd, (struct sockaddr *)&at, sizeof at) == 0, "connect");
    asks(fd, 0, 0);
    asks(fd, 0, 0);
    while ((n = read(fd, got, sizeof got)) > 0)
        all += n;
    if (n < 0)
        printf("not the end: %s\n", strerrorname_np(errno));
    must(read(written[0], &of, sizeof of) == sizeof of, "written");
    puts(all == of ? "all of it" : "not all of it");
    exit(0);
}

static void server(int l, pid_t of, bool more)
{
    int fd = accept(l, NULL, NULL);
    time_t begin;
    long all = 0;
    pid_t pid;

    must(fd >= 0, "accept");
    warms("server", fd);
    pid = fork();
    if (pid == 0)
        _exit(0);
    waits_for(pid);
    for (int i = 1; i < MORE; i++)
        echo(fd, 0);
    echo(fd, 1);
    until_process_sleeps(of);
    must(kill(of, SIGSTOP) == 0, "SIGSTOP");
    for (begin = time(NULL); state_of(of) != 'T' && others_run(begin);)
        ;
    if (more)
        all = as_much_as_goes(fd);
    must(write(written[1], &all, sizeof all) == sizeof all, "written");
    exit(0);
}

static void one(bool more)
{
    int l = listener(&at);
    pid_t asking, serving;

    printf("-- %s\n", more ? "with much left to read" : "with nothing left to read");
    fflush(stdout);
    must(pipe(written) == 0, "pipe");
    asking = fork();
    if (asking == 0)
        client();
    serving = fork();
    if (serving == 0)
        server(l, asking, more);
    close(l);
    close(written[1]);
    waits_for(serving);
    must(kill(asking, SIGCONT) == 0, "SIGCONT");
    waits_for(asking);
    close(written[0]);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    one(false);
    one(true);
    return 0;
}
