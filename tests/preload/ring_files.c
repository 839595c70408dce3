/*
 * ring_files.c - a program that uses io_uring for files alone, and says so: its streams board,
 * those that were there before the ring as well as later ones, whoever has made it. One that the
 * ring has read from all the same stays on TCP.
 */
#include "pair.h"
#include "ring.h"

#include <fcntl.h>

/* Its two ends do not agree on what has passed. */
static void all_the_same(long ring, struct io_uring_params *q)
{
    char sent[64] = "", got[64] = "";
    unsigned long long before = 0, last;
    struct sockaddr_in at;
    int l = listener(&at), p[2], wrong = 0;

    pair_at(l, &at, p);
    must(write(p[0], "for the ring", 12) == 12, "write");
    printf("%ld [%s]\n", ring_read((int)ring, q, p[1], got, 12), got);
    for (int i = 0; i < 300; i++) {
        snprintf(sent, sizeof(sent), "piece %d", i);
        must(write(p[0], sent, sizeof(sent)) == sizeof(sent), "write");
        must(recv(p[1], got, sizeof(got), MSG_WAITALL) == sizeof(got), "recv");
        wrong += memcmp(sent, got, sizeof(got)) != 0;
        pass(p, 1);
        last = before;
        before = tcp_sent(p[0]);
    }
    printf("wrong %d, by TCP %d\n", wrong, before != last);
}

int main(int argc, char **argv)
{
    struct io_uring_params q;
    char buf[8] = "";
    int p[3][2], file;
    long ring;

    (void)argc;
    if (!getenv("RAILSOCK_IO_URING")) {
        setenv("RAILSOCK_IO_URING", "files", 1);
        execv("/proc/self/exe", argv);
        give_up("exec");
    }
    /* Before any stream: a look at all numbers is good for a while (pl_foreign.c). */
    ring = ring_new(&q);
    must(ring >= 0, "io_uring_setup");
    file = open("/proc/self/exe", O_RDONLY);
    printf("%ld %.3s\n", ring_read((int)ring, &q, file, buf, 4), buf + 1);
    tcp_pair(p[0]);
    tcp_pair(p[1]);
    memset(&q, 0, sizeof(q));
    ring = syscall(SYS_io_uring_setup, 4, &q);
    must(ring >= 0, "io_uring_setup");
    tcp_pair(p[2]);
    for (int i = 0; i < 3; i++) {
        on_rail(p[i]);
        pass(p[i], 0);
        pass(p[i], 1);
    }
    puts("three streams");
    all_the_same(ring, &q);
    return 0;
}
