/*
 * shim.h - test cases in C that googletest runs.
 *
 *     TEST_CASE(ring, wraps)
 *     {
 *         struct ring *r = ring_new(16);
 *
 *         ASSERT(r != NULL);
 *         EXPECT_EQ_U64(ring_free(r), 16);
 *     }
 *
 * EXPECT* note a failure and go on; they are true when the expectation held. ASSERT* and
 * SKIP end the case by unwinding, so cleanup attributes still run (-fexceptions is needed
 * in every file on the way). Arguments are evaluated once.
 *
 * In another thread EXPECT* work as well; ASSERT* and SKIP end that thread only.
 * In a forked child a failure is printed and ends the child with status 1, and SKIP with 77:
 * let the parent check the child's status. A child that returns from its case gets status 98.
 */
#ifndef RAILSOCK_TESTS_SHIM_H
#define RAILSOCK_TESTS_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shim_case {
    const char *suite, *name, *file;
    int line;
    void (*fn)(void);
    struct shim_case *next;
};

void shim_register(struct shim_case *c);

/* Each notes a failure unless it holds, and returns whether it held. */
bool shim_true(const char *file, int line, const char *text, bool holds);
bool shim_eq_int(const char *file, int line, const char *ta, const char *tb, long long a,
                 long long b);
bool shim_eq_u64(const char *file, int line, const char *ta, const char *tb, uint64_t a,
                 uint64_t b);
bool shim_streq(const char *file, int line, const char *ta, const char *tb, const char *a,
                const char *b);
bool shim_memeq(const char *file, int line, const char *ta, const char *tb, const void *a,
                const void *b, size_t n);
/* Notes a failure and returns false. */
bool shim_fail(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

void shim_end(void) __attribute__((noreturn));
void shim_skip(const char *file, int line, const char *reason) __attribute__((noreturn));

/*
 * The seed of whatever a case does at random: RAILSOCK_TEST_SEED, or a fixed default. It is
 * printed when a case fails.
 */
uint64_t test_seed(void);

#ifdef __cplusplus
}
#endif

#define TEST_CASE(suite_, name_)                                                                   \
    static void suite_##_##name_##_case(void);                                                     \
    __attribute__((constructor)) static void suite_##_##name_##_register(void)                     \
    {                                                                                              \
        static struct shim_case c = {#suite_, #name_, __FILE__, __LINE__, suite_##_##name_##_case, \
                                     NULL};                                                        \
        shim_register(&c);                                                                         \
    }                                                                                              \
    static void suite_##_##name_##_case(void)

#define SHIM_HERE    __FILE__, __LINE__
#define SHIM_END_(x) ((x) ? (void)0 : shim_end())
/* Written out, so that static analysis knows what holds afterwards. */
#define ASSERT(cond) ((cond) ? (void)0 : ((void)shim_true(SHIM_HERE, #cond, false), shim_end()))

#define EXPECT(cond)          shim_true(SHIM_HERE, #cond, cond)
#define EXPECT_EQ_INT(a, b)   shim_eq_int(SHIM_HERE, #a, #b, (long long)(a), (long long)(b))
#define EXPECT_EQ_U64(a, b)   shim_eq_u64(SHIM_HERE, #a, #b, (uint64_t)(a), (uint64_t)(b))
#define EXPECT_STREQ(a, b)    shim_streq(SHIM_HERE, #a, #b, a, b)
#define EXPECT_MEMEQ(a, b, n) shim_memeq(SHIM_HERE, #a, #b, a, b, n)
#define FAILF(...)            ((void)shim_fail(SHIM_HERE, __VA_ARGS__))

#define ASSERT_EQ_INT(a, b)   SHIM_END_(EXPECT_EQ_INT(a, b))
#define ASSERT_EQ_U64(a, b)   SHIM_END_(EXPECT_EQ_U64(a, b))
#define ASSERT_STREQ(a, b)    SHIM_END_(EXPECT_STREQ(a, b))
#define ASSERT_MEMEQ(a, b, n) SHIM_END_(EXPECT_MEMEQ(a, b, n))
#define SKIP(reason)          shim_skip(SHIM_HERE, reason)

#endif
