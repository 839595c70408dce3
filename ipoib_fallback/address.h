/*
 * address.h - the two addresses of a socket.
 */
#ifndef FB_ADDRESS_H
#define FB_ADDRESS_H

#include "ipoib_fallback/fb.h"

#include <stdbool.h>

/* Of the socket's own end or the peer's; family 0: the kernel does not say. IPv4 as such, also of
 * an IPv6 socket. Any thread. */
struct fb_pub_addr address_of(int fd, bool peer);

/* fb_who. pub: may have them, or be NULL. */
const char *address_who(const struct fb_pub *pub, int fd, char text[static FB_WHO]);

#endif
