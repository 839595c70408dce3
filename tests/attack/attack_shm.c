/*
 * attack_shm.c - lies of a peer that shares the memory of a rail. Everything in it may be written
 * by both processes, so all of it can be wrong, at any moment.
 */
#include "tests/attack/attack.h"

#include "rsock/shm_bell.h"
#include "rsock/shm_ring.h"
#include "rsock/sys.h"

#include <errno.h>
#include <limits.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* The victim's half is `in` where it sends and `out` where it receives. */
static struct shm_rail *rail(struct victim *v)
{
    static struct shm_rail *first; /* our library may have given it back already */

    if (!first)
        first = shm_of(conn(v)->x->rail);
    return first;
}

static void wake_victim(struct shm_rail *r)
{
    _Atomic uint32_t *words[] = {&r->out->words.rx_word, &r->in->words.tx_word};

    for (int i = 0; i < 2; i++) {
        atomic_fetch_add(words[i], 1);
        sys_futex(words[i], FUTEX_WAKE, INT_MAX, NULL);
    }
    shm_peer_ring(r->peer_data.bell, r->peer_data.index);
    shm_peer_ring(r->peer_ctl.bell, r->peer_ctl.index);
}

static void tail_beyond(struct victim *v)
{
    struct shm_rail *r = rail(v);

    r->out->producer.tail = r->tx + r->base.tx_size + 1;
    wake_victim(r);
}

static void tail_back(struct victim *v)
{
    struct shm_rail *r = rail(v);

    r->out->producer.tail = r->out->consumer.consumed - 1;
    wake_victim(r);
}

static void tail_far(struct victim *v)
{
    struct shm_rail *r = rail(v);

    r->out->producer.tail = r->tx ^ 1ull << 63;
    wake_victim(r);
}

static void consumed_ahead(struct victim *v)
{
    struct shm_rail *r = rail(v);

    r->in->consumer.consumed = r->in->producer.tail + (1u << 20) + 1;
    wake_victim(r);
}

static void consumed_back(struct victim *v)
{
    struct shm_rail *r = rail(v);

    r->in->consumer.consumed = 1;
    wake_victim(r);
}

static void head_beyond(struct victim *v)
{
    struct shm_rail *r = rail(v);

    r->in->ctl.head += 1000;
    wake_victim(r);
}

static void sequence(struct victim *v)
{
    struct shm_rail *r = rail(v);

    for (int i = 0; i < SHM_CTL_SLOTS; i++)
        r->out->seq[i] = 0xdeadbeef;
    wake_victim(r);
}

static void wishes(struct victim *v)
{
    static unsigned seed = 1;
    struct shm_rail *r = rail(v);
    struct shm_dir *d[2] = {r->out, r->in};

    for (int i = 0; i < 2; i++) {
        d[i]->producer.want_tx = (uint32_t)rand_r(&seed);
        d[i]->producer.credit_step = (uint32_t)rand_r(&seed) - 1u;
        d[i]->sleeper.want_rx = (uint32_t)rand_r(&seed);
        d[i]->words.rx_word = (uint32_t)rand_r(&seed);
        d[i]->words.tx_word = (uint32_t)rand_r(&seed);
    }
    wake_victim(r);
}

/* Everything, all the time. */
static void all_random(struct victim *v)
{
    static uint64_t x = 88172645463325252u;
    struct shm_rail *r = rail(v);
    struct shm_dir *d[2] = {r->out, r->in};

    for (int i = 0; i < 2; i++) {
        uint32_t *w = (uint32_t *)(void *)d[i];

        for (size_t k = 0; k < sizeof(struct shm_dir) / 4; k++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            __atomic_store_n(&w[k], (uint32_t)x, __ATOMIC_RELAXED);
        }
    }
    wake_victim(r);
}

/* As many messages as the victim takes, of every type, most of them nonsense. It must not be kept
 * reading them: the bytes beside them have to go on. */
