/*
 * own_test.c - what is noted as the library's is left open where all else is closed.
 */
#include "tests/shim/shim.h"

#include "rsock/own.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

/* More than what one look at the folder of numbers tells of; they are among each other. */
enum { EACH = 100, HIDDEN = 512, BELOW = 30 };

struct numbers {
    int ours[EACH], theirs[EACH];
};

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static int count_open(void)
{
    int n = 0;

    for (int fd = 0; fd < 2 * HIDDEN; fd++)
        n += is_open(fd);
    return n;
}

static void open_all(struct numbers *all)
{
    int file = open("/dev/null", O_RDONLY | O_CLOEXEC);

    ASSERT(file >= 0);
    for (int i = 0; i < EACH; i++) {
        all->theirs[i] = fcntl(file, F_DUPFD_CLOEXEC, HIDDEN);
        all->ours[i] = rsk_own_fd(dup(file));
        ASSERT(all->theirs[i] >= HIDDEN && all->ours[i] > all->theirs[i]);
        ASSERT(i == 0 || all->theirs[i] > all->ours[i - 1]);
    }
    close(file);
}

static void close_all(const struct numbers *all)
{
    for (int i = 0; i < EACH; i++) {
        rsk_own_close(all->ours[i]);
        if (is_open(all->theirs[i]))
            close(all->theirs[i]);
    }
}

TEST_CASE(own, closes_others)
{
    struct numbers all;
    int before;

    open_all(&all);
    before = count_open();
    ASSERT_EQ_INT(rsk_own_close_others((unsigned)all.theirs[BELOW]), 0);
    for (int i = 0; i < EACH; i++) {
        EXPECT(is_open(all.ours[i]) && rsk_own_has(all.ours[i]));
        EXPECT_EQ_INT(is_open(all.theirs[i]), i < BELOW);
    }
    EXPECT_EQ_INT(count_open(), before - (EACH - BELOW)); /* and what it needed itself is closed */
    close_all(&all);
}

TEST_CASE(own, closes_nothing_beyond_the_last)
{
    struct numbers all;
    int before;

    open_all(&all);
    before = count_open();
    EXPECT_EQ_INT(rsk_own_close_others((unsigned)all.ours[EACH - 1]), 0);
    EXPECT_EQ_INT(rsk_own_close_others(~0u), 0);
    EXPECT_EQ_INT(count_open(), before);
    close_all(&all);
}

TEST_CASE(own, closes_nothing_without_a_number)
{
    struct numbers all;
    struct rlimit limit, none;
    int before, r;

    open_all(&all);
    before = count_open();
    ASSERT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = (struct rlimit){0, limit.rlim_max};
    ASSERT(setrlimit(RLIMIT_NOFILE, &none) == 0);
    r = rsk_own_close_others((unsigned)all.theirs[BELOW]);
    ASSERT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    EXPECT_EQ_INT(r, -EMFILE);
    EXPECT_EQ_INT(count_open(), before);
    close_all(&all);
}
