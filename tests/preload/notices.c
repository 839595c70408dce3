/*
 * notices.c - the kernel's notice of a zero-copy send lies unread in the error queue, for poll an
 * error, while the other process has not heard yet that the sender has left the rail, and still
 * sends on its own: no end of the stream.
 */
#include "pair.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif

enum { SIZE = 64 };

/* Sends back what comes, and stands still once, where it is asked to. */
__attribute__((noreturn)) static void echo(const struct sockaddr_in *at)
{
    char bytes[SIZE];
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    must(connect(fd, (const struct sockaddr *)at, sizeof(*at)) == 0, "connect");
    while (recv(fd, bytes, SIZE, MSG_WAITALL) == SIZE) {
        must(write(fd, bytes, SIZE) == SIZE, "write");
        if (bytes[0] == 'e')
            raise(SIGSTOP);
    }
    _exit(0);
}

static pid_t echo_process(int *fd)
{
    struct sockaddr_in at;
    int l = listener(&at);
    pid_t child = fork();

    must(child >= 0, "fork");
    if (child == 0)
        echo(&at);
    *fd = accept(l, NULL, NULL);
    must(*fd >= 0, "accept");
    close(l);
    return child;
}

static void there_and_back(int fd)
{
    char bytes[SIZE] = "there and back";

    must(write(fd, bytes, SIZE) == SIZE, "write");
    must(recv(fd, bytes, SIZE, MSG_WAITALL) == SIZE, "recv");
}

static void on_a_rail(int fd)
{
    unsigned long long sent, received;
    time_t begin = time(NULL);
    int trips = 0;
    bool tcp;

    do {
        sent = tcp_sent(fd);
        received = tcp_received(fd);
        there_and_back(fd);
        tcp = tcp_sent(fd) != sent || tcp_received(fd) != received;
    } while (++trips < 20 || (mode_rail() && tcp && others_run(begin)));
    must(!(mode_rail() && tcp), "a rail");
}

int main(void)
{
    const int on = 1;
    char bytes[SIZE] = "e: stand still";
    struct pollfd p = {.events = POLLIN};
    int fd, status;
    pid_t child = echo_process(&fd);

    p.fd = fd;
    must(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) == 0, "SO_ZEROCOPY");
    on_a_rail(fd);
    must(write(fd, bytes, SIZE) == SIZE, "write");
    must(recv(fd, bytes, SIZE, MSG_WAITALL) == SIZE, "recv");
    must(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status), "stop");
    SHOW(send(fd, "z: a send of which the kernel gives notice when it is over.....", SIZE,
              MSG_ZEROCOPY));
    SHOW(poll(&p, 1, 20000));
    printf("%s\n", p.revents == POLLERR ? "POLLERR" : "something else");
    SHOW(recv(fd, bytes, SIZE, MSG_DONTWAIT));
    kill(child, SIGCONT);
    SHOW(recv(fd, bytes, SIZE, MSG_WAITALL));
    printf("%.2s\n", bytes);
    for (int i = 0; i < 10; i++)
        there_and_back(fd);
    SHOW(shutdown(fd, SHUT_WR));
    SHOW(recv(fd, bytes, SIZE, 0));
    must(waitpid(child, &status, 0) == child, "waitpid");
    SHOW(status);
    return 0;
}
