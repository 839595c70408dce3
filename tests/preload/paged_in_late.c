/*
 * paged_in_late.c - a thread sends from memory that is long in coming (here userfaultfd; a file on
 * another host), and its peer leaves. Others' connections go on all that while.
 */
#include "pair.h"

#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/mman.h>

#include "../asleep.h"

enum { SIZE = 65536 };

static _Atomic int sender, reader;
static char *memory;

static void *sends(void *fd)
{
    sender = gettid();
    /* However much of it goes, and where. */
    return (void *)(size_t)(send(*(int *)fd, memory, SIZE, MSG_NOSIGNAL) < 0);
}

static void *reads(void *fd)
{
    char byte;

    reader = gettid();
    SHOW(recv(*(int *)fd, &byte, 1, 0));
    return NULL;
}

int main(void)
{
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register all = {.mode = UFFDIO_REGISTER_MODE_MISSING};
    struct uffdio_zeropage zero;
    int p[2], q[2], r[2], fault = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    pthread_t t[2];

    if (fault < 0) { /* not for this user, or no such kernel */
        puts("no userfaultfd");
        return 0;
    }
    memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    all.range.start = (size_t)memory;
    all.range.len = SIZE;
    must(ioctl(fault, UFFDIO_API, &api) == 0 && ioctl(fault, UFFDIO_REGISTER, &all) == 0,
         "userfaultfd");
    tcp_pair(p);
    tcp_pair(q);
    on_rail(p);
    on_rail(q);
    must(pthread_create(&t[0], NULL, sends, &p[0]) == 0, "pthread_create");
    until_it_sleeps(&sender);
    close(p[1]);
    must(pthread_create(&t[1], NULL, reads, &q[0]) == 0, "pthread_create");
    until_it_sleeps(&reader);
    usleep(100000); /* the library has seen by now that the other's peer has left */
    close(q[1]);
    pthread_join(t[1], NULL);
    /* A new one, which needs the library's thread. */
    tcp_pair(r);
    on_rail(r);
    zero = (struct uffdio_zeropage){.range = all.range};
    must(ioctl(fault, UFFDIO_ZEROPAGE, &zero) == 0, "UFFDIO_ZEROPAGE");
    pthread_join(t[0], NULL);
    puts("it has come");
    return 0;
}
