/*
 * closed_unseen.c - a connection whose number is closed where the library cannot see it, by
 * an instruction of the program's own; and then the number is another connection's, whose
 * bytes are its own.
 */
#include "pair.h"

static void close_unseen(int fd)
{
#if defined(__x86_64__)
    long r;

    __asm__ volatile("syscall" : "=a"(r) : "0"(SYS_close), "D"(fd) : "rcx", "r11", "memory");
#else
    register long nr __asm__("x8") = SYS_close;
    register long r __asm__("x0") = fd;

    __asm__ volatile("svc 0" : "+r"(r) : "r"(nr) : "memory");
#endif
}

int main(void)
{
    struct sockaddr_in at;
    int l = listener(&at), p[2], q[2], same = 0;
    char buf[64];

    for (int i = 0; i < 20; i++) {
        pair_at(l, &at, p);
        on_rail(p);
        close_unseen(p[0]);
        pair_at(l, &at, q);
        for (int j = 0; q[0] != p[0] && j < TRIES_FOR_A_NUMBER; j++) {
            close(q[0]);
            close(q[1]);
            pair_at(l, &at, q);
        }
        same += q[0] == p[0];
        for (int j = 0; j < 400; j++) {
            pass(q, 0);
            pass(q, 1);
            if (j == 100)
                recv(p[1], buf, sizeof(buf), MSG_DONTWAIT); /* its library has to do with the end */
        }
        close(p[1]);
        for (int j = 0; j < 100; j++) {
            pass(q, 0);
            pass(q, 1);
        }
        usleep(20000); /* what is done later is done to the number */
        pass(q, 0);
        pass(q, 1);
        close(q[0]);
        printf("end: %zd\n", recv(q[1], buf, sizeof(buf), 0));
        close(q[1]);
    }
    printf("the same number: %d\n", same);
    return 0;
}
