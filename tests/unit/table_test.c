/*
 * table_test.c - the descriptor table: what a number stands for, and threads that install,
 * take and look up the same numbers at the same time. The engine and the epoll part are
 * stand-ins that count.
 */
#include "preload/pl_own.h"
#include "tests/shim/shim.h"

#include <limits.h>
#include <pthread.h>
#include <string.h>

static _Atomic int child_calls, forgotten;

static _Atomic uint64_t sleeps = 1;

uint64_t fb_sleeps_now(void)
{
    return sleeps;
}

void fb_put(struct fb_stream *s)
{
    atomic_fetch_sub(&s->refs, 1);
}

void pl_epoll_forget_members(struct pl_file *f, bool stays)
{
    (void)stays;
    f->members = NULL;
    atomic_fetch_add(&forgotten, 1);
}

bool pl_epoll_marked(int fd)
{
    (void)fd;
    return false;
}

void pl_epoll_no_number(struct pl_epoll *e)
{
    (void)e;
}

bool pl_is_owner(void)
{
    return true;
}

bool pl_is_owner_here(void)
{
    return true;
}

static _Atomic uint32_t alive = 1;

void pl_child(void)
{
    atomic_fetch_add(&child_calls, 1);
    pl_table_reset(NULL);
    atomic_store(&alive, 1);
}

static void stream_init(struct fb_stream *s)
{
    memset(s, 0, sizeof(*s));
    atomic_init(&s->refs, 1);
    atomic_init(&s->fds, 1);
}

/* The number ends as close does. */
static void drop(int fd)
{
    struct pl_file *f = pl_take(fd);

    if (f)
        pl_put(f);
}

/* Each call writes to its file. */
TEST_CASE(table, the_first_ones_share_no_cache_line)
{
    enum { MANY = 100, FIRST = 1000 };
    struct fb_stream s[MANY];
    uintptr_t line[MANY];

    pl_table_reset(NULL);
    for (int i = 0; i < MANY; i++) {
        stream_init(&s[i]);
        line[i] = (uintptr_t)pl_install(FIRST + i, PL_STREAM, &s[i]) / 64;
        ASSERT(line[i] != 0);
        for (int j = 0; j < i; j++)
            EXPECT(line[i] != line[j]);
    }
    for (int i = 0; i < MANY; i++)
        drop(FIRST + i);
}

TEST_CASE(table, a_number_stands_for_what_was_installed)
{
    struct fb_stream s;
    struct pl_file *f;

    stream_init(&s);
    EXPECT(pl_get(7) == NULL);
    ASSERT(pl_install(7, PL_STREAM, &s) != NULL);
    f = pl_get(7);
    ASSERT(f != NULL);
    EXPECT_EQ_INT(f->fd, 7);
    EXPECT_EQ_INT(f->kind, PL_STREAM);
    EXPECT(f->stream == &s);
    EXPECT(pl_get(8) == NULL);

    drop(7);
    EXPECT(pl_get(7) == NULL);
    EXPECT_EQ_INT(s.refs, 1); /* we still look at it */
    pl_put(f);
    EXPECT_EQ_INT(s.refs, 0);
}

TEST_CASE(table, numbers_that_cannot_be)
{
    struct fb_stream s;

    stream_init(&s);
    EXPECT(pl_get(-1) == NULL);
    EXPECT(pl_get(INT_MIN) == NULL);
    EXPECT(pl_get(INT_MAX) == NULL);
    EXPECT(pl_take(-1) == NULL);
    EXPECT(pl_install(-1, PL_STREAM, &s) == NULL);
    EXPECT(pl_install(INT_MAX, PL_STREAM, &s) == NULL);
    EXPECT_EQ_INT(s.refs, 1); /* still the caller's */

    ASSERT(pl_install(1048575, PL_STREAM, &s) != NULL);
    drop(1048575);
    EXPECT_EQ_INT(s.refs, 0);
}

TEST_CASE(table, an_unseen_close_is_noticed_when_the_number_is_used_again)
{
    struct fb_stream old, new;
    struct pl_file *file;
    int before = forgotten;

    stream_init(&old);
    stream_init(&new);
    file = pl_install(9, PL_STREAM, &old);
    ASSERT(file != NULL);
    file->members = (struct pl_member *)&old; /* some: what they are is not looked at here */
    ASSERT(pl_install(9, PL_STREAM, &new) != NULL);
    EXPECT_EQ_INT(old.refs, 0);
    EXPECT_EQ_INT(old.fds, 0);
    EXPECT_EQ_INT(forgotten, before + 1);
    pl_drop_stale(9);
    EXPECT_EQ_INT(forgotten, before + 1); /* it had none */
    EXPECT_EQ_INT(new.refs, 0);
    EXPECT(pl_get(9) == NULL);
    pl_drop_stale(9);
}

static void count(struct pl_file *f, void *arg)
{
    *(int *)arg += f->fd;
}

TEST_CASE(table, each_visits_what_is_live)
{
    struct fb_stream s[3];
    const int at[3] = {3, 1023, 5000};
    int i, sum = 0;

    for (i = 0; i < 3; i++) {
        stream_init(&s[i]);
        ASSERT(pl_install(at[i], PL_STREAM, &s[i]) != NULL);
    }
    pl_each(count, &sum);
    EXPECT_EQ_INT(sum, 3 + 1023 + 5000);
    for (i = 0; i < 3; i++)
        drop(at[i]);
    sum = 0;
    pl_each(count, &sum);
    EXPECT_EQ_INT(sum, 0);
}

