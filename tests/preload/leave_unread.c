/*
 * leave_unread.c - all streams leave at one moment with bytes unread, which a receiver gets
 * afterwards: nothing is amiss with their peers.
 */
#include "pair.h"

enum { PAIRS = 8, PIECES = 5, BYTES = 40000, ALL = PIECES * BYTES };

static char bytes[BYTES];

static void receive(int fd)
{
    size_t have = 0;

    while (have < ALL) {
        ssize_t n = recv(fd, bytes, sizeof(bytes), 0);

        must(n > 0, "recv");
        for (ssize_t i = 0; i < n; i++)
            must(bytes[i] == (char)((have + (size_t)i) % BYTES % 251), "what was sent");
        have += (size_t)n;
    }
}

int main(void)
{
    struct sockaddr_in at;
    int l = listener(&at), p[PAIRS][2];

    for (int i = 0; i < PAIRS; i++) {
        pair_at(l, &at, p[i]);
        on_rail(p[i]);
    }
    for (int i = 0; i < BYTES; i++)
        bytes[i] = (char)(i % 251);
    for (int i = 0; i < PAIRS; i++)
        for (int k = 0; k < PIECES; k++)
            must(write(p[i][0], bytes, BYTES) == BYTES, "write");
    must(chroot("/") == 0 || errno == EPERM, "chroot");
    for (int i = 0; i < PAIRS; i++)
        receive(p[i][1]);
    for (int i = 0; i < PAIRS; i++) {
        pass(p[i], 0);
        pass(p[i], 1);
    }
    puts("all is there");
    return 0;
}
