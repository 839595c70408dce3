/*
 * told_by_signal.c - a client that has asked for SIGIO before it connects: a signal
 * for each arrival.
 */
#include "say.h"

#include <signal.h>

int main(void)
{
    struct sockaddr_in at;
    sigset_t io;
    int l = listener(&at), p[2], n = 0;
    bool told;
    char bytes[64] = "what is told of";

    sigemptyset(&io);
    sigaddset(&io, SIGIO);
    sigprocmask(SIG_BLOCK, &io, NULL);
    p[0] = socket(AF_INET, SOCK_STREAM, 0);
    must(fcntl(p[0], F_SETOWN, getpid()) == 0 && fcntl(p[0], F_SETFL, O_ASYNC) == 0, "O_ASYNC");
    must(connect(p[0], (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
    p[1] = accept(l, NULL, NULL);
    for (int i = 0; i < 3000; i++) {
        const struct timespec most = {10, 0};

        must(write(p[1], bytes, sizeof(bytes)) == sizeof(bytes), "there");
        /* The connection, and room, are told as well. */
        do
            told = sigtimedwait(&io, NULL, &most) == SIGIO;
        while (told && recv(p[0], bytes, sizeof(bytes), MSG_DONTWAIT) <= 0);
        if (!told)
            break;
        n++;
        must(write(p[0], bytes, sizeof(bytes)) == sizeof(bytes) &&
                 read(p[1], bytes, sizeof(bytes)) > 0,
             "back");
    }
    printf("%d were told\n", n);
    return 0;
}