static void flood(struct victim *v)
{
    static unsigned seed = 7;
    struct shm_rail *r = rail(v);

    for (int i = 0; i < 10000; i++) {
        struct rsk_msg m = {.type = FM_OWED,
                            .epoch = i % 3 ? conn(v)->x->epoch : (uint32_t)rand_r(&seed),
                            .a = (uint64_t)rand_r(&seed) << 33 | (uint64_t)rand_r(&seed)};

        if (i % 2)
            m.type = (uint8_t)(FM_LARGER + 1 + rand_r(&seed) % 200);
        shm_ctl_send(&r->base, &m);
    }
}

static void bells(struct victim *v)
{
    struct shm_rail *r = rail(v);

    for (uint32_t i = 0; i < SHM_BELL_SLOTS; i++)
        shm_peer_ring(r->peer_data.bell, i);
}

/* Our bells' descriptors are blocking from now on and full: who writes to one, and does not say
 * with the call that it must not block, sleeps until it is read. */
static void block_bells(struct victim *v)
{
    struct shm_rail *r = rail(v);
    struct shm_bell *b[2] = {r->my_data.bell, r->my_ctl.bell};
    const uint64_t most = UINT64_MAX - 1;
    uint64_t count;
    int page, event;

    for (int i = 0; i < 2; i++) {
        shm_bell_fds(b[i], &page, &event);
        while (send(event, &most, sizeof most, MSG_DONTWAIT) > 0)
            ;
        if (errno != ENOTSOCK) {
            fcntl(event, F_SETFL, fcntl(event, F_GETFL) & ~O_NONBLOCK);
            continue;
        }
        if (eventfd_read(event, &count) == 0 || errno == EAGAIN)
            if (write(event, &most, sizeof most) == sizeof most)
                fcntl(event, F_SETFL, fcntl(event, F_GETFL) & ~O_NONBLOCK);
    }
}

/* The bytes that the victim may just be looking at. */
static void other_bytes(struct victim *v)
{
    struct shm_rail *r = rail(v);

    for (uint32_t i = 0; i < r->base.tx_size; i += 61)
        __atomic_fetch_xor(r->out_data + i, 1, __ATOMIC_RELAXED);
}

/* The memory becomes holes, cursors and all. A size that is sealed does not keep
 * anybody from that. */
static void holes(struct victim *v)
{
    struct shm_rail *r = rail(v);
    size_t len = SHM_HEADER + 4 * (size_t)r->base.tx_size;
    uint8_t *all = (uint8_t *)(r->out < r->in ? r->out : r->in);

    if (madvise(all, len, MADV_REMOVE))
        DIE("no holes: %s", strerror(errno));
    wake_victim(r);
}

/* Who sleeps on one word is made to sleep on another, which nobody will wake; then the
 * connection ends. */
static void requeue(struct victim *v)
{
    struct rsk_rail *r = &rail(v)->base;
    _Atomic uint32_t *word = &rail(v)->out->words.rx_word;
    _Atomic uint32_t *other = (_Atomic uint32_t *)(void *)rail(v)->out_data;
    uint64_t until = sys_now() + PATIENCE_S * 1000000000ull;

    while (SYS6(SYS_futex, word, FUTEX_CMP_REQUEUE, 0, INT_MAX, other, atomic_load(word)) <= 0) {
        if (r->failed || sys_now() > until)
            DIE("the victim does not sleep on its word");
        sys_yield();
    }
    sys_shutdown(v->fd, SHUT_WR); /* has to wake it all the same */
}

const struct lie shm_lies[] = {
    {.name = "tail-beyond", .scribble = tail_beyond},
    {.name = "tail-back", .scribble = tail_back},
    {.name = "tail-far", .scribble = tail_far},
    {.name = "consumed-ahead", .scribble = consumed_ahead},
    {.name = "consumed-back", .scribble = consumed_back},
    {.name = "head-beyond", .scribble = head_beyond},
    {.name = "sequence", .leaves = true, .once = sequence},
    {.name = "wishes", .careless = true, .scribble = wishes},
    {.name = "all-random", .careless = true, .scribble = all_random},
    {.name = "flood", .scribble = flood},
    {.name = "bells", .scribble = bells},
    {.name = "block-bells", .once = block_bells},
    {.name = "requeue", .once = requeue},
    {.name = "linger-bells", .once = linger_bells},
    {.name = "other-bytes", .careless = true, .scribble = other_bytes},
    {.name = "holes", .careless = true, .scribble = holes},
    {0},
};
