/*
 * attack_rogue.c - without the TCP stream: who squats a rendezvous, who asks for a rail for
 * somebody else's connection. They use the product's own wires and lie where the proof is due.
 *
 *   attack listen PORT [KNOWN]              accepts a rail for whatever connection to PORT
 *   attack early PORT                       the same over verbs, with a large ring, and asks for an
 *                                           answer before it is known
 *   attack ask SRC SPORT DST DPORT [KNOWN]  asks for a rail for that connection
 *   attack squat UID PORT PID               bears the name of that user's rendezvous
 *   attack fds PORT KIND                    a request for a connection of its own with bad memory
 *
 * KNOWN is the beginning of what the connecting end has sent, if the attacker has guessed it.
 * listen and ask print one line for each rail: "refused REASON", or "trusted" if the victim goes on
 * to switch. RAILSOCK_WIRE=shm or verbs.
 */
#include "tests/attack/attack.h"

#include "config/env.h"
#include "rsock/loop.h"
#include "rsock/shard.h"
#include "rsock/shm_bell.h"
#include "rsock/shm_wire.h"
#include "rsock/sys.h"
#include "rsock/unix_names.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/memfd.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

static const struct rsk_wire *wire(void)
{
    return cfg.stream.wire == CFG_WIRE_VERBS ? &rsk_verbs_wire : &rsk_shm_wire;
}

/* ---- one rail of a liar */

static struct {
    struct rsk_rail *rail;
    bool asks;
    uint8_t nonce[2][16];
    uint32_t epoch;
    struct fb_digest known, nothing;
} liar;

static sem_t over;

static void say(const char *what, int reason)
{
    printf("%s %s\n", what, cfg_reason_name(reason));
    sem_post(&over);
}

static void prove(uint8_t role, uint8_t *out)
{
    struct fb_proof_in in = {.nonce0 = liar.nonce[0],
                             .nonce1 = liar.nonce[1],
                             .up = &liar.known,
                             .down = &liar.nothing,
                             .up_at = fb_checkpoints_common(liar.known.valid, UINT64_MAX),
                             .down_at = 0,
                             .role = role};

    if (!fb_proof(&in, out))
        memset(out, 0x5a, 16); /* knows nothing, and guesses */
}

static void on_message(const struct rsk_msg *m)
{
    struct rsk_msg out = {.epoch = m->epoch};

    switch (m->type) {
    case FM_HELLO:
        memcpy(liar.nonce[0], m->data, 16);
        memset(liar.nonce[1], 1, 16);
        out.type = FM_HELLO_ACK;
        /* Who knows how the stream begins says so, and who knows nothing what is asked for. */
        out.a = liar.known.valid ? 1 : fb_checkpoints_common(m->a, UINT64_MAX);
        memcpy(out.data, liar.nonce[1], 16);
        prove(1, out.data + 16);
        wire()->ctl_send(liar.rail, &out);
        break;
    case FM_HELLO_ACK:
        memcpy(liar.nonce[1], m->data, 16);
        /* Before the proof is looked at: whoever is believed may announce, and the next bytes of
         * somebody else's stream are taken for a frame then. */
        out.type = FM_ANN;
        out.att = 1;
        out.a = 1u << 30;
        wire()->ctl_send(liar.rail, &out);
        out = (struct rsk_msg){.epoch = m->epoch, .type = FM_PROVED};
        prove(0, out.data);
        wire()->ctl_send(liar.rail, &out);
        out = (struct rsk_msg){.epoch = m->epoch, .type = FM_ANN, .att = 2, .a = 1u << 30};
        wire()->ctl_send(liar.rail, &out);
        break;
    case FM_REFUSED:
        say("refused", m->reason);
        break;
    case FM_ACK:
        say("trusted", 0);
        break;
    case FM_ANN:
        out.type = FM_ACK;
        out.att = m->att;
        wire()->ctl_send(liar.rail, &out);
        say("trusted", 0);
        break;
    default:
        break;
    }
}

static void listen_to(void *arg)
{
    struct rsk_msg m;

    (void)arg;
    while (liar.rail && wire()->ctl_recv(liar.rail, &m) == 1)
        on_message(&m);
}

static void notify(struct rsk_rail *r, unsigned events)
{
    (void)r;
    if (events & RSK_CTL)
        rsk_loop_post(listen_to, NULL);
}

