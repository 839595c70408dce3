/*
 * timeouts.c - SO_RCVTIMEO and SO_SNDTIMEO: less than none, which the kernel takes, shows as
 * none, and ends calls at once; some; none; set before the connection is made, and after; and
 * of the listener's.
 */
#include "say.h"

#include <asm/socket.h>
#include <pthread.h>
#include <sys/time.h>

#include "../asleep.h"

static void set(int fd, int name, long seconds, long us)
{
    struct timeval tv = {seconds, us};
    socklen_t len = sizeof(tv);

    SHOW(setsockopt(fd, SOL_SOCKET, name, &tv, sizeof(tv)));
    SHOW(getsockopt(fd, SOL_SOCKET, name, &tv, &len));
    printf("%ld %d\n", (long)tv.tv_sec, tv.tv_usec > 0);
}

static void fill(int fd)
{
    static char bytes[65536];
    ssize_t n;

    do
        n = send(fd, bytes, sizeof(bytes), 0);
    while (n > 0);
    printf("full: %s\n", strerrorname_np(errno));
}

static _Atomic int reader;

static void *write_late(void *fd)
{
    until_it_sleeps(&reader);
    must(write(*(int *)fd, "late", 4) == 4, "write");
    return NULL;
}

/* As long as the kernel can say: longer than 64 bits of nanoseconds. */
static void ages(int p[2], int name)
{
    pthread_t t;

    set(p[0], name, 9223372036854, 775807);
    reader = gettid();
    must(pthread_create(&t, NULL, write_late, &p[1]) == 0, "pthread_create");
    hear(p[0], "ages");
    pthread_join(t, NULL);
}

static void receive(int p[2])
{
    char byte;

    for (int i = 0; i < 2; i++) {
        int name = i ? SO_RCVTIMEO_NEW : SO_RCVTIMEO_OLD;

        set(p[0], name, -1, 0);
        SHOW(recv(p[0], &byte, 1, 0));
        SHOW(read(p[0], &byte, 1));
        deliver(p[1], p[0], "here");
        hear(p[0], "less than none");
        set(p[0], name, 0, 20000);
        SHOW(recv(p[0], &byte, 1, 0));
        set(p[0], name, -5, 999999);
        SHOW(recv(p[0], &byte, 1, MSG_PEEK));
        ages(p, name);
        set(p[0], name, 0, 0);
        deliver(p[1], p[0], "there");
        hear(p[0], "none");
    }
    SHOW(setsockopt(p[0], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){-1, -1},
                    sizeof(struct timeval)));
}

static void exchange(int p[2], int times)
{
    char byte;

    for (int i = 0; i < times; i++) {
        must(write(p[1], "x", 1) == 1 && read(p[0], &byte, 1) == 1, "there");
        deliver(p[0], p[1], "y");
        must(read(p[1], &byte, 1) == 1, "back");
    }
}

/* If it were to board it would ask before `other` does, which was made when the listener had no
 * time-out, and boards. */
static void of_the_listener(int l, const struct sockaddr_in *at, int other[2])
{
    char byte;
    int p[2];

    puts("-- the listener's");
    set(l, SO_RCVTIMEO, -1, 0);
    pair_at(l, at, p);
    exchange(p, 200);
    on_rail(other);
    exchange(p, 200);
    SHOW(recv(p[1], &byte, 1, 0));
}

int main(void)
{
    struct sockaddr_in at;
    int l = listener(&at), p[2], other[2];
    char byte;

    alarm(200);
    pair_at(l, &at, other);
    tcp_pair(p);
    receive(p);
    set(p[0], SO_SNDTIMEO, -1, 0);
    fill(p[0]);
    close(p[0]);
    close(p[1]);

    puts("-- before");
    p[0] = socket(AF_INET, SOCK_STREAM, 0);
    set(p[0], SO_RCVTIMEO, -1, 0);
    must(connect(p[0], (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
    p[1] = accept(l, NULL, NULL);
    for (int i = 0; i < 200; i++) {
        must(write(p[0], "x", 1) == 1 && read(p[1], &byte, 1) == 1, "there");
        deliver(p[1], p[0], "y");
        must(read(p[0], &byte, 1) == 1, "back");
    }
    SHOW(recv(p[0], &byte, 1, 0));
    of_the_listener(l, &at, other);
    return 0;
}
