/*
 * another_file.c - a file's number that becomes another file's while sendfile waits for room: what
 * is sent is the first one's, and the second one's position stays where it is.
 */
#include "pair.h"

#include <pthread.h>
#include <sys/sendfile.h>

enum { SIZE = 8 << 20 };

static _Atomic int sleeper;
static int p[2], in;

static int file_of(char letter, size_t n)
{
    static char bytes[65536];
    char name[] = "/tmp/another_file.XXXXXX";
    int fd = mkstemp(name);

    must(fd >= 0 && unlink(name) == 0, "mkstemp");
    memset(bytes, letter, sizeof(bytes));
    for (; n > 0; n -= sizeof(bytes))
        must(write(fd, bytes, sizeof(bytes)) == sizeof(bytes), "write");
    must(lseek(fd, 0, SEEK_SET) == 0, "lseek");
    return fd;
}

static void *sends(void *unused)
{
    (void)unused;
    sleeper = gettid();
    must(sendfile(p[0], in, NULL, SIZE) > 0, "sendfile");
    must(shutdown(p[0], SHUT_WR) == 0, "shutdown");
    return NULL;
}

int main(void)
{
    size_t others = 0;
    pthread_t t;
    char got[65536];
    ssize_t n;
    int b;

    alarm(120);
    tcp_pair(p);
    on_rail(p);
    b = file_of('b', SIZE);
    in = file_of('a', SIZE);
    must(pthread_create(&t, NULL, sends, NULL) == 0, "thread");
    until_it_sleeps(&sleeper);
    must(dup2(b, in) == in, "dup2");
    while ((n = recv(p[1], got, sizeof(got), 0)) > 0)
        for (ssize_t i = 0; i < n; i++)
            others += got[i] != 'a';
    must(n == 0 && pthread_join(t, NULL) == 0, "join");
    printf("%zu bytes of another file, which is at %ld\n", others, (long)lseek(b, 0, SEEK_CUR));
    return 0;
}
