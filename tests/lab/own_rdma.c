/*
 * own_rdma.c - own_rdma uses|linked ADDRESS LOG: a program that is linked to librdmacm, has TCP
 * connections with itself, and changes its user. One that uses RDMA itself keeps what it has as it
 * was, and its connection stays on TCP; one that only could boards. LOG is the library's log. Run
 * by identity_lab_test.sh.
 */
#include "../preload/pair.h"

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>

static bool logged(const char *path, const char *text)
{
    static char log[1 << 20];
    int fd = open(path, O_RDONLY);
    ssize_t n;

    must(fd >= 0, "open");
    n = read(fd, log, sizeof(log) - 1);
    must(n >= 0, "read");
    close(fd);
    log[n] = 0;
    return strstr(log, text) != NULL;
}

static struct ibv_context *open_device(struct sockaddr_in at)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;

    at.sin_port = 0;
    must(channel && rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
    must(rdma_bind_addr(id, (struct sockaddr *)&at) == 0 && id->verbs, "rdma_bind_addr");
    return id->verbs;
}

/* Round trips until the log says that they go by a rail, or why they do not. */
static void passes(int p[2], const char *log)
{
    while (!logged(log, "sending on") && !logged(log, "has an RDMA device open itself")) {
        pass(p, 0);
        pass(p, 1);
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof(at);
    int l = socket(AF_INET, SOCK_STREAM, 0), p[2], fds[2] = {0}, flags = 0;
    struct ibv_context *ctx = NULL;
    struct ibv_pd *pd;

    must(argc == 4 && inet_pton(AF_INET, argv[2], &at.sin_addr) == 1,
         "own_rdma uses|linked ADDRESS LOG");
    must(bind(l, (struct sockaddr *)&at, len) == 0 && listen(l, 1) == 0, "listen");
    must(getsockname(l, (struct sockaddr *)&at, &len) == 0, "getsockname");
    alarm(100);
    if (strcmp(argv[1], "uses") == 0) {
        ctx = open_device(at);
        fds[0] = ctx->cmd_fd;
        fds[1] = ctx->async_fd;
        flags = fcntl(ctx->async_fd, F_GETFL);
    }
    pair_at(l, &at, p);
    passes(p, argv[3]);
    must(logged(argv[3], "sending on") == !ctx, "the way it goes");
    if (!ctx)
        return 0;
    must(fds[0] == ctx->cmd_fd && fds[1] == ctx->async_fd, "the context's descriptors");
    must(fcntl(ctx->async_fd, F_GETFL) == flags, "the descriptor's flags");
    must(seteuid(1000) == 0, "seteuid");
    pass(p, 0);
    pd = ibv_alloc_pd(ctx);
    must(pd && ibv_dealloc_pd(pd) == 0, "ibv_alloc_pd");
    return 0;
}
