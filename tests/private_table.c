/*
 * private_table.c - why the library's thread shares the program's table of descriptors
 * (rsock/README.md): what a table of its own would mean, shown with the kernel alone. The
 * library is not in this.
 *
 *   private_table        numbers and copies
 *   private_table rdma   what is made of an RDMA device in such a thread
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <linux/close_range.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    printf("not ok private_table: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void show(bool ok, const char *name)
{
    printf("%s private_table.%s\n", ok ? "ok" : "not ok", name);
    if (!ok)
        exit(1);
}

/* ---- the thread with a table of its own */

static sem_t ready, over;
static int made, copy_of;

/* From here on nothing of the program's is in it, and nothing that is opened in it is in
 * the program's. */
static void take_table(void)
{
    must(syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_UNSHARE) == 0, "close_range");
}

static void *with_numbers(void *pidfd)
{
    int copy;

    take_table();
    made = eventfd(0, EFD_CLOEXEC);
    must(made >= 0, "eventfd");
    sem_post(&ready);
    sem_wait(&over);
    /* To watch a socket of the program's, the thread needs a number of its own for it. */
    copy = (int)syscall(SYS_pidfd_getfd, *(int *)pidfd, copy_of, 0);
    must(copy >= 0, "pidfd_getfd");
    sem_post(&ready);
    sem_wait(&over);
    close(copy);
    sem_post(&ready);
    return NULL;
}

static void wait_for(sem_t *s)
{
    while (sem_wait(s))
        ;
}

static void connected(int p[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int l = socket(AF_INET, SOCK_STREAM, 0);

    must(bind(l, (struct sockaddr *)&at, len) == 0 && listen(l, 1) == 0, "listen");
    getsockname(l, (struct sockaddr *)&at, &len);
    p[0] = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(p[0], (struct sockaddr *)&at, len) == 0, "connect");
    p[1] = accept(l, NULL, NULL);
    must(p[1] >= 0, "accept");
    close(l);
}

static bool ended(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLRDHUP};

    return poll(&p, 1, ms) == 1 && p.revents & POLLRDHUP;
}

static void numbers_and_copies(void)
{
    int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0), kept, p[2];
    uint64_t one = 1;
    pthread_t t;

    must(pidfd >= 0, "pidfd_open");
    kept = dup2(pidfd, 0); /* of those that the thread keeps */
    must(kept == 0 && close(pidfd) == 0, "dup2");
    must(pthread_create(&t, NULL, with_numbers, &kept) == 0, "pthread_create");
    wait_for(&ready);
    /* Who wakes such a thread by its eventfd, or a peer's bell that it was given, has no
     * number to write to. */
    show(write(made, &one, sizeof(one)) == -1 && errno == EBADF,
         "other_threads_cannot_use_what_it_opens");
    connected(p);
    copy_of = p[0];
    sem_post(&over);
    wait_for(&ready);
    /* A close that no wrapper sees; on loopback FIN is there when it returns. */
    must(syscall(SYS_close, p[0]) == 0, "close");
    show(!ended(p[1], 0), "a_copy_keeps_a_closed_connection_open");
    sem_post(&over);
    wait_for(&ready);
    show(ended(p[1], 20000), "until_the_copy_is_closed");
    pthread_join(t, NULL);
}

/* ---- RDMA */

static struct ibv_cq *cq;

static void *with_device(void *arg)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_comp_channel *channel;
    struct ibv_context *ctx;

    (void)arg;
    must(list && list[0], "no RDMA device");
    take_table();
    ctx = ibv_open_device(list[0]);
    channel = ctx ? ibv_create_comp_channel(ctx) : NULL;
    cq = channel ? ibv_create_cq(ctx, 16, NULL, channel, 0) : NULL;
    must(cq != NULL, "no completion queue");
    must(ibv_req_notify_cq(cq, 0) == 0, "the thread itself cannot arm it");
    sem_post(&ready);
    sem_wait(&over);
    return NULL;
}

/* The library's wire arms and posts in the program's threads; with rxe and siw each of these is a
 * call on the device's number. */
static void rdma(void)
{
    pthread_t t;
    int r;

    must(pthread_create(&t, NULL, with_device, NULL) == 0, "pthread_create");
    wait_for(&ready);
    r = ibv_req_notify_cq(cq, 0);
    show(r == EBADF || (r && errno == EBADF), "other_threads_cannot_use_its_rdma_device");
    sem_post(&over);
    pthread_join(t, NULL);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    sem_init(&ready, 0, 0);
    sem_init(&over, 0, 0);
    if (argc > 1 && strcmp(argv[1], "rdma") == 0)
        rdma();
    else
        numbers_and_copies();
    return 0;
}
