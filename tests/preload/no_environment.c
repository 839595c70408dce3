/*
 * no_environment.c - a program that throws its environment away before it has a connection, as
 * servers do that show their state in ps.
 */
#include "pair.h"

#include <poll.h>

int main(void)
{
    const char *warmed = getenv("PAIR_WARM"), *mode = getenv("RAILSOCK_MODE");
    char buf[8];
    int p[2];

    clearenv();
    must((!warmed || setenv("PAIR_WARM", warmed, 1) == 0) &&
             (!mode || setenv("RAILSOCK_MODE", mode, 1) == 0),
         "setenv");
    tcp_pair(p);
    for (int i = 0; i < 3; i++) {
        struct pollfd of = {.fd = p[1 - i % 2], .events = POLLIN};

        SHOW(poll(&of, 1, 20)); /* who else runs on the process's behalf has its turn */
        SHOW(write(p[i % 2], "abc", 3));
        SHOW(poll(&of, 1, -1));
        SHOW(read(of.fd, buf, sizeof(buf)));
    }
    close(p[0]);
    SHOW(read(p[1], buf, sizeof(buf)));
    return 0;
}
