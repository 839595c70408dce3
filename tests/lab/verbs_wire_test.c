/*
 * verbs_wire_test.c - the verbs wire between two processes, over a real TCP connection for the
 * tuple, with this program in the place of the layers above. tests/verbs_test.sh runs it.
 *
 *   verbs_wire_test server PORT
 *   verbs_wire_test client OWN-ADDRESS ADDRESS PORT CASE...     prints ok / not ok lines
 *
 *   verbs_wire_test both OWN-ADDRESS ADDRESS PORT CASE...       both in one process
 *
 * The client names the case over TCP, both do their part on the rail, the server answers over
 * TCP with "ok" or what was wrong. Every byte is checked against its position.
 */
#include "tests/lab/verbs_wire.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "config/env.h"
#include "config/log.h"
#include "config/reason.h"
#include "rsock/loop.h"
#include "rsock/shard.h"
#include "rsock/sys.h"
#include "rsock/wire.h"

static struct conn *last_served; /* not freed: jobs may still be on their way to it */
static char last_result[200] = "nothing";

/* ---- the two programs */

static void put_addr(uint8_t *to, const struct sockaddr_in *a)
{
    memcpy(to, &a->sin_addr, 4);
}

static void tuple_of(struct conn *c)
{
    struct sockaddr_in a = {0}, b = {0};
    socklen_t n = sizeof a;

    getsockname(c->fd, (struct sockaddr *)&a, &n);
    getpeername(c->fd, (struct sockaddr *)&b, &n);
    c->tuple.family = AF_INET;
    c->tuple.src_port = ntohs(c->server ? b.sin_port : a.sin_port);
    c->tuple.dst_port = ntohs(c->server ? a.sin_port : b.sin_port);
    put_addr(c->tuple.src, c->server ? &b : &a);
    put_addr(c->tuple.dst, c->server ? &a : &b);
}

struct ask {
    struct conn *c;
    uint16_t port;
    int err;
    sem_t over;
};

static void connect_job(void *arg)
{
    struct ask *a = arg;

    a->err = wire->connect(&a->c->tuple, a->c->shard, a->c->ring, a->c, on_done);
    sem_post(&a->over);
}

static void listen_job(void *arg)
{
    struct ask *a = arg;

    a->err = wire->listen(AF_INET, a->port, 0, &ops);
    sem_post(&a->over);
}

static void destroy_job(void *arg)
{
    struct ask *a = arg;
    struct rsk_rail *r = atomic_exchange(&a->c->rail, NULL);

    wire->destroy(r);
    sem_post(&a->over);
}

static int on_loop(void (*fn)(void *), struct ask *a)
{
    sem_init(&a->over, 0, 0);
    rsk_loop_post(fn, a);
    while (sem_wait(&a->over))
        ;
    return a->err;
}

static int wait_rail(struct conn *c)
{
    uint64_t end = sys_now() + 6000000000u;

    while (!atomic_load(&c->rail) && !atomic_load(&c->refused) && sys_now() < end)
        nap(200);
    return atomic_load(&c->rail) ? 0 : wrong(c, "no rail: %s", cfg_reason_name(c->refused));
}

void end_on_loop(struct conn *c)
{
    struct ask a = {.c = c};

    on_loop(destroy_job, &a);
}

static void end_rail(struct conn *c)
{
    pthread_mutex_lock(&c->tx_lock);
    pthread_mutex_unlock(&c->tx_lock);
    if (atomic_load(&c->rail))
        end_on_loop(c);
    rsk_shard_put(c->shard);
}

bool read_line(int fd, char *line, size_t size)
{
    size_t n = 0;

    while (n + 1 < size && read(fd, line + n, 1) == 1 && line[n] != '\n')
        n++;
    line[n] = 0;
    return n > 0;
}

static void serve(int fd)
{
    struct conn *c = calloc(1, sizeof *c);
    char name[200], line[220];

    if (!c)
        abort();
    last_served = c;
    c->fd = fd;
    c->server = true;
    tuple_of(c);
    if (!read_line(fd, name, sizeof name))
        goto out;
    if (same(name, "result")) {
        snprintf(line, sizeof line, "%s\n", last_result);
        goto say;
    }
    choose(c, name);
    atomic_store(&answer_not_yet, same(name, "not-yet"));
    atomic_store(&waiting, c);
    dprintf(fd, "go\n");
    if (same(name, "not-yet") || same(name, "nobody") || same(name, "loopback")) {
        read_line(fd, line, sizeof line);
    } else {
        if (wait_rail(c) == 0)
            run_case(c, name);
        if (c->unwanted) /* the client's may have been destroyed before ours was there */
            c->why[0] = 0;
        /* The client looks at what it kept only while we are there. */
        if (!same(name, "killed") && !same(name, "unplug"))
            read_line(fd, line, sizeof line);
        atomic_store(&waiting, NULL);
        end_rail(c);
    }
    snprintf(line, sizeof line, "%s\n", c->why[0] ? c->why : "ok");
    snprintf(last_result, sizeof last_result, "%s", c->why[0] ? c->why : "ok");
say:
    dprintf(fd, "%s", line);
out:
    close(fd);
}

