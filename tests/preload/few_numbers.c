/*
 * few_numbers.c - a child that may have few descriptors from its first moment, as servers do that
 * give up their rights in a child: it goes on with its parent's connection, reads what the parent
 * has left in it, and gives it to another program.
 */
#include "say.h"

#include <signal.h>
#include <sys/resource.h>

static void few(rlim_t most)
{
    struct rlimit limit = {most, most};

    must(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
}

static void child_has(rlim_t most, bool unread, bool program)
{
    int p[2];
    pid_t pid;

    printf("-- %d descriptors%s%s\n", (int)most, unread ? ", bytes to read" : "",
           program ? ", a program" : "");
    fflush(stdout);
    tcp_pair(p);
    if (unread)
        deliver(p[1], p[0], "left unread");
    pid = fork();
    if (pid == 0) {
        alarm(120);
        few(most);
        if (program) {
            dup2(p[0], 0);
            dup2(p[0], 1);
            execl("/bin/sh", "sh", "-c", "echo from a program", (char *)NULL);
            _exit(9);
        }
        if (unread)
            hear(p[0], "child");
        must(write(p[0], "from the child", 14) == 14, "child's write");
        fflush(stdout);
        _exit(7);
    }
    close(p[0]);
    hear(p[1], "end");
    ended(pid);
    hear(p[1], "end of stream");
    close(p[1]);
}

int main(void)
{
    for (int i = 0; i < 2; i++) {
        child_has(i ? 64 : 512, false, false);
        child_has(i ? 64 : 512, true, false);
        child_has(i ? 64 : 512, false, true);
    }
    return 0;
}
