/*
 * names_nothing.c - closes whose bytes the other end has still to read, after which the library
 * keeps numbers of its own: none of them is a directory, by which the program could leave a root
 * that it changes later.
 */
#include "pair.h"

enum { CLOSES = 4, NUMBERS = 2048, LEFT = 10000 };

static int left_to_read(void)
{
    static const char bytes[LEFT];
    int p[2];

    tcp_pair(p);
    on_rail(p);
    must(write(p[0], bytes, LEFT) == LEFT && close(p[0]) == 0, "close");
    return p[1];
}

static int directories(void)
{
    int n = 0;

    for (int fd = 0; fd < NUMBERS; fd++)
        if (fchdir(fd) == 0)
            n++;
    return n;
}

int main(void)
{
    static char got[LEFT];
    int fd[CLOSES];

    for (int i = 0; i < CLOSES; i++)
        fd[i] = left_to_read();
    printf("directories: %d\n", directories());
    for (int i = 0; i < CLOSES; i++) {
        must(recv(fd[i], got, LEFT, MSG_WAITALL) == LEFT, "recv");
        printf("the end is %zd\n", read(fd[i], got, 1));
        close(fd[i]);
    }
    printf("directories: %d\n", directories());
    return 0;
}
