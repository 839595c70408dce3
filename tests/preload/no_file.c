/*
 * no_file.c - sendfile from what is no file is the kernel's to refuse, and the connection
 * stays where it is.
 */
#include "pair.h"

#include <sys/sendfile.h>

int main(void)
{
    int p[2], pipes[2], other[2], gone;
    off_t at = 0;

    must(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, other) == 0, "pipe");
    must(write(pipes[1], "in a pipe", 9) == 9 && write(other[1], "a socket", 8) == 8, "write");
    gone = dup(pipes[0]);
    close(gone);
    tcp_pair(p);
    on_rail(p);
    SHOW(sendfile(p[0], pipes[0], NULL, 9));
    SHOW(sendfile(p[0], pipes[0], &at, 9));
    SHOW(sendfile(p[0], other[0], NULL, 8));
    SHOW(sendfile(p[0], gone, NULL, 8));
    if (mode_rail()) {
        unsigned long long before = tcp_sent(p[0]);

        pass(p, 0);
        if (tcp_sent(p[0]) != before)
            puts("it has left its rail");
    }
    return 0;
}
