/*
 * fork_chain.c - a server that renews itself by forking: each generation serves a connection,
 * forks the next one and ends. The last one has not more descriptors and files in its memory than
 * the first children had.
 */
#include "say.h"

#include <dirent.h>
#include <sys/wait.h>

enum { GENERATIONS = 40, FEW = 12 };

static struct sockaddr_in at;
static int l;

static int high_numbers(void)
{
    DIR *d = opendir("/proc/self/fd");
    struct dirent *e;
    int n = 0;

    must(d != NULL, "/proc/self/fd");
    while ((e = readdir(d)))
        n += atoi(e->d_name) >= 512;
    closedir(d);
    return n;
}

static void serve(void)
{
    for (int i = 0; i <= GENERATIONS; i++) {
        int fd = accept(l, NULL, NULL);

        echo_words(fd);
        if (i == GENERATIONS)
            printf("%s numbers, %s files\n", high_numbers() < FEW ? "few" : "many",
                   mapped_lines("rw-s") < FEW ? "few" : "many");
        fflush(stdout);
        close(fd);
        if (i < GENERATIONS && fork() != 0)
            _exit(0);
    }
    _exit(0);
}

int main(void)
{
    char byte;
    pid_t first;

    alarm(120);
    l = listener(&at);
    first = fork();
    if (first == 0)
        serve();
    for (int i = 0; i <= GENERATIONS; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        must(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
        words_by_rail(fd);
        must(read(fd, &byte, 1) == 0, "end");
        close(fd);
        if (i == 0)
            ended(first);
    }
    return 0;
}
