/*
 * aio.c - POSIX asynchronous I/O on connections. glibc does it in threads of its own, by calls that
 * nobody can intercept: a stream is on TCP before the first one.
 */
#include "pair.h"

#include <aio.h>
#include <sched.h>

enum { PART = 1000, PARTS = 40 };

static char pattern(size_t i)
{
    return (char)('a' + i % 23);
}

static ssize_t done(struct aiocb *cb)
{
    const struct aiocb *list[] = {cb};
    int e;

    while ((e = aio_error(cb)) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    return e ? -e : aio_return(cb);
}

/* A read that is asked for before there is anything. */
static void before_the_bytes(int p[2])
{
    char buf[64] = "";
    struct aiocb cb = {.aio_fildes = p[1], .aio_buf = buf, .aio_nbytes = sizeof(buf)};
    ssize_t n;

    must(aio_read(&cb) == 0, "aio_read");
    must(write(p[0], "for the one who waits", 21) == 21, "write");
    n = done(&cb);
    printf("aio_read: %zd [%s]\n", n, buf);
}

/* Parts in turn by aio_write, read by recv. */
static void written(int p[2])
{
    static char buf[PART], got[PART * PARTS];

    for (size_t i = 0; i < PARTS; i++) {
        struct aiocb cb = {.aio_fildes = p[0], .aio_buf = buf, .aio_nbytes = PART};

        for (size_t j = 0; j < PART; j++)
            buf[j] = pattern(i * PART + j);
        must(aio_write(&cb) == 0 && done(&cb) == PART, "aio_write");
    }
    must(recv(p[1], got, sizeof(got), MSG_WAITALL) == sizeof(got), "recv");
    for (size_t i = 0; i < sizeof(got); i++)
        must(got[i] == pattern(i), "what was written");
    puts("aio_write: whole");
}

/* Both ends in one list. */
static void listed(int p[2])
{
    char to[32] = "", from[32] = "of a list";
    struct aiocb read_it = {
        .aio_fildes = p[0], .aio_buf = to, .aio_nbytes = sizeof(to), .aio_lio_opcode = LIO_READ};
    struct aiocb write_it = {
        .aio_fildes = p[1], .aio_buf = from, .aio_nbytes = 9, .aio_lio_opcode = LIO_WRITE};
    struct aiocb *list[] = {&read_it, &write_it};

    must(lio_listio(LIO_WAIT, list, 2, NULL) == 0, "lio_listio");
    printf("lio_listio: %zd %zd [%s]\n", aio_return(&write_it), aio_return(&read_it), to);
}

int main(void)
{
    for (int i = 0; i < 3; i++) {
        char c;
        int p[2];

        tcp_pair(p);
        switch (i) {
        case 0:
            before_the_bytes(p);
            break;
        case 1:
            written(p);
            break;
        default:
            listed(p);
        }
        for (int j = 0; j < 20; j++) {
            pass(p, 0);
            pass(p, 1);
        }
        close(p[0]);
        printf("end: %zd\n", read(p[1], &c, 1));
        close(p[1]);
    }
    return 0;
}
