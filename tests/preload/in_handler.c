/*
 * in_handler.c - a connection that only a signal handler uses, which may have interrupted
 * malloc: nothing is started there. Then it is used outside of handlers, also after one
 * that has jumped out.
 */
#include "say.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>

static int p[2];
static sigjmp_buf out;
static volatile bool jumps;

static int threads(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void handler(int sig)
{
    (void)sig;
    for (int i = 0; i < 2; i++)
        pass(p, i);
    if (jumps)
        siglongjmp(out, 1);
}

int main(void)
{
    struct sigaction a = {.sa_handler = handler};
    struct sockaddr_in at;
    int l = listener(&at);

    pair_at(l, &at, p);
    must(sigaction(SIGUSR1, &a, NULL) == 0, "sigaction");
    for (int i = 0; i < 300; i++)
        raise(SIGUSR1);
    printf("threads: %d\n", threads());
    jumps = true;
    if (sigsetjmp(out, 1) == 0)
        raise(SIGUSR1);
    talk(p, "outside of it   ");
    on_rail(p);
    talk(p, "and after it    ");
    return 0;
}
