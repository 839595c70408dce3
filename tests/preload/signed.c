/*
 * signed.c - a connection whose segments are signed (TCP-MD5, as BGP's are) stays with the kernel.
 */
#include "say.h"

static void sign(int fd, const struct sockaddr_in *peer)
{
    struct tcp_md5sig k = {.tcpm_keylen = 6};

    memcpy(&k.tcpm_addr, peer, sizeof(*peer));
    memcpy(k.tcpm_key, "secret", 6);
    SHOW(setsockopt(fd, IPPROTO_TCP, TCP_MD5SIG, &k, sizeof(k)));
}

int main(void)
{
    struct sockaddr_in at, any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int l = listener(&at), p[2];

    sign(l, &any);
    p[0] = socket(AF_INET, SOCK_STREAM, 0);
    sign(p[0], &at);
    must(connect(p[0], (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
    p[1] = accept(l, NULL, NULL);
    for (int i = 0; i < 500; i++) {
        pass(p, 0);
        pass(p, 1);
    }
    printf("by TCP: %d\n", tcp_sent(p[0]) >= 32000);
    return 0;
}
