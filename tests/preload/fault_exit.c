/*
 * fault_exit.c - a buffer that is none: TCP says EFAULT, on a rail the program gets SIGSEGV. A
 * handler that ends the process ends it, though it has interrupted a call.
 */
#include "say.h"

#include <signal.h>
#include <sys/mman.h>

static void die(int sig)
{
    (void)sig;
    _exit(7);
}

static void child(bool sends)
{
    void *none = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int p[2];
    ssize_t n;

    signal(SIGSEGV, die);
    tcp_pair(p);
    on_rail(p);
    deliver(p[1], p[0], "some bytes");
    n = sends ? send(p[0], none, 5000, 0) : recv(p[0], none, 5000, 0);
    _exit(n < 0 && errno == EFAULT ? 7 : 1);
}

int main(void)
{
    for (int sends = 0; sends < 2; sends++) {
        pid_t pid = fork();

        if (pid == 0)
            child(sends);
        ended(pid);
    }
    return 0;
}