static void take(struct rsk_rail *r)
{
    liar.rail = r;
    r->owner = &liar;
    r->notify = notify;
    if (liar.asks) {
        /* Who knows nothing claims to know everything, and who knows a little says so. */
        struct rsk_msg m = {.type = FM_HELLO,
                            .epoch = 1,
                            .a = liar.known.valid ? liar.known.valid : UINT32_MAX,
                            .b = liar.known.valid ? 0 : UINT32_MAX};

        memset(liar.nonce[0], 2, 16);
        memcpy(m.data, liar.nonce[0], 16);
        wire()->ctl_send(r, &m);
    }
    listen_to(NULL);
}

static void begin(const char *known)
{
    int r = rsk_loop_start(cfg.uring);

    sem_init(&over, 0, 0);
    fb_digest_init(&liar.known);
    fb_digest_init(&liar.nothing);
    if (known) {
        struct iovec v = {(void *)(uintptr_t)known, strlen(known)};

        fb_digest_add(&liar.known, 0, &v, 1, v.iov_len);
    }
    if (r)
        DIE("no progress thread: %d", r);
}

static void on_thread(void (*fn)(void *), void *arg)
{
    if (rsk_loop_post(fn, arg))
        DIE("no progress thread");
}

/* ---- rogue listener */

static int find(const struct rsk_tuple *t, struct rsk_shard **shard, size_t *ring, void **owner)
{
    (void)t;
    *shard = rsk_shard_common();
    *ring = 0;
    *owner = &liar;
    return 0;
}

static void accepted(void *owner, struct rsk_rail *r)
{
    (void)owner;
    take(r);
}

static void refused(void *owner, int reason)
{
    (void)owner;
    say("gone", reason);
}

static const struct rsk_accept_ops ops = {.find = find, .accepted = accepted, .refused = refused};

static void do_listen(void *port)
{
    int r = wire()->listen(AF_INET, (uint16_t)atoi(port), 0, &ops);

    printf("listening %d\n", r);
}

int rogue_listen(const char *port, const char *known)
{
    begin(known);
    on_thread(do_listen, (void *)(uintptr_t)port);
    for (;;)
        sem_wait(&over);
}

/* ---- rogue initiator */

static struct rsk_tuple tuple;

static void asked(void *owner, struct rsk_rail *r, int reason)
{
    (void)owner;
    if (r)
        take(r);
    else
        say("refused", reason);
}

static void do_ask(void *arg)
{
    (void)arg;
    if (wire()->usable() || wire()->connect(&tuple, rsk_shard_common(), 0, &liar, asked))
        say("cannot ask", 0);
}

int rogue_ask(char **t, const char *known)
{
    tuple = (struct rsk_tuple){
        .family = AF_INET, .src_port = (uint16_t)atoi(t[1]), .dst_port = (uint16_t)atoi(t[3])};
    inet_pton(AF_INET, t[0], tuple.src);
    inet_pton(AF_INET, t[2], tuple.dst);
    liar.asks = true;
    begin(known);
    on_thread(do_ask, NULL);
    sem_wait(&over);
    return 0;
}

/* ---- a name of somebody else's */

int squat(const char *uid, const char *port, const char *pid)
{
    struct sockaddr_storage ss;
    socklen_t len =
        shm_rdv_name(&ss, (uint32_t)atoi(uid), (uint16_t)atoi(port), (uint32_t)atoi(pid), 0);
    int l = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (bind(l, (struct sockaddr *)&ss, len) || listen(l, 8))
        DIE("squat: %s", strerror(errno));
    puts("listening");
    for (;;) {
        int fd = accept4(l, NULL, NULL, SOCK_CLOEXEC);
        struct shm_request q;

        /* Whatever is sent to this name is sent to a stranger. */
        puts(recv(fd, &q, sizeof q, 0) > 0 ? "got a request" : "hung up");
        close(fd);
    }
}

/* ---- bad memory */

