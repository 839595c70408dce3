/*
 * forked_together.c - threads that fork at the same time: each child has as many sockets beside the
 * program's as every other, so none has what the library made for another one.
 */
#include "pair.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { THREADS = 4, FORKS = 100, ABOVE = 512 };

static _Atomic int least = 1 << 20, most = -1;

static int sockets(void)
{
    DIR *all = opendir("/proc/self/fd");
    const struct dirent *of;
    int n = 0;

    must(all != NULL, "/proc/self/fd");
    while ((of = readdir(all))) {
        char path[300], is[16] = "";

        snprintf(path, sizeof(path), "/proc/self/fd/%s", of->d_name);
        n += atoi(of->d_name) >= ABOVE && readlink(path, is, sizeof(is) - 1) > 0 &&
             strncmp(is, "socket:", 7) == 0;
    }
    closedir(all);
    return n;
}

static void *forks(void *unused)
{
    (void)unused;
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        int status, n;

        if (pid == 0)
            _exit(sockets());
        must(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status), "fork");
        n = WEXITSTATUS(status);
        for (int was = least; n < was && !atomic_compare_exchange_weak(&least, &was, n);)
            ;
        for (int was = most; n > was && !atomic_compare_exchange_weak(&most, &was, n);)
            ;
    }
    return NULL;
}

int main(void)
{
    struct sockaddr_in at;
    int l = listener(&at), p[2];
    pthread_t t[THREADS];

    alarm(120);
    pair_at(l, &at, p);
    on_rail(p);
    for (int i = 0; i < THREADS; i++)
        must(pthread_create(&t[i], NULL, forks, NULL) == 0, "pthread_create");
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    puts(least == most ? "each has as many" : "one has another's");
    return 0;
}
