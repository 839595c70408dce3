/*
 * taken_numbers.c - a program puts its connection at one number after another, among them those
 * that the library has, which it does not get. The connection is on its rail afterwards.
 */
#include "pair.h"

enum { FIRST = 512, LAST = 560 };

int main(void)
{
    int p[2];

    tcp_pair(p);
    on_rail(p);
    for (int n = FIRST; n <= LAST; n++)
        if (dup2(p[0], n) == n)
            must(close(n) == 0, "close");
        else
            must(errno == EBADF, "dup2");
    on_rail(p);
    deliver(p[0], p[1], "there");
    deliver(p[1], p[0], "and back");
    puts("goes on");
    return 0;
}
