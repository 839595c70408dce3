/*
 * small_limits.c - what the library does for itself does not end a program that may have no long
 * files, or whose stderr nobody reads.
 */
#include "say.h"

#include <signal.h>
#include <sys/resource.h>

int main(int argc, char **argv)
{
    struct rlimit none = {65536, 65536};
    int p[2], err[2];

    if (argc < 2) {
        must(pipe(err) == 0 && dup2(err[1], 2) == 2, "pipe");
        close(err[0]);
        close(err[1]);
        setenv("RAILSOCK_LOG", "debug", 1);
        setenv("RAILSOCK_SPIN", "not a number", 1); /* which is complained of at the start */
        execl(argv[0], argv[0], "again", (char *)NULL);
        _exit(99);
    }
    must(setrlimit(RLIMIT_FSIZE, &none) == 0, "setrlimit");
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in at;
        int l = listener(&at);

        pair_at(l, &at, p);
        for (int j = 0; j < 100; j++) {
            pass(p, 0);
            pass(p, 1);
        }
        talk(p, "it lives        ");
        close(p[0]);
        close(p[1]);
        close(l);
    }
    return 0;
}
