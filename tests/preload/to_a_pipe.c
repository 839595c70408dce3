/*
 * to_a_pipe.c - sendfile from a connection to a pipe, which Linux can since 5.12; and of nothing.
 */
#include "say.h"

#include <sys/sendfile.h>

int main(void)
{
    int p[2], pipes[2], file = open("/proc/self/exe", O_RDONLY);

    must(pipe(pipes) == 0, "pipe");
    tcp_pair(p);
    SHOW(sendfile(p[0], file, NULL, 0));
    on_rail(p);
    for (int i = 0; i < 3; i++) {
        deliver(p[1], p[0], "some bytes");
        SHOW(sendfile(pipes[1], p[0], NULL, 100));
        hear(pipes[0], "pipe");
    }
    SHOW(fcntl(p[0], F_SETFL, O_NONBLOCK));
    SHOW(sendfile(pipes[1], p[0], NULL, 100));
    close(p[1]);
    SHOW(sendfile(pipes[1], p[0], NULL, 100));
    return 0;
}
