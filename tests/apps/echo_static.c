/*
 * echo_static.c - built with -static by many_unreached.sh: a program that the library cannot reach.
 *
 *   server HOST PORT   a child for each connection sends back what it gets
 *   client HOST PORT   messages of many sizes there and back, compared
 */
#include <arpa/inet.h>
#include <err.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void all(int fd, const char *data, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, data, n);

        if (done < 0)
            err(1, "write");
        data += done;
        n -= (size_t)done;
    }
}

static void serve(int listener, const struct sockaddr_in *at)
{
    static char data[65536];
    const int one = 1;
    ssize_t n;
    int s;

    signal(SIGCHLD, SIG_IGN);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(listener, (const struct sockaddr *)at, sizeof(*at)) < 0 || listen(listener, 16) < 0)
        err(1, "listen");
    for (;; close(s)) {
        if ((s = accept(listener, NULL, NULL)) < 0)
            err(1, "accept");
        if (fork() != 0)
            continue;
        while ((n = read(s, data, sizeof(data))) > 0)
            all(s, data, (size_t)n);
        exit(0);
    }
}

static void ask(int s, const struct sockaddr_in *at)
{
    static const size_t sizes[] = {1, 17, 1000, 60000};
    static char sent[60000], got[60000];

    if (connect(s, (const struct sockaddr *)at, sizeof(*at)) < 0)
        err(1, "connect");
    for (unsigned i = 0; i < 2000; i++) {
        size_t n = sizes[i % 4];

        for (size_t k = 0; k < n; k++)
            sent[k] = (char)(k * 7 + i);
        all(s, sent, n);
        if (recv(s, got, n, MSG_WAITALL) != (ssize_t)n || memcmp(sent, got, n) != 0)
            errx(1, "wrong bytes in message %u", i);
    }
    shutdown(s, SHUT_WR);
    if (read(s, got, 1) != 0)
        errx(1, "more came than was sent");
    all(STDOUT_FILENO, "all came back\n", 14);
}

int main(int argc, char **argv)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    int s = socket(AF_INET, SOCK_STREAM, 0);

    if (argc != 4 || inet_pton(AF_INET, argv[2], &at.sin_addr) != 1)
        errx(2, "usage: %s server|client HOST PORT", argv[0]);
    at.sin_port = htons((unsigned short)atoi(argv[3]));
    if (argv[1][0] == 's')
        serve(s, &at);
    ask(s, &at);
    return 0;
}