TEST_CASE(table, more_files_than_one_slab)
{
    static struct fb_stream s[3000];
    int i;

    for (i = 0; i < 3000; i++) {
        stream_init(&s[i]);
        ASSERT(pl_install(i, PL_STREAM, &s[i]) != NULL);
    }
    for (i = 0; i < 3000; i++) {
        PL_HELD f = pl_get(i);

        ASSERT(f != NULL && f->stream == &s[i]);
    }
    for (i = 0; i < 3000; i++)
        drop(i);
    for (i = 0; i < 3000; i++)
        ASSERT_EQ_INT(s[i].refs, 0);
}

TEST_CASE(table, a_forked_child_forgets_and_a_held_file_does_no_harm)
{
    struct fb_stream s, mine;
    struct pl_file *held;
    _Atomic uint32_t *was = pl_alive;
    int calls = child_calls;

    pl_alive = &alive;
    stream_init(&s);
    stream_init(&mine);
    ASSERT(pl_install(5, PL_STREAM, &s) != NULL);
    held = pl_get(5);
    atomic_store(&alive, 0); /* what the kernel does to the child's page */
    EXPECT(pl_get(5) == NULL);
    EXPECT_EQ_INT(child_calls, calls + 1);
    ASSERT(pl_install(5, PL_STREAM, &mine) != NULL);
    pl_put(held); /* an interrupted frame goes on in the child */
    EXPECT_EQ_INT(s.refs, 1);
    EXPECT_EQ_INT(mine.refs, 1);
    drop(5);
    EXPECT_EQ_INT(mine.refs, 0);
    pl_alive = was;
}

/* ---- races ---- */

enum { NUMBERS = 4, WRITERS = 3, READERS = 3, ROUNDS = 20000, POOL = 64 };

/* Each writer has streams of its own; `role` says for which number it was installed last. A
 * stream is used again only when its last reference is gone. */
static struct fb_stream pool[WRITERS][POOL];
static _Atomic int wrong, seen;

static void *writer(void *arg)
{
    struct fb_stream *mine = arg;
    uint64_t r = test_seed() + (uint64_t)(uintptr_t)arg;
    int i;

    for (i = 0; i < ROUNDS; i++) {
        struct fb_stream *s = &mine[i % POOL];
        int fd = 10 + (int)(r % NUMBERS);

        r = r * 6364136223846793005u + 1442695040888963407u;
        if (atomic_load(&s->refs) == 0) {
            s->role = (uint8_t)fd;
            atomic_store(&s->fds, 1);
            atomic_store(&s->refs, 1);
            if (!pl_install(fd, PL_STREAM, s))
                atomic_fetch_add(&wrong, 1);
        }
        r = r * 6364136223846793005u + 1442695040888963407u;
        if (r >> 63)
            drop(10 + (int)((r >> 32) % NUMBERS));
    }
    return NULL;
}

static void *reader(void *arg)
{
    int i;

    (void)arg;
    /* Longer if the writers have not had a processor yet. */
    for (i = 0; i < ROUNDS || (i < 1000 * ROUNDS && !atomic_load(&seen)); i++) {
        int fd = 10 + i % NUMBERS;
        PL_HELD f = i / NUMBERS % 2 ? pl_look_up(fd) : pl_get(fd);

        if (!f)
            continue;
        atomic_fetch_add_explicit(&seen, 1, memory_order_relaxed);
        if (f->fd != fd || f->kind != PL_STREAM || f->stream->role != fd ||
            atomic_load(&f->stream->refs) == 0)
            atomic_fetch_add(&wrong, 1);
    }
    return NULL;
}

TEST_CASE(table, look_ups_race_with_installs_and_takes)
{
    pthread_t t[WRITERS + READERS];
    int i, j;

    for (i = 0; i < WRITERS; i++)
        ASSERT_EQ_INT(pthread_create(&t[i], NULL, writer, pool[i]), 0);
    for (; i < WRITERS + READERS; i++)
        ASSERT_EQ_INT(pthread_create(&t[i], NULL, reader, NULL), 0);
    for (i = 0; i < WRITERS + READERS; i++)
        pthread_join(t[i], NULL);
    for (i = 0; i < NUMBERS; i++)
        drop(10 + i);
    EXPECT_EQ_INT(wrong, 0);
    EXPECT(seen > 0);
    for (i = 0; i < WRITERS; i++)
        for (j = 0; j < POOL; j++)
            EXPECT_EQ_INT(pool[i][j].refs, 0);
}

/* A socket keeps half of the mark with which its number was given. */
TEST_CASE(table, when_a_socket_was_made)
{
    const uint64_t at[] = {1, UINT32_MAX, (1ull << 32) + 5, (7ull << 32) + UINT32_MAX};
    const uint64_t later[] = {0, 1, 1000, UINT32_MAX};

    EXPECT_EQ_U64(pl_made_since(4), 0);
    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
        for (size_t k = 0; k < sizeof(later) / sizeof(later[0]); k++) {
            sleeps = at[i];
            pl_made_note(4, pl_made_begin());
            sleeps = at[i] + later[k];
            EXPECT_EQ_U64(pl_made_since(4), at[i]);
        }
    pl_made_forget(4);
    EXPECT_EQ_U64(pl_made_since(4), 0);
    sleeps = 1;
}