static int server(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct ask ask = {.port = port};

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 10) < 0 ||
        on_loop(listen_job, &ask) < 0) {
        printf("not ok server: cannot listen, error %d\n", ask.err);
        return 1;
    }
    for (;;) {
        int s = accept(fd, NULL, NULL);

        if (s >= 0)
            serve(s);
    }
}

static int dial(const char *own, const char *to, uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET},
                       b = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    inet_pton(AF_INET, own, &a.sin_addr);
    inet_pton(AF_INET, to, &b.sin_addr);
    for (int i = 0; i < 50; i++) {
        if (bind(fd, (struct sockaddr *)&a, sizeof a) == 0 &&
            connect(fd, (struct sockaddr *)&b, sizeof b) == 0)
            return fd;
        close(fd);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        nap(100000);
    }
    return -1;
}

/* One case from the client's side. `name` may be one that is refused. */
static void try_case(struct conn *c, const char *own, const char *to, uint16_t port,
                     const char *name)
{
    struct ask a = {.c = c};
    char line[220];

    c->fd = dial(own, to, port);
    if (c->fd < 0) {
        wrong(c, "no TCP connection");
        return;
    }
    tuple_of(c);
    choose(c, name);
    if (same(name, "last-words"))
        be_lazy();
    dprintf(c->fd, "%s\n", name);
    if (!read_line(c->fd, line, sizeof line)) {
        wrong(c, "the server is gone");
        return;
    }
    if (same(name, "nobody"))
        c->tuple.dst_port = 7999;
    if (same(name, "loopback"))
        memcpy(c->tuple.dst, "\177\0\0\1", 4);
    if (on_loop(connect_job, &a) < 0)
        wrong(c, "connect: %d", a.err);
    else if (wait_rail(c) == 0)
        run_case(c, name);
    dprintf(c->fd, "end\n");
    if (!read_line(c->fd, line, sizeof line))
        wrong(c, "the server is gone");
    else if (!same(line, "ok"))
        wrong(c, "server: %s", line);
    end_rail(c);
    close(c->fd);
}

static void expect(struct conn *c, const char *text)
{
    if (strstr(c->why, text))
        c->why[0] = 0;
    else if (!c->why[0])
        snprintf(c->why, sizeof c->why, "no failure");
}

static int client(const char *own, const char *to, uint16_t port, char **names)
{
    static struct conn *last;
    int bad = 0;

    for (; *names; names++) {
        struct conn *c = calloc(1, sizeof *c);
        const char *name = *names;
        int status;
        pid_t pid;

        if (!c)
            abort();
        if (same(name, "killed")) {
            char p[10], line[220];

            snprintf(p, sizeof p, "%u", port);
            pid = fork();
            if (pid == 0) {
                rsk_loop_after_fork_child();
                execl("/proc/self/exe", "verbs_wire_test", "client", own, to, p, "killed-now",
                      NULL);
                _exit(9);
            }
            waitpid(pid, &status, 0);
            c->fd = dial(own, to, port);
            dprintf(c->fd, "result\n");
            if (!WIFSIGNALED(status) || !read_line(c->fd, line, sizeof line) || !same(line, "ok"))
                wrong(c, "status %x, server: %s", status, line);
        } else if (same(name, "killed-now")) {
            try_case(c, own, to, port, "killed");
        } else if (same(name, "plug")) {
            if (system("rdma link add rxe0 type rxe netdev eth0"))
                wrong(c, "rdma link add");
        } else {
            try_case(c, own, to, port, name);
            if (same(c->why,
                     "no rail: rendezvous-timeout")) { /* as in a translated guest that is busy */
                last = c;
                c = calloc(1, sizeof *c);
                if (!c)
                    abort();
                try_case(c, own, to, port, name);
            }
            if (same(name, "not-yet"))
                expect(c, "no rail: not-yet");
            else if (same(name, "unwanted"))
                expect(c, "no rail: ending");
            else if (same(name, "nobody"))
                expect(c, "no rail: no-peer-library");
            else if (same(name, "loopback"))
                expect(c, "no rail: no-rdma-on-route");
        }
        if (c->why[0])
            printf("not ok %s: %s\n", name, c->why);
        else
            printf("ok %s\n", name);
        fflush(stdout);
        bad |= c->why[0] != 0;
        /* Not freed: a callback or a job may still be on its way to it. */
        last = c;
    }
    return was_strict() || bad || !last;
}

static void *server_thread(void *port)
{
    server((uint16_t)atoi(port));
    return NULL;
}

int main(int argc, char **argv)
{
    int reason;

    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (char)((i % 65521) * 2654435761u >> 13);
    signal(SIGPIPE, SIG_IGN);
    cfg_init();
    cfg_log_level = getenv("VERBS_DEBUG") ? CFG_LOG_DEBUG : CFG_LOG_WARN;
    if (argc < 3)
        return 2;
    reason = wire->usable();
    if (reason) {
        printf("skip verbs: %s\n", cfg_reason_sentence(reason));
        return 77;
    }
    be_strict();
    if (rsk_loop_start(!getenv("VERBS_EPOLL")) < 0)
        return 2;
    if (same(argv[1], "both")) {
        pthread_t t = 0;

        pthread_create(&t, NULL, server_thread, argv[4]);
    }
    if (same(argv[1], "server"))
        return server((uint16_t)atoi(argv[2]));
    return client(argv[2], argv[3], (uint16_t)atoi(argv[4]), argv + 5);
}
