/*
 * splice_cut.c - a handler ends the wait of a splice, or of a sendfile, out of a connection, also
 * where it runs while the connection's peer, which is stopped, is waited for to give its rail back.
 */
#include "say.h"

#include <pthread.h>
#include <signal.h>
#include <sys/sendfile.h>

static struct sockaddr_in at;
static int l, way[2];
static _Atomic int self;
static pid_t peer_pid;

static void on_signal(int sig)
{
    (void)sig;
}

static void peer(void)
{
    int fd = accept(l, NULL, NULL);

    echo_words(fd);
    echo_words(fd);
    _exit(0);
}

static void *cuts(void *unused)
{
    (void)unused;
    until_it_sleeps(&self);
    must(tgkill(getpid(), self, SIGUSR1) == 0, "tgkill");
    must(kill(peer_pid, SIGCONT) == 0, "SIGCONT");
    return NULL;
}

/* How it is asked for; SPLICE_F_NONBLOCK is the pipe's. */
enum way { SPLICE, SPLICE_NONBLOCK, SENDFILE };

static void cut(enum way by)
{
    int fd, status;
    pthread_t t;

    peer_pid = fork();
    if (peer_pid == 0)
        peer();
    fd = socket(AF_INET, SOCK_STREAM, 0); /* this process's alone */
    must(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
    words_by_rail(fd);
    must(kill(peer_pid, SIGSTOP) == 0 && waitpid(peer_pid, &status, WUNTRACED) == peer_pid, "stop");
    must(pthread_create(&t, NULL, cuts, NULL) == 0, "pthread_create");
    if (by == SENDFILE)
        SHOW(sendfile(way[1], fd, NULL, 100));
    else if (by == SPLICE)
        SHOW(splice(fd, NULL, way[1], NULL, 100, 0));
    else
        SHOW(splice(fd, NULL, way[1], NULL, 100, SPLICE_F_NONBLOCK));
    pthread_join(t, NULL);
    word(fd, '!');
    ended(peer_pid);
    close(fd);
}

int main(void)
{
    struct sigaction sa = {.sa_handler = on_signal};

    alarm(120);
    self = gettid();
    l = listener(&at);
    must(pipe(way) == 0 && sigaction(SIGUSR1, &sa, NULL) == 0, "pipe, sigaction");
    for (enum way by = SPLICE; by <= SENDFILE; by++)
        cut(by);
    return 0;
}
