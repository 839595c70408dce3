/*
 * shut.c - splice after shutdown(SHUT_RDWR), with more unread on a rail than could come by TCP any
 * more: it takes what is there.
 */
#include "pair.h"

enum { MUCH = 200000 };

static char byte_at(size_t i)
{
    return (char)('a' + i % 251 % 26);
}

int main(void)
{
    static char out[MUCH], back[20000];
    size_t sent = 0, got = 0;
    ssize_t n;
    int p[2], to[2];

    for (size_t i = 0; i < MUCH; i++)
        out[i] = byte_at(i);
    tcp_pair(p);
    must(pipe(to) == 0, "pipe");
    while (sent < MUCH && (n = send(p[0], out + sent, MUCH - sent, MSG_DONTWAIT)) > 0)
        sent += (size_t)n;
    SHOW(shutdown(p[1], SHUT_RDWR));
    /* As much at once as the pipe takes; then in pieces. */
    n = splice(p[1], NULL, to[1], NULL, sizeof(back), 0);
    must(n == sizeof(back), "all that is asked for");
    do {
        must(read(to[0], back, (size_t)n) == n, "read");
        for (ssize_t i = 0; i < n; i++)
            must(back[i] == byte_at(got + (size_t)i), "the bytes as sent");
        got += (size_t)n;
    } while ((n = splice(p[1], NULL, to[1], NULL, 4096, 0)) > 0);
    /* On TCP some are still at the sender, and are lost. */
    if (getenv("PAIR_WARM") && mode_rail() && (got < sent || n < 0))
        printf("%zu bytes of %zu, then %zd\n", got, sent, n);
    return 0;
}
