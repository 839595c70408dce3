/*
 * write_floor.c - the least that a stream of bytes over RDMA WRITE can cost: a sender that copies
 * blocks into a registered ring and writes them into the receiver's ring, and a receiver that
 * copies them out. Both ends are processes of one host, of which the sender prints MB/s.
 *
 *   write_floor IP [WHAT]
 *
 *   plain   writes alone, as ib_write_bw: nothing is copied, and the receiver does nothing at all
 *   told    each write tells the receiver (WRITE WITH IMM), who polls his completion queue and
 *           tells of the room that he has again; nothing is copied
 *   copied  as told, and each block is copied in before its write and out after it, as for every
 *           program that calls send and recv; the default
 *   posted  as copied, but a second thread of the sender's posts the writes
 *
 * WHAT may be followed by the bytes of a block (65536) and of the ring (16 blocks). tools/measure
 * has it beside the rail.
 *
 * No more than that: no sockets, no calls that are intercepted, no sleeping, no end but
 * that of the process.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum { MOST = 256, WARM = 200, SIGNAL = 16 };
static const uint64_t nanoseconds = 2000000000u;

struct end {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    char *ring;               /* and behind it the word of credit */
    _Atomic uint64_t *credit; /* blocks that the receiver has done with */
    struct {
        uint64_t address;
        uint32_t key;
    } peer;
};

static bool tells, copies, threads;
static size_t block = 65536, blocks = 16, ring;

static void event(struct end *e, enum rdma_cm_event_type type, struct rdma_cm_id **id)
{
    struct rdma_cm_event *ev;

    must(rdma_get_cm_event(e->channel, &ev) == 0 && ev->event == type, "connection manager");
    if (id)
        *id = ev->id;
    if (ev->param.conn.private_data_len >= sizeof(e->peer))
        memcpy(&e->peer, ev->param.conn.private_data, sizeof(e->peer));
    rdma_ack_cm_event(ev);
}

static void receive_more(struct end *e)
{
    struct ibv_recv_wr wr = {.wr_id = 0}, *bad;

    must(ibv_post_recv(e->id->qp, &wr, &bad) == 0, "post_recv");
}

static struct rdma_conn_param ready(struct end *e)
{
    struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
    struct ibv_qp_init_attr qp = {.qp_type = IBV_QPT_RC,
                                  .cap = {.max_send_wr = MOST + SIGNAL,
                                          .max_recv_wr = 2 * MOST,
                                          .max_send_sge = 1,
                                          .max_recv_sge = 1}};
    static struct {
        uint64_t address;
        uint32_t key;
    } mine;

