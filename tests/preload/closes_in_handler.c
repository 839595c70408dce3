/*
 * closes_in_handler.c - a server that closes what it has accepted in a handler, which may have
 * interrupted malloc: nothing there asks for memory, nor gives any back, while the progress thread
 * is at work on other connections.
 */
#include "pair.h"

#include <pthread.h>
#include <signal.h>

enum { TIMES = 500, MESSAGES = 15 };

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t cnt, size_t size);
void *__libc_realloc(void *p, size_t size);
void __libc_free(void *p);

static _Thread_local volatile bool in_handler;
static _Atomic int calls;

static void counted(void)
{
    if (in_handler)
        calls++;
}

void *malloc(size_t size)
{
    counted();
    return __libc_malloc(size);
}

void *calloc(size_t nmemb, size_t size)
{
    counted();
    return __libc_calloc(nmemb, size);
}

void *realloc(void *ptr, size_t size)
{
    counted();
    return __libc_realloc(ptr, size);
}

void free(void *ptr)
{
    counted();
    __libc_free(ptr);
}

static int to_close, l;
static struct sockaddr_in at;
static _Atomic bool over;

static void handler(int sig)
{
    (void)sig;
    in_handler = true;
    close(to_close);
    in_handler = false;
}

static void talks(int p[2])
{
    for (int i = 0; i < MESSAGES; i++) {
        pass(p, 0);
        pass(p, 1);
    }
}

/* So that there is much to do for the progress thread. */
static void *others(void *unused)
{
    struct sockaddr_in here;
    int of = listener(&here), p[2];

    while (!over) {
        pair_at(of, &here, p);
        talks(p);
        close(p[1]);
        close(p[0]);
    }
    close(of);
    return unused;
}

static void one(int i)
{
    int p[2];

    pair_at(l, &at, p);
    talks(p);
    to_close = p[1];
    if (i % 2)
        raise(SIGUSR1);
    else
        pthread_kill(pthread_self(), SIGUSR1);
    close(p[0]);
}

int main(void)
{
    struct sigaction a = {.sa_handler = handler};
    pthread_t t;

    must(sigaction(SIGUSR1, &a, NULL) == 0, "sigaction");
    l = listener(&at);
    must(pthread_create(&t, NULL, others, NULL) == 0, "thread");
    for (int i = 0; i < TIMES; i++)
        one(i);
    over = true;
    must(pthread_join(t, NULL) == 0, "join");
    printf("calls for memory: %d\n", calls);
    return 0;
}
