/*
 * restarted_sendfile.c - a sendfile that has sent something ends for a handler, also one that restarts calls, where nobody
 * reads: on a rail too, whose ring stays full.
 */
#include "pair.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/time.h>

enum { LENGTH = 64 << 20 };

static void nothing(int sig)
{
    (void)sig;
}

int main(int argc, char **argv)
{
    struct sigaction act = {.sa_handler = nothing, .sa_flags = SA_RESTART};
    const struct itimerval every = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
    int in = memfd_create("zeros", MFD_CLOEXEC), p[2];
    ssize_t n;

    (void)argc;
    if (!getenv("RAILSOCK_STALL")) { /* else TCP's room ends it */
        setenv("RAILSOCK_STALL", "0", 1);
        execv("/proc/self/exe", argv);
    }
    must(ftruncate(in, LENGTH) == 0, "ftruncate");
    tcp_pair(p);
    on_rail(p);
    sigaction(SIGALRM, &act, NULL);
    for (int i = 0; i < 3; i++) {
        SHOW(setitimer(ITIMER_REAL, &every, NULL));
        n = sendfile(p[0], in, NULL, LENGTH);
        setitimer(ITIMER_REAL, &never, NULL);
        printf("%s\n", n > 0 && n < LENGTH ? "a part"
                       : n < 0             ? strerrorname_np(errno)
                                           : "all of it");
        for (ssize_t got = 0, r; got < n; got += r) {
            static char bytes[65536];

            r = recv(p[1], bytes, sizeof(bytes), 0);
            must(r > 0, "recv");
        }
    }
    return 0;
}
