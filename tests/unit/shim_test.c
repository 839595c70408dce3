/*
 * shim_test.c - the test shim under test.
 *
 * The cases of DISABLED_bad fail, skip or die on purpose. googletest leaves them out because
 * of their name; tests/shim_test.sh runs each in a child process and checks what came of it.
 */
#include "tests/shim/shim.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int cleanups;

static void count_cleanup(const int *unused)
{
    (void)unused;
    cleanups++;
}

TEST_CASE(shim, expectations_that_hold_are_true)
{
    const char same[] = "same";
    int calls = 0;

    EXPECT(EXPECT(1 + 1 == 2));
    EXPECT(EXPECT_EQ_INT(-1, -1LL));
    EXPECT(EXPECT_EQ_U64(UINT64_MAX, ~0ULL));
    EXPECT(EXPECT_STREQ(same, "same"));
    EXPECT(EXPECT_STREQ(NULL, NULL));
    EXPECT(EXPECT_MEMEQ(same, "same", sizeof same));
    EXPECT(EXPECT_MEMEQ("abX", "abY", 2));
    EXPECT_EQ_INT(++calls, 1);
    EXPECT_EQ_INT(calls, 1);
}

TEST_CASE(shim, assertions_that_hold_go_on)
{
    static int reached;

    ASSERT(reached == 0);
    ASSERT_EQ_INT(2, 2);
    ASSERT_EQ_U64(2, 2);
    ASSERT_STREQ("a", "a");
    ASSERT_MEMEQ("a", "a", 1);
    reached++;
    EXPECT_EQ_INT(reached, 1);
}

TEST_CASE(shim, seed_is_stable)
{
    EXPECT_EQ_U64(test_seed(), test_seed());
}

static void *expect_in_thread(void *arg)
{
    EXPECT_STREQ(arg, "argument");
    return arg;
}

TEST_CASE(shim, expectations_work_in_threads)
{
    char argument[] = "argument";
    pthread_t thread;
    void *result = NULL;

    ASSERT_EQ_INT(pthread_create(&thread, NULL, expect_in_thread, argument), 0);
    ASSERT_EQ_INT(pthread_join(thread, &result), 0);
    EXPECT(result == argument);
}

static int status_of_child(void (*fn)(void))
{
    pid_t child = fork();
    int status = -1;

    ASSERT(child >= 0);
    if (child == 0) {
        fn();
        _exit(0);
    }
    ASSERT_EQ_INT(waitpid(child, &status, 0), child);
    ASSERT(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void child_holds(void)
{
    EXPECT(true);
}

static void child_fails(void)
{
    EXPECT_EQ_INT(1, 2);
}

static void child_skips(void)
{
    SKIP("on purpose");
}

TEST_CASE(shim, a_forked_childs_verdict_is_its_status)
{
    EXPECT_EQ_INT(status_of_child(child_holds), 0);
    EXPECT_EQ_INT(status_of_child(child_fails), 1);
    EXPECT_EQ_INT(status_of_child(child_skips), 77);
}

TEST_CASE(DISABLED_bad, expect)
{
    EXPECT(!EXPECT(1 == 2));
}

TEST_CASE(DISABLED_bad, expect_goes_on)
{
    EXPECT_EQ_INT(1, 2);
    FAILF("went on to %s", "here");
}

TEST_CASE(DISABLED_bad, eq_int)
{
    EXPECT_EQ_INT(2 - 5, 7);
}

TEST_CASE(DISABLED_bad, eq_u64)
{
    EXPECT_EQ_U64(UINT64_MAX, 16);
}

TEST_CASE(DISABLED_bad, streq)
{
    const char *none = NULL;

    EXPECT_STREQ("left", none);
}

TEST_CASE(DISABLED_bad, memeq)
{
    EXPECT_MEMEQ("abcd", "abXd", 4);
}

static void assert_below(void)
{
    int guard __attribute__((cleanup(count_cleanup))) = 0;

    ASSERT_EQ_INT(guard, 1);
    FAILF("an assertion that failed went on");
}

TEST_CASE(DISABLED_bad, assert_ends)
{
    assert_below();
    FAILF("an assertion that failed went on");
}

TEST_CASE(DISABLED_bad, assert_ends_cleaned_up)
{
    FAILF("cleanups: %d", cleanups);
}

static void *assert_in_thread(void *arg)
{
    ASSERT(arg != NULL);
    FAILF("an assertion that failed went on");
    return arg;
}

TEST_CASE(DISABLED_bad, assert_in_thread)
{
    pthread_t thread;

    ASSERT_EQ_INT(pthread_create(&thread, NULL, assert_in_thread, NULL), 0);
    ASSERT_EQ_INT(pthread_join(thread, NULL), 0);
    FAILF("the case itself went on");
}

TEST_CASE(DISABLED_bad, seed)
{
    EXPECT_EQ_U64(test_seed(), 0);
}

TEST_CASE(DISABLED_bad, skip)
{
    SKIP("no such device");
    FAILF("a skip went on");
}

TEST_CASE(DISABLED_bad, child_returns)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0)
        return;
    ASSERT_EQ_INT(waitpid(child, &status, 0), child);
    FAILF("status %d", WEXITSTATUS(status));
}

TEST_CASE(DISABLED_bad, dies)
{
    abort();
}
