/*
 * fork_moments.c - connections around a fork: one is accepted by another thread while a fork is
 * under way; one is closed by the parent, which becomes another program at once; and one is used by
 * a child of many generations, which has closed all that it does not know.
 */
#include "say.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>

enum { CLOSES = 4, GENERATIONS = 18 };

static int l, accepted = -1;
static struct sockaddr_in at;
static bool armed;

static int connected(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    must(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
    return fd;
}

static void say(int fd, const char *words)
{
    must(write(fd, words, strlen(words)) == (ssize_t)strlen(words), words);
}

/* ---- accepted between the beginning of fork() and the kernel's */

static void *accepts(void *unused)
{
    accepted = accept(l, NULL, NULL);
    return unused;
}

static void prepare(void)
{
    pthread_t t;

    if (armed)
        must(pthread_create(&t, NULL, accepts, NULL) == 0 && pthread_join(t, NULL) == 0, "thread");
}

/* first: the process has had no connection before, and it stays on TCP. */
static void accepted_in_a_fork(bool first)
{
    int go[2];
    char byte;
    pid_t peer, pid;

    must(pipe(go) == 0, "pipe");
    peer = fork();
    if (peer == 0) {
        int fd = connected();

        if (first) {
            for (int i = 0; i < 300; i++)
                word(fd, i < 299 ? '.' : '!');
        } else {
            words_by_rail(fd);
        }
        hear(fd, "peer");
        say(fd, "answer");
        hear(fd, "peer");
        fflush(stdout);
        _exit(0);
    }
    armed = true;
    pid = fork();
    armed = false;
    if (pid == 0) {
        alarm(60);
        must(read(go[0], &byte, 1) == 1, "pipe");
        say(accepted, "from the child");
        hear(accepted, "child");
        fflush(stdout);
        _exit(7);
    }
    echo_words(accepted);
    must(write(go[1], "", 1) == 1, "pipe");
    ended(pid);
    close(accepted);
    ended(peer);
}

/* ---- closed, and another program at once */

static void closed_then_exec(void)
{
    char answer[6];
    pid_t peer = getpid(), own = fork();
    int fd, over[2];

    if (own == 0) {
        int c = connected();

        words_by_rail(c);
        must(pipe2(over, O_CLOEXEC) == 0, "pipe");
        if (fork() == 0) {
            struct pollfd program = {.fd = over[0], .events = POLLIN};

            close(over[1]);
            (void)!poll(&program, 1, 100); /* it need not wait for who stands still */
            kill(peer, SIGCONT);
            must(read(over[0], answer, 1) == 0, "pipe"); /* its parent is the program */
            say(c, "from the child");
            must(read(c, answer, sizeof(answer)) == sizeof(answer), "read");
            _exit(0);
        }
        kill(peer, SIGSTOP); /* so that there is something left to be done after the close */
        close(c);
        execl("/bin/true", "true", NULL);
        _exit(9);
    }
    fd = accept(l, NULL, NULL);
    must(fd >= 0, "accept");
    echo_words(fd);
    hear(fd, "peer");
    say(fd, "answer");
    ended(own);
    hear(fd, "peer");
    close(fd);
}

/* ---- generations */

static void trip(int fd, char byte)
{
    char got;

    must(write(fd, &byte, 1) == 1 && recv(fd, &got, 1, 0) == 1 && got == byte, "trip");
}

static void echo_server(void)
{
    for (;;) {
        int fd = accept(l, NULL, NULL);

        must(fd >= 0, "accept");
        if (fork() == 0) {
            char buf[64];
            ssize_t n;

            alarm(120);
            while ((n = read(fd, buf, sizeof(buf))) > 0)
                must(write(fd, buf, (size_t)n) == n, "echo");
            _exit(0);
        }
        close(fd);
    }
}

static void last_one(int fd, int tell, int told)
{
    char byte;

    dup2(tell, 300);
    dup2(told, 301);
    closefrom(302);
    trip(fd, 'c');
    must(write(300, "", 1) == 1 && read(301, &byte, 1) == 1, "pipe");
    for (int i = 0; i < 50; i++)
        trip(fd, 'd');
    _exit(0);
}

/* Returns in the next one. */
static void generation(int left)
{
    int fd = connected(), a[2], b[2], status;
    char byte;
    pid_t pid;

    for (int i = 0; i < (left ? 20 : 3000); i++)
        trip(fd, 'a');
    must(pipe(a) == 0 && pipe(b) == 0, "pipe");
    pid = fork();
    if (pid == 0) {
        alarm(60);
        if (left)
            return;
        last_one(fd, a[1], b[0]);
    }
    if (!left) {
        must(read(a[0], &byte, 1) == 1, "pipe");
        for (int i = 0; i < 3000; i++)
            trip(fd, 'b');
        must(write(b[1], "", 1) == 1, "pipe");
    }
    must(waitpid(pid, &status, 0) == pid, "waitpid");
    _exit(status != 0);
}

int main(void)
{
    pid_t server, first;
    int kept[2];

    setvbuf(stdout, NULL, _IOLBF, 0);
    l = listener(&at);
    must(pthread_atfork(prepare, NULL, NULL) == 0, "pthread_atfork");
    accepted_in_a_fork(true);
    tcp_pair(kept);
    accepted_in_a_fork(false);
    for (int i = 0; i < CLOSES; i++)
        closed_then_exec();
    server = fork();
    if (server == 0)
        echo_server();
    first = fork();
    if (first == 0)
        for (int left = GENERATIONS;; left--)
            generation(left);
    ended(first);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    return 0;
}