    e->cq = ibv_create_cq(e->id->verbs, 4 * MOST, NULL, NULL, 0);
    must(e->cq != NULL, "create_cq");
    qp.send_cq = qp.recv_cq = e->cq;
    must(rdma_create_qp(e->id, NULL, &qp) == 0, "create_qp");
    e->ring = mmap(NULL, ring + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(e->ring != MAP_FAILED, "mmap");
    memset(e->ring, 0, ring + 4096);
    e->credit = (_Atomic uint64_t *)(e->ring + ring);
    e->mr = ibv_reg_mr(e->id->pd, e->ring, ring + 4096,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    must(e->mr != NULL, "reg_mr");
    for (int i = 0; i < 2 * MOST; i++)
        receive_more(e);
    mine.address = (uint64_t)(uintptr_t)e->ring;
    mine.key = e->mr->rkey;
    param.private_data = &mine;
    param.private_data_len = sizeof(mine);
    return param;
}

static void write_to(struct end *e, size_t at, size_t n, enum ibv_wr_opcode how, unsigned flags)
{
    struct ibv_sge sge = {(uint64_t)(uintptr_t)e->ring + at, (uint32_t)n, e->mr->lkey};
    struct ibv_send_wr wr = {.opcode = how, .sg_list = &sge, .num_sge = 1, .send_flags = flags},
                       *bad;

    wr.wr.rdma.remote_addr = e->peer.address + at;
    wr.wr.rdma.rkey = e->peer.key;
    errno = ibv_post_send(e->id->qp, &wr, &bad);
    must(errno == 0, "post_send");
}

/* So many completions of his own writes. */
static uint64_t completed(struct end *e)
{
    struct ibv_wc wc[16];
    uint64_t n = 0;
    int got = ibv_poll_cq(e->cq, 16, wc);

    must(got >= 0, "poll_cq");
    for (int i = 0; i < got; i++) {
        must(wc[i].status == IBV_WC_SUCCESS, ibv_wc_status_str(wc[i].status));
        n += wc[i].opcode == IBV_WC_RDMA_WRITE;
    }
    return n;
}

/* ---- the receiver */

static void serve(struct end *e)
{
    char *mine = malloc(block);
    struct rdma_conn_param param;
    uint64_t done = 0, told = 0;
    struct ibv_wc wc;

    must(mine != NULL, "malloc");
    memset(mine, 0, block);
    event(e, RDMA_CM_EVENT_CONNECT_REQUEST, &e->id);
    param = ready(e);
    must(rdma_accept(e->id, &param) == 0, "accept");
    event(e, RDMA_CM_EVENT_ESTABLISHED, NULL);
    for (;;) {
        int got;

        if (!tells) {
            pause();
            continue;
        }
        got = ibv_poll_cq(e->cq, 1, &wc);
        must(got >= 0, "poll_cq");
        if (!got)
            continue;
        if (wc.status != IBV_WC_SUCCESS)
            _exit(0); /* the sender has gone */
        if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM)
            continue;
        if (copies)
            memcpy(mine, e->ring + done % blocks * block, block);
        receive_more(e);
        done++;
        if (done - told >= blocks / 4) {
            told = done;
            atomic_store(e->credit, done);
            write_to(e, ring, sizeof(uint64_t), IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
        }
    }
}

/* ---- the sender */

static _Atomic uint64_t copied; /* blocks that are in the ring */
static uint64_t written;        /* of those, have been posted */

static void post(struct end *e, uint64_t n)
{
    write_to(e, n % blocks * block, block, tells ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
             n % SIGNAL == SIGNAL - 1 ? IBV_SEND_SIGNALED : 0);
}

static void *poster(void *arg)
{
    for (;;)
        if (atomic_load_explicit(&copied, memory_order_acquire) > written)
            post(arg, written++);
    return NULL;
}

static void stream(struct end *e)
{
    char *mine = malloc(block);
    uint64_t since = 0, n = 0, first = 0, finished = 0;
    pthread_t thread;

    must(mine != NULL, "malloc");
    memset(mine, 1, block);
    if (threads)
        must(pthread_create(&thread, NULL, poster, e) == 0, "thread");
    for (;; n++) {
        /* Room in his ring, and in the queue of writes. */
        while ((tells && n - atomic_load_explicit(e->credit, memory_order_acquire) >= blocks) ||
               n - finished >= (tells ? MOST : blocks))
            finished += completed(e) * SIGNAL;
        finished += completed(e) * SIGNAL;
        if (n == WARM) {
            since = now();
            first = n;
        }
        if (n > WARM && n % 64 == 0 && now() - since > nanoseconds)
            break;
        if (copies)
            memcpy(e->ring + n % blocks * block, mine, block);
        if (threads)
            atomic_store_explicit(&copied, n + 1, memory_order_release);
        else
            post(e, n);
    }
    printf("%.1f\n", (double)(n - first) * (double)block / 1e6 / ((double)(now() - since) / 1e9));
    fflush(stdout);
}

/* In a process that has opened nothing before it was forked: a device may be used by the process
 * alone that has opened it. */
static void listens(struct sockaddr_in *at, int port)
{
    struct end e = {.channel = rdma_create_event_channel()};
    struct rdma_cm_id *listener;

    must(e.channel && rdma_create_id(e.channel, &listener, NULL, RDMA_PS_TCP) == 0 &&
             rdma_bind_addr(listener, (struct sockaddr *)at) == 0 && rdma_listen(listener, 1) == 0,
         "listen");
    at->sin_port = rdma_get_src_port(listener);
    must(write(port, &at->sin_port, sizeof(at->sin_port)) == sizeof(at->sin_port), "port");
    serve(&e);
}

static void calls(struct sockaddr_in *at)
{
    struct end e = {.channel = rdma_create_event_channel()};
    struct rdma_conn_param param;

    must(e.channel && rdma_create_id(e.channel, &e.id, NULL, RDMA_PS_TCP) == 0 &&
             rdma_resolve_addr(e.id, NULL, (struct sockaddr *)at, 2000) == 0,
         "resolve_addr");
    event(&e, RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
    must(rdma_resolve_route(e.id, 2000) == 0, "resolve_route");
    event(&e, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
    param = ready(&e);
    must(rdma_connect(e.id, &param) == 0, "connect");
    event(&e, RDMA_CM_EVENT_ESTABLISHED, NULL);
    stream(&e);
}

int main(int argc, char **argv)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = 0};
    const char *what = argc > 2 ? argv[2] : "copied";
    pid_t child;
    int port[2];

    tells = strcmp(what, "plain") != 0;
    threads = strcmp(what, "posted") == 0;
    copies = threads || strcmp(what, "copied") == 0;
    if (argc < 2 || inet_pton(AF_INET, argv[1], &at.sin_addr) != 1 ||
        (tells && !copies && strcmp(what, "told") != 0))
        return 2;
    if (argc > 3)
        block = strtoul(argv[3], NULL, 0);
    if (argc > 4 && block)
        blocks = strtoul(argv[4], NULL, 0) / block;
    if (block < 64 || blocks < 4 || blocks > MOST)
        return 2;
    ring = blocks * block;

    must(pipe(port) == 0, "pipe");
    child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        listens(&at, port[1]);
        _exit(0);
    }
    close(port[1]);
    must(read(port[0], &at.sin_port, sizeof(at.sin_port)) == sizeof(at.sin_port), "port");
    calls(&at);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}
