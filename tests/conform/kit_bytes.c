/*
 * kit_bytes.c - bytes of a known pattern into a connection and out of it, as many as there is
 * room for. See kit.h.
 */
#include "tests/conform/kit.h"

/* Its period is prime, so that no buffer size hides a shift. */
unsigned char pattern(size_t i)
{
    return (unsigned char)('a' + i % 251 % 26);
}

/* How much one send of n bytes of the pattern took. */
static size_t offer(int fd, size_t at, size_t n)
{
    static char bytes[16384];
    ssize_t did;

    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)pattern(at + i);
    did = send(fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    return did > 0 ? (size_t)did : 0;
}

/* Of the window that the peer has announced nothing is left. Before that the kernel will send some
 * more, by a timer. */
static bool window_shut(int fd)
{
    enum { SND_WND = 228 }; /* tcpi_snd_wnd, which libc's header does not have */
    unsigned ti[64];
    socklen_t len = sizeof(ti);

    memset(ti, 0, sizeof(ti));
    must(getsockopt(fd, IPPROTO_TCP, TCP_INFO, ti, &len) == 0, "TCP_INFO");
    return ti[SND_WND / sizeof(*ti)] == 0;
}

/* ms. Who finds a window shut probes it after 204, and finds some more room in its own buffer
 * at the answer. */
enum { PROBED = 250 };

void fill(int fd, size_t *at)
{
    struct pollfd p = {fd, POLLOUT, 0};
    size_t begin = *at, did;
    int stalled = 0, tries = 0;

    do {
        while ((did = offer(fd, *at, 16384)) > 0)
            *at += did;
        /* A stalled rail gives way to TCP's larger buffers after 50 ms. And TCP takes a few bytes
         * where it does not yet say POLLOUT. */
        if ((poll(&p, 1, PROBED) == 1 && p.revents == POLLOUT) ||
            (on_rail(fd, true, false, true) && ++stalled < PATIENCE / PROBED))
            continue;
        did = offer(fd, *at, 1);
        *at += did;
        if (!did && (on_rail(fd, true, false, true) || window_shut(fd) || ++tries == 25))
            break;
    } while (*at - begin < 64u << 20);
}

void put(int fd, size_t from, size_t n)
{
    static char bytes[16384];

    while (n > 0) {
        size_t some = n < sizeof(bytes) ? n : sizeof(bytes);
        ssize_t did;

        for (size_t i = 0; i < some; i++)
            bytes[i] = (char)pattern(from + i);
        did = send(fd, bytes, some, MSG_NOSIGNAL);
        must(did > 0, "put");
        from += (size_t)did;
        n -= (size_t)did;
    }
}

bool take(int fd, size_t from, size_t n)
{
    static unsigned char bytes[16384];

    while (n > 0) {
        ssize_t did = recv(fd, bytes, n < sizeof(bytes) ? n : sizeof(bytes), 0);

        if (did <= 0) {
            if (did < 0 || n < SIZE_MAX / 2)
                say("take: %s", did == 0 ? "end of stream" : strerrorname_np(errno));
            return did == 0;
        }
        for (ssize_t i = 0; i < did; i++) {
            if (bytes[i] != pattern(from + (size_t)i)) {
                say("take: a wrong byte");
                return false;
            }
        }
        from += (size_t)did;
        n -= (size_t)did;
    }
    return true;
}
