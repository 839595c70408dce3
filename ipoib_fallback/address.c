/*
 * address.c - the two addresses of a socket, as the kernel says them and in words.
 */
#include "ipoib_fallback/address.h"

#include "ipoib_fallback/stream.h"
#include "rsock/sys.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

struct fb_pub_addr address_of(int fd, bool peer)
{
    struct sockaddr_storage ss = {0};
    socklen_t len = sizeof(ss);
    int r = peer ? sys_getpeername(fd, &ss, &len) : sys_getsockname(fd, &ss, &len);
    struct fb_pub_addr out = {0};

    if (r < 0)
        return out;
    if (ss.ss_family == AF_INET) {
        struct sockaddr_in *in = (struct sockaddr_in *)&ss;

        out.family = AF_INET;
        out.port = ntohs(in->sin_port);
        memcpy(out.addr, &in->sin_addr, 4);
    } else if (ss.ss_family == AF_INET6) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&ss;

        out.port = ntohs(in6->sin6_port);
        if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
            out.family = AF_INET;
            memcpy(out.addr, &in6->sin6_addr.s6_addr[12], 4);
        } else {
            out.family = AF_INET6;
            memcpy(out.addr, &in6->sin6_addr, 16);
        }
    }
    return out;
}

static void words(const struct fb_pub_addr *a, char *text, size_t size)
{
    char ip[INET6_ADDRSTRLEN];

    if (!a->family || !inet_ntop(a->family, a->addr, ip, sizeof(ip)))
        snprintf(text, size, "?");
    else
        snprintf(text, size, a->family == AF_INET6 ? "[%s]:%u" : "%s:%u", ip, a->port);
}

const char *address_who(const struct fb_pub *pub, int fd, char text[static FB_WHO])
{
    struct fb_pub_addr local = {0}, peer = {0};
    size_t n;

    if (pub) {
        local = pub->local;
        peer = pub->peer;
    }
    if (!local.family && fd >= 0)
        local = address_of(fd, false);
    if (!peer.family && fd >= 0)
        peer = address_of(fd, true);
    words(&local, text, FB_WHO / 2 - 4);
    n = strlen(text);
    memcpy(text + n, " with ", 6);
    words(&peer, text + n + 6, FB_WHO - n - 6);
    return text;
}

const char *fb_who(const struct fb_stream *s, int fd, char text[static FB_WHO])
{
    return address_who(s->pub, fd, text);
}
