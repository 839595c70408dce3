/*
 * each_request.c - a server that changes its user for each request (seteuid): its connections stay on their rails, and as long as
 * there is nothing of RDMA the library's thread goes on.
 */
#include "pair.h"

#include <dirent.h>

enum { REQUESTS = 200 };

/* The number of the library's thread; 0: there is none. */
static int thread_of_library(void)
{
    char path[64], name[16];
    struct dirent *d;
    DIR *tasks = opendir("/proc/self/task");
    int found = 0;

    must(tasks != NULL, "/proc/self/task");
    while ((d = readdir(tasks))) {
        FILE *f;

        snprintf(path, sizeof(path), "/proc/self/task/%.20s/comm", d->d_name);
        f = fopen(path, "r");
        if (f && fgets(name, sizeof(name), f) && strcmp(name, "railsock\n") == 0)
            found = atoi(d->d_name);
        if (f)
            fclose(f);
    }
    closedir(tasks);
    return found;
}

int main(void)
{
    uid_t self = geteuid(), other = self ? self : 65533;
    unsigned long long sent;
    int p[2], thread;

    tcp_pair(p);
    thread = thread_of_library();
    sent = tcp_sent(p[0]) + tcp_sent(p[1]);
    for (int i = 0; i < REQUESTS; i++) {
        pass(p, 0);
        must(seteuid(other) == 0, "seteuid");
        pass(p, 1);
        must(seteuid(self) == 0, "seteuid back");
    }
    if (thread && !getenv("PAIR_ADDRESS") && thread_of_library() != thread)
        puts("the library's thread is another one");
    if (mode_rail() && !getenv("PAIR_ADDRESS") && tcp_sent(p[0]) + tcp_sent(p[1]) != sent)
        puts("it has left its rail");
    /* What comes next is as it was. */
    pass(p, 0);
    pass(p, 1);
    printf("user: %d\n", geteuid() == self);
    close(p[0]);
    close(p[1]);
    return 0;
}