static int memory(const char *kind, uint32_t ring)
{
    const off_t size = SHM_HEADER + 2 * (off_t)ring;
    const int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    char name[] = "/dev/shm/attack.XXXXXX";
    int fd;

    if (strcmp(kind, "null") == 0)
        return sys_open("/dev/zero", O_RDWR | O_CLOEXEC, 0);
    if (strcmp(kind, "file") == 0) { /* on tmpfs, but it can shrink */
        fd = mkstemp(name);
        unlink(name);
        return ftruncate(fd, size) ? -1 : fd;
    }
    fd = sys_memfd_create("attack", strcmp(kind, "huge") == 0 ? flags | MFD_HUGETLB : flags);
    if (fd < 0)
        return fd;
    if (strcmp(kind, "small") == 0)
        (void)!ftruncate(fd, size - 4096);
    else if (strcmp(kind, "large") == 0)
        (void)!ftruncate(fd, size + 4096);
    else
        (void)!ftruncate(fd, strcmp(kind, "huge") == 0 ? 2 << 20 : size);
    if (strcmp(kind, "shrinks") == 0)
        fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SEAL);
    else if (strcmp(kind, "grows") == 0)
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL);
    else if (strcmp(kind, "sealed-for-writing") == 0)
        fcntl(fd, F_ADD_SEALS, all | F_SEAL_WRITE);
    else if (strcmp(kind, "unsealed") != 0)
        fcntl(fd, F_ADD_SEALS, all);
    /* nobody can write it: a store of the victim's would trap */
    if (strcmp(kind, "read-only") == 0) {
        char path[40];
        int again;

        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        again = open(path, O_RDONLY | O_CLOEXEC);
        close(fd);
        fd = again;
    }
    return fd;
}

/* The last part of the victim's name. */
static void note_peer(void *peer, const char *line, const char *rest)
{
    (void)line;
    *(uint16_t *)peer = (uint16_t)atoi(rest);
}

int rogue_dial(uint32_t uid, uint16_t port, uint32_t pid)
{
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct sockaddr_storage ss;
    uint16_t peer = 0;
    char prefix[64];
    socklen_t len;

    snprintf(prefix, sizeof prefix, "railsock.%u.%u.%u.", uid, port, pid);
    rsk_unix_names(prefix, note_peer, &peer);
    len = shm_rdv_name(&ss, uid, port, pid, peer);
    if (connect(sock, (struct sockaddr *)&ss, len))
        DIE("rendezvous: %s", strerror(errno));
    return sock;
}

int bad_fds(const char *port, const char *kind)
{
    struct shm_request q = {.head = {.magic = SHM_MAGIC, .version = SHM_VERSION, .len = sizeof q},
                            .ring = strcmp(kind, "zero") == 0 ? 0 : 65536};
    int page = shm_sealed_memfd("page", 65536), event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct shm_fds fds = {.fd = {memory(kind, q.ring), page, event}, .n = 3};
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))},
                       here;
    struct shm_reply p = {0};
    socklen_t len = sizeof here;
    int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int sock;
    char buf[64] = {0};

    there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fds.fd[0] < 0) {
        puts("cannot be had here");
        return 0;
    }
    if (connect(tcp, (struct sockaddr *)&there, sizeof there) ||
        getsockname(tcp, (struct sockaddr *)&here, &len))
        DIE("connect: %s", strerror(errno));
    /* So that the victim's accept has happened, and its policy is satisfied. */
    for (int i = 0; i < 50; i++)
        if (write(tcp, buf, sizeof buf) < 0 || recv(tcp, buf, sizeof buf, MSG_WAITALL) <= 0)
            DIE("no echo");
    q.tuple = (struct rsk_tuple){
        .family = AF_INET, .src_port = ntohs(here.sin_port), .dst_port = ntohs(there.sin_port)};
    memcpy(q.tuple.src, &here.sin_addr, 4);
    memcpy(q.tuple.dst, &there.sin_addr, 4);
    sock = rogue_dial(geteuid(), q.tuple.dst_port, (uint32_t)atoi(getenv("VICTIM")));
    if (shm_msg_send(sock, &q, sizeof q, &fds))
        DIE("rendezvous: %s", strerror(errno));
    if (recv(sock, &p, sizeof p, 0) < (ssize_t)sizeof p.head)
        DIE("no answer");
    printf("refused %s\n", cfg_reason_name((int)p.head.reason));
    /* The connection goes on. */
    memset(buf, 'x', sizeof buf);
    if (write(tcp, buf, sizeof buf) < 0 || recv(tcp, buf, sizeof buf, MSG_WAITALL) != sizeof buf)
        DIE("no echo afterwards");
    return 0;
}
