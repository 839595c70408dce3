/*
 * stream_pieces_test.c - vectors of many small buffers go into the ring together, and as they are.
 */
#include "tests/unit/stream_pair.h"

enum { MANY = 64 };

static struct rsk_wire counting;
static unsigned puts_done;

static int counted_put(struct rsk_rail *rail, size_t n)
{
    puts_done++;
    return rsk_shm_wire.tx_put(rail, n);
}

/* Before there is a thread that could be calling it. */
__attribute__((constructor)) static void counting_wire(void)
{
    counting = rsk_shm_wire;
    counting.tx_put = counted_put;
}

/* Some of them empty. */
static size_t vector(struct iovec *v, int cnt, char *bytes, size_t each)
{
    size_t n = 0;

    for (int i = 0; i < cnt; i++) {
        v[i] = (struct iovec){bytes + n, i % 7 == 3 ? 0 : each - (size_t)i % 3};
        n += v[i].iov_len;
    }
    return n;
}

static void one(struct end *a, struct end *b, int cnt, size_t each, unsigned most)
{
    static char bytes[1 << 18], got[1 << 18];
    struct iovec *v = calloc((size_t)cnt, sizeof(*v));
    size_t n, in = 0;

    ASSERT(v != NULL);
    n = vector(v, cnt, bytes, each);
    ASSERT(n <= sizeof(bytes));
    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)(i * 31 + i / 251);
    puts_done = 0;
    ASSERT_EQ_INT(fb_sendv(a->s, a->fd, v, cnt, 0), n);
    EXPECT(puts_done <= most);
    while (in < n) {
        ssize_t r = get(b, got + in, n - in);

        ASSERT(r > 0);
        in += (size_t)r;
    }
    EXPECT(memcmp(got, bytes, n) == 0);
    free(v);
}

TEST_CASE(stream_pieces, small_buffers_go_together)
{
    struct end a, b;

    eager();
    pair(&a, &b);
    ASSERT(board(&a, &b));
    use_wire(&a, &counting);
    one(&a, &b, MANY, 64, 1);
    one(&a, &b, 1024, 20, 16);
    one(&a, &b, 17, 3, 1);
    one(&a, &b, 40, 1500, 4);
    done(&a);
    done(&b);
}
