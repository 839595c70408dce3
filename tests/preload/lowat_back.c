/*
 * lowat_back.c - an accepted connection has its listener's SO_RCVLOWAT, which no rail honours, and
 * is used so; then its own program sets it back, and it boards as any other.
 */
#include "pair.h"

int main(void)
{
    struct sockaddr_in at;
    int l = listener(&at), p[2], low = 4;
    socklen_t len = sizeof(low);

    must(setsockopt(l, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)) == 0, "SO_RCVLOWAT");
    pair_at(l, &at, p);
    for (int i = 0; i < 200; i++) {
        pass(p, 0);
        pass(p, 1);
    }
    low = 1;
    must(setsockopt(p[1], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)) == 0, "SO_RCVLOWAT");
    must(getsockopt(p[1], SOL_SOCKET, SO_RCVLOWAT, &low, &len) == 0, "SO_RCVLOWAT");
    printf("SO_RCVLOWAT %d\n", low);
    on_rail(p);
    deliver(p[0], p[1], "there");
    deliver(p[1], p[0], "and back");
    return 0;
}
