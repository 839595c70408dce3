/*
 * log_on_stderr.c - a program whose number 2 is a connection, with a library that has much to say,
 * of its settings too: its peer reads what the program has written.
 */
#include "say.h"

int main(int argc, char **argv)
{
    char number[16];
    int a[2], p[2];

    if (argc < 2) {
        struct sockaddr_in at;
        int l = listener(&at);

        pair_at(l, &at, a);
        snprintf(number, sizeof(number), "%d", a[0]);
        must(dup2(a[1], 2) == 2, "dup2");
        setenv("RAILSOCK_LOG", "debug", 1);
        setenv("RAILSOCK_SPIN", "abc", 1);
        execl(argv[0], argv[0], number, (char *)NULL);
        _exit(99);
    }
    a[0] = atoi(argv[1]);
    tcp_pair(p);
    talk(p, "another one     ");
    must(write(2, "the program's own", 17) == 17, "write");
    hear(a[0], "peer of number 2");
    return 0;
}
