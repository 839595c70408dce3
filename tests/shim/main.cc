/*
 * main.cc - main() of every unit test: gives the C cases of shim.h to googletest.
 *
 * The only C++ of the tree. A case that ends early throws EndCase through the C frames, which
 * -fexceptions allows and which, unlike longjmp, runs their cleanup attributes.
 *
 * With RAILSOCK_TEST_RESULTS=FILE each case appends to FILE, for tests/run:
 *     run NAME            before it starts, so that a crash has a name
 *     ok NAME
 *     not ok NAME: why
 *     skip NAME: why
 */
#include "tests/shim/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <string>

#include <gtest/gtest.h>

namespace
{

const uint64_t default_seed = 20240229;

struct EndCase {
};

/* Constructors of other files may run first: constant-initialised, so it is there by then. */
struct shim_case *first_case;
struct shim_case **last_case = &first_case;

pid_t main_pid;
uint64_t seed = default_seed;
thread_local bool on_case_thread;

bool in_child(void)
{
    return getpid() != main_pid;
}

class CCase : public ::testing::Test
{
  public:
    explicit CCase(const struct shim_case *c) : c_(c)
    {
    }

    void TestBody() override
    {
        on_case_thread = true;
        try {
            c_->fn();
        } catch (const EndCase &) {
        }
        on_case_thread = false;
        if (in_child()) {
            dprintf(STDERR_FILENO, "%s:%d: a forked child came back from its case\n", c_->file,
                    c_->line);
            _exit(98);
        }
    }

  private:
    const struct shim_case *c_;
};

class Results : public ::testing::EmptyTestEventListener
{
  public:
    explicit Results(const char *file) : file_(file ? file : "")
    {
    }

    void OnTestStart(const ::testing::TestInfo &info) override
    {
        line("run ", info, nullptr);
    }

    void OnTestEnd(const ::testing::TestInfo &info) override
    {
        const ::testing::TestResult &result = *info.result();

        if (result.Failed()) {
            printf("    with RAILSOCK_TEST_SEED=%llu\n", (unsigned long long)seed);
            line("not ok ", info, &result);
        } else if (result.Skipped()) {
            line("skip ", info, &result);
        } else {
            line("ok ", info, nullptr);
        }
    }

  private:
    std::string file_;
    /* What ADD_FAILURE_AT puts first. */
    const std::string failed_ = "Failed\n";

    /* Opened anew for each line: a case may count, close or run out of descriptors. */
    void line(const char *verdict, const ::testing::TestInfo &info,
              const ::testing::TestResult *result)
    {
        std::string text = std::string(verdict) + info.test_suite_name() + "." + info.name();

        if (file_.empty())
            return;
        if (result)
            text += ": " + why(*result);
        text += "\n";
        int fd = open(file_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0 || write(fd, text.data(), text.size()) != (ssize_t)text.size()) {
            perror(file_.c_str());
            _exit(97);
        }
        close(fd);
    }

    /* The part that decided: the first failure, or the skip. One line. */
    std::string why(const ::testing::TestResult &result) const
    {
        for (int i = 0; i < result.total_part_count(); i++) {
            const ::testing::TestPartResult &part = result.GetTestPartResult(i);
            if (result.Failed() ? !part.failed() : !part.skipped())
                continue;
            std::string text = part.summary();
            if (text.compare(0, failed_.size(), failed_) == 0)
                text.erase(0, failed_.size());
            if (part.failed() && part.file_name())
                text = std::string(part.file_name()) + ":" + std::to_string(part.line_number()) +
                       ": " + text;
            for (char &ch : text)
                if (ch == '\n')
                    ch = ' ';
            return text;
        }
        return "no reason given";
    }
};

void note_skip(const char *reason)
{
    GTEST_SKIP() << reason;
}

uint64_t seed_of_environment(void)
{
    const char *text = getenv("RAILSOCK_TEST_SEED");
    char *end;

    if (!text || !*text)
        return default_seed;
    errno = 0;
    uint64_t value = strtoull(text, &end, 0);
    if (errno || *end) {
        fprintf(stderr, "RAILSOCK_TEST_SEED=%s is not a number\n", text);
        exit(2);
    }
    return value;
}

std::string quoted(const char *s)
{
    return s ? "\"" + std::string(s) + "\"" : "NULL";
}

} // namespace

extern "C" {

void shim_register(struct shim_case *c)
{
    *last_case = c;
    last_case = &c->next;
}

void shim_end(void)
{
    if (on_case_thread)
        throw EndCase();
    pthread_exit(nullptr);
}

void shim_skip(const char *file, int line, const char *reason)
{
    if (in_child()) {
        dprintf(STDERR_FILENO, "%s:%d: skipped in a forked child: %s\n", file, line, reason);
        _exit(77);
    }
    note_skip(reason);
    shim_end();
}

bool shim_fail(const char *file, int line, const char *fmt, ...)
{
    char text[2048];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (in_child()) {
        dprintf(STDERR_FILENO, "%s:%d: in a forked child: %s\n", file, line, text);
        _exit(1);
    }
    ADD_FAILURE_AT(file, line) << text;
    return false;
}

bool shim_true(const char *file, int line, const char *text, bool holds)
{
    return holds || shim_fail(file, line, "not true: %s", text);
}

bool shim_eq_int(const char *file, int line, const char *ta, const char *tb, long long a,
                 long long b)
{
    if (a == b)
        return true;
    return shim_fail(file, line, "%s is %lld, %s is %lld", ta, a, tb, b);
}

bool shim_eq_u64(const char *file, int line, const char *ta, const char *tb, uint64_t a, uint64_t b)
{
    if (a == b)
        return true;
    return shim_fail(file, line, "%s is %llu (0x%llx), %s is %llu (0x%llx)", ta,
                     (unsigned long long)a, (unsigned long long)a, tb, (unsigned long long)b,
                     (unsigned long long)b);
}

bool shim_streq(const char *file, int line, const char *ta, const char *tb, const char *a,
                const char *b)
{
    if (a == b || (a && b && strcmp(a, b) == 0))
        return true;
    return shim_fail(file, line, "%s is %s, %s is %s", ta, quoted(a).c_str(), tb,
                     quoted(b).c_str());
}

bool shim_memeq(const char *file, int line, const char *ta, const char *tb, const void *a,
                const void *b, size_t n)
{
    const unsigned char *x = static_cast<const unsigned char *>(a);
    const unsigned char *y = static_cast<const unsigned char *>(b);
    size_t i = 0;

    while (i < n && x[i] == y[i])
        i++;
    if (i == n)
        return true;
    return shim_fail(file, line, "%s and %s differ first at offset %zu of %zu: 0x%02x, 0x%02x", ta,
                     tb, i, n, x[i], y[i]);
}

uint64_t test_seed(void)
{
    return seed;
}

} /* extern "C" */

int main(int argc, char **argv)
{
    main_pid = getpid();
    ::testing::InitGoogleTest(&argc, argv);
    if (argc > 1) {
        fprintf(stderr, "%s: unknown argument %s\n", argv[0], argv[1]);
        return 2;
    }
    seed = seed_of_environment();
    ::testing::UnitTest::GetInstance()->listeners().Append(
        new Results(getenv("RAILSOCK_TEST_RESULTS")));
    for (const struct shim_case *c = first_case; c; c = c->next)
        ::testing::RegisterTest(c->suite, c->name, nullptr, nullptr, c->file, c->line,
                                [c]() -> CCase * { return new CCase(c); });
    return RUN_ALL_TESTS();
}
