/*
 * env_test.c - what each RAILSOCK_* value means, what is said of a broken one, and that a
 * set-user-ID program listens to none of them.
 */
#include "config/env.h"
#include "config/log.h"
#include "tests/shim/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const names[] = {"RAILSOCK_MODE",
                                    "RAILSOCK_WIRE",
                                    "RAILSOCK_BOARD",
                                    "RAILSOCK_SPIN",
                                    "RAILSOCK_RING",
                                    "RAILSOCK_PROGRESS",
                                    "RAILSOCK_SECCOMP",
                                    "RAILSOCK_IO_URING",
                                    "RAILSOCK_LOG",
                                    "RAILSOCK_RAILS",
                                    "RAILSOCK_MEMORY",
                                    "RAILSOCK_IDLE",
                                    "RAILSOCK_STALL",
                                    "RAILSOCK_TOS",
                                    "RAILSOCK_CONFIG",
                                    "RAILSOCK_KEEP",
                                    "RAILSOCK_KEY",
                                    "RAILSOCK_TEST_SWITCH",
                                    NULL};

static void clear(void)
{
    for (int i = 0; names[i]; i++)
        unsetenv(names[i]);
}

/* Reads the environment with one variable set, or none; what was printed is in said[]. */
static char said[2048];

static void load(const char *name, const char *value)
{
    char file[] = "/tmp/env_test.XXXXXX";
    int fd = mkstemp(file);
    int err = dup(STDERR_FILENO);
    ssize_t n;

    ASSERT(fd >= 0 && err >= 0);
    unlink(file);
    clear();
    if (name)
        setenv(name, value, 1);
    dup2(fd, STDERR_FILENO);
    errno = 4711;
    cfg_init();
    EXPECT_EQ_INT(errno, 4711);
    dup2(err, STDERR_FILENO);
    n = pread(fd, said, sizeof(said) - 1, 0);
    said[n > 0 ? n : 0] = '\0';
    close(fd);
    close(err);
    clear();
}

static bool same(const struct cfg *a, const struct cfg *b)
{
    return a->stream.mode == b->stream.mode && a->stream.wire == b->stream.wire &&
           a->stream.board_never == b->stream.board_never &&
           a->stream.board_calls == b->stream.board_calls &&
           a->stream.board_bytes == b->stream.board_bytes &&
           a->stream.spin_ns == b->stream.spin_ns && a->stream.spin_auto == b->stream.spin_auto &&
           a->stream.ring == b->stream.ring && a->uring == b->uring &&
           a->test_switch == b->test_switch && a->log_level == b->log_level &&
           strcmp(a->log_file, b->log_file) == 0;
}

TEST_CASE(env, defaults)
{
    load(NULL, NULL);
    EXPECT_STREQ(said, "");
    EXPECT_EQ_INT(cfg.stream.mode, CFG_AUTO);
    EXPECT_EQ_INT(cfg.stream.wire, CFG_WIRE_AUTO);
    EXPECT(!cfg.stream.board_never);
    EXPECT_EQ_INT(cfg.stream.board_calls, 8);
    EXPECT_EQ_U64(cfg.stream.board_bytes, 65536);
    EXPECT_EQ_INT(cfg.stream.spin_ns, 20000);
    EXPECT(cfg.stream.spin_auto);
    EXPECT_EQ_INT(cfg.stream.ring, 0);
    EXPECT_EQ_INT(cfg.stream.max_rails, 1024);
    EXPECT_EQ_U64(cfg.stream.max_memory, 512 << 20);
    EXPECT_EQ_U64(cfg.stream.idle_ns, 60000000000u);
    EXPECT(cfg.uring);
    EXPECT_EQ_INT(cfg.log_level, CFG_LOG_ERROR);
    EXPECT_STREQ(cfg.log_file, "");
}

TEST_CASE(env, an_empty_value_is_none)
{
    load("RAILSOCK_MODE", "");
    EXPECT_STREQ(said, "");
    EXPECT_EQ_INT(cfg.stream.mode, CFG_AUTO);
}

TEST_CASE(env, each_value)
{
    load("RAILSOCK_MODE", "tcp");
    EXPECT_EQ_INT(cfg.stream.mode, CFG_TCP);
    load("RAILSOCK_MODE", "rail");
    EXPECT_EQ_INT(cfg.stream.mode, CFG_RAIL);
    EXPECT_EQ_INT(cfg.stream.board_calls, 1);
    load("RAILSOCK_WIRE", "verbs");
    EXPECT_EQ_INT(cfg.stream.wire, CFG_WIRE_VERBS);
    load("RAILSOCK_BOARD", "never");
    EXPECT(cfg.stream.board_never);
    load("RAILSOCK_BOARD", "eager");
    EXPECT_EQ_INT(cfg.stream.board_calls, 1);
    load("RAILSOCK_BOARD", "auto");
    EXPECT_EQ_INT(cfg.stream.board_calls, 8);
    EXPECT_EQ_U64(cfg.stream.board_bytes, 65536);
    EXPECT_EQ_INT(cfg.env.given, 1 << CFG_BOARD);
    load("RAILSOCK_BOARD", "after=20");
    EXPECT_EQ_INT(cfg.stream.board_calls, 20);
    EXPECT_EQ_U64(cfg.stream.board_bytes, UINT64_MAX);
    load("RAILSOCK_BOARD", "after=2m");
    EXPECT_EQ_INT(cfg.stream.board_calls, UINT32_MAX);
    EXPECT_EQ_U64(cfg.stream.board_bytes, 2 << 20);
    load("RAILSOCK_SPIN", "0");
    EXPECT_EQ_INT(cfg.stream.spin_ns, 0);
    load("RAILSOCK_SPIN", "1000000");
    EXPECT_EQ_INT(cfg.stream.spin_ns, 1000000000);
    EXPECT(!cfg.stream.spin_auto);
    load("RAILSOCK_SPIN", "auto");
    EXPECT(cfg.stream.spin_auto);
    load("RAILSOCK_RAILS", "0");
    EXPECT_EQ_INT(cfg.stream.max_rails, 0);
    load("RAILSOCK_MEMORY", "64m");
    EXPECT_EQ_U64(cfg.stream.max_memory, 64 << 20);
    load("RAILSOCK_MEMORY", "3g");
    EXPECT_EQ_U64(cfg.stream.max_memory, UINT64_C(3) << 30);
    load("RAILSOCK_IDLE", "5");
    EXPECT_EQ_U64(cfg.stream.idle_ns, 5000000000u);
    load("RAILSOCK_STALL", "7");
    EXPECT_EQ_U64(cfg.stream.stall_ns, 7000000u);
    load("RAILSOCK_TOS", "104");
    EXPECT_EQ_INT(cfg.stream.tos, 104);
    EXPECT_EQ_INT(cfg.env.given, 1 << CFG_TOS);
    load("RAILSOCK_KEY", "/etc/x.key");
    EXPECT_STREQ(cfg.env.key_file, "/etc/x.key");
    EXPECT(!cfg.stream.site_key);
    load("RAILSOCK_KEY", "none");
    EXPECT(!cfg.env.key_file);
    EXPECT_EQ_INT(cfg.env.given, 1 << CFG_SITE_KEY);
    load("RAILSOCK_CONFIG", "/etc/x.conf");
    EXPECT_STREQ(cfg.rules_file, "/etc/x.conf");
    EXPECT(cfg.rules);
    EXPECT(!cfg.seccomp_rail);
    load("RAILSOCK_KEEP", "/dev/shm/railsock-keep.abcdef");
    EXPECT_STREQ(cfg.keep, "/dev/shm/railsock-keep.abcdef");
    load("RAILSOCK_SECCOMP", "rail");
    EXPECT(cfg.seccomp_rail);
    EXPECT(!cfg.ring_for_files);
    load("RAILSOCK_IO_URING", "files");
    EXPECT(cfg.ring_for_files);
    EXPECT(cfg.uring);
    load("RAILSOCK_PROGRESS", "epoll");
    EXPECT(!cfg.uring);
    EXPECT_STREQ(said, "");
}

TEST_CASE(env, ring_is_a_power_of_two)
{
    static const struct {
        const char *text;
        uint32_t ring;
    } cases[] = {
        {"0", 0},         {"1", 4096},         {"4096", 4096},   {"4097", 8192},
        {"64k", 1 << 16}, {"100k", 128 << 10}, {"1M", 1u << 20}, {"64m", 64u << 20},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        load("RAILSOCK_RING", cases[i].text);
        EXPECT_EQ_U64(cfg.stream.ring, cases[i].ring);
        EXPECT_STREQ(said, "");
    }
}

TEST_CASE(env, a_board_policy_stands_above_the_mode)
{
    clear();
    setenv("RAILSOCK_MODE", "rail", 1);
    setenv("RAILSOCK_BOARD", "after=3", 1);
    cfg_init();
    clear();
    EXPECT_EQ_INT(cfg.stream.mode, CFG_RAIL);
    EXPECT_EQ_INT(cfg.stream.board_calls, 3);
}

TEST_CASE(env, a_broken_value_is_said_once_and_not_used)
{
    load("RAILSOCK_SPIN", "abc");
    EXPECT_STREQ(said, "railsock: RAILSOCK_SPIN=abc: expected microseconds, 0 to 1000000, or auto; "
                       "not used\n");
    EXPECT_EQ_INT(cfg.stream.spin_ns, 20000);
}

/* What then holds the rules may say. */
TEST_CASE(env, only_of_what_no_rule_says_is_it_said_what_holds)
{
    load("RAILSOCK_BOARD", "soon");
    EXPECT(strstr(said, "; not used\n"));
    load("RAILSOCK_LOG", "verbose");
    EXPECT(strstr(said, "; not used\n"));
    load("RAILSOCK_SECCOMP", "allow");
    EXPECT(strstr(said, ": expected tcp or rail; using tcp\n"));
}

TEST_CASE(env, broken_values)
{
    static const char *const broken[][2] = {
        {"RAILSOCK_WIRE", "rdma"},
        {"RAILSOCK_BOARD", "after"},
        {"RAILSOCK_BOARD", "after="},
        {"RAILSOCK_BOARD", "after=0"},
        {"RAILSOCK_BOARD", "after=0k"},
        {"RAILSOCK_BOARD", "after=-1"},
        {"RAILSOCK_BOARD", "after=1g"},
        {"RAILSOCK_BOARD", "after=99999999999999999999999"},
        {"RAILSOCK_SPIN", "-1"},
        {"RAILSOCK_SPIN", "1000001"},
        {"RAILSOCK_SPIN", "20us"},
        {"RAILSOCK_SPIN", " 20"},
        {"RAILSOCK_RING", "65m"},
        {"RAILSOCK_RING", "18014398509481984k"},
        {"RAILSOCK_RING", "k"},
        {"RAILSOCK_MEMORY", "1t"},
        {"RAILSOCK_MEMORY", "8589934592g"},
        {"RAILSOCK_RING", "4kk"},
        {"RAILSOCK_PROGRESS", "uring"},
        {"RAILSOCK_KEEP", "/tmp/x"},
        {"RAILSOCK_KEEP", "/dev/shm/a-name-that-is-too-long-for-the-place-that-it-has-in-there"},
        {"RAILSOCK_SECCOMP", "allow"},
        {"RAILSOCK_IO_URING", "rail"},
        {"RAILSOCK_TEST_SWITCH", "12abc"},
        {"RAILSOCK_TEST_SWITCH", "4294967296"},
        {"RAILSOCK_LOG", "verbose"},
        {"RAILSOCK_LOG", "debug:"},
        {"RAILSOCK_LOG", ":/tmp/x"},
    };
    struct cfg before;

    load(NULL, NULL);
    before = cfg;
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        char start[128];

        load(broken[i][0], broken[i][1]);
        snprintf(start, sizeof(start), "railsock: %s=%s: expected ", broken[i][0], broken[i][1]);
        if (strncmp(said, start, strlen(start)) != 0)
            FAILF("%s=%s: said \"%s\"", broken[i][0], broken[i][1], said);
        EXPECT(same(&before, &cfg));
    }
}

/* Who wanted to keep a program on TCP and mistyped it. */
TEST_CASE(env, a_broken_mode_is_tcp)
{
    static const char *const broken[] = {"TCP", "tcpp", "tcp ", "fast"};

    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        load("RAILSOCK_MODE", broken[i]);
        EXPECT(strstr(said, ": expected auto, tcp or rail; using tcp\n"));
        EXPECT_EQ_INT(cfg.stream.mode, CFG_TCP);
        EXPECT_EQ_INT(cfg.env.given, 1 << CFG_MODE);
        EXPECT(!cfg.rules);
    }
    load("RAILSOCK_MODE", "");
    EXPECT_STREQ(said, "");
    EXPECT_EQ_INT(cfg.stream.mode, CFG_AUTO);
}

TEST_CASE(env, a_users_file_with_a_long_name)
{
    const char *set = getenv("HOME");
    char path[600] = "/", *home = set ? strdup(set) : NULL;

    memset(path + 1, 'x', sizeof(path) - 2);
    setenv("XDG_CONFIG_HOME", path, 1);
    load(NULL, NULL);
    EXPECT(strstr(said, ": expected a path below 490 bytes; using no rules of the user's\n"));
    EXPECT(!cfg.user_file[0]);
    unsetenv("XDG_CONFIG_HOME");
    setenv("HOME", path, 1);
    load(NULL, NULL);
    EXPECT(strncmp(said, "railsock: HOME=/xxx", 19) == 0);
    if (home)
        setenv("HOME", home, 1);
    else
        unsetenv("HOME");
    free(home);
}

TEST_CASE(env, commands_can_ask_first)
{
    EXPECT(cfg_is_setting("RAILSOCK_BOARD") && cfg_is_setting("RAILSOCK_LOG"));
    EXPECT(!cfg_is_setting("RAILSOCK_NONE"));
}

TEST_CASE(env, commands_can_ask_what_is_expected)
{
    struct cfg before = cfg;

    EXPECT(!cfg_expected("RAILSOCK_BOARD", "after=4"));
    EXPECT_STREQ(cfg_expected("RAILSOCK_WIRE", "x"), "auto, shm or verbs");
    EXPECT(cfg_expected("RAILSOCK_NONE", "x"));
    EXPECT(same(&before, &cfg));
}

TEST_CASE(env, a_hostile_value_stays_one_line)
{
    char value[3000];
    size_t n;

    memset(value, 'x', sizeof(value) - 1);
    value[3] = '\n';
    value[4] = '\033';
    value[sizeof(value) - 1] = '\0';
    load("RAILSOCK_MODE", value);
    n = strlen(said);
    ASSERT(n > 0 && n < 400);
    EXPECT(strchr(said, '\n') == said + n - 1);
    EXPECT(!strchr(said, '\033'));
}

TEST_CASE(env, log_level_and_file)
{
    char long_name[400] = "debug:/", cwd[150], want[200];

    load("RAILSOCK_LOG", "info");
    EXPECT_EQ_INT(cfg_log_level, CFG_LOG_INFO);
    load("RAILSOCK_LOG", "debug:/tmp/a:b");
    EXPECT_EQ_INT(cfg_log_level, CFG_LOG_DEBUG);
    EXPECT_STREQ(cfg.log_file, "/tmp/a:b");
    ASSERT(getcwd(cwd, sizeof(cwd)));
    snprintf(want, sizeof(want), "%s/here", cwd);
    load("RAILSOCK_LOG", "warn:here");
    EXPECT_STREQ(cfg.log_file, want);
    memset(long_name + 7, 'x', sizeof(long_name) - 8);
    load("RAILSOCK_LOG", long_name);
    EXPECT(said[0] == 'r');
    EXPECT_EQ_INT(cfg_log_level, CFG_LOG_ERROR);
}

/* Runs before main() in the set-user-ID copy of this program, which cannot take arguments. */
__attribute__((constructor)) static void secure_copy(void)
{
    if (!getenv("ENV_TEST_SECURE"))
        return;
    cfg_init();
    _exit(cfg.stream.mode == CFG_TCP && cfg.stream.board_never && cfg.log_level == CFG_LOG_ERROR &&
                  !cfg.log_file[0]
              ? 0
              : 1);
}

static bool copy_self(const char *to)
{
    int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    char buf[1 << 16];
    ssize_t n = -1;

    while (in >= 0 && out >= 0 && (n = read(in, buf, sizeof(buf))) > 0)
        if (write(out, buf, (size_t)n) != n)
            break;
    close(in);
    return n == 0 && fchmod(out, 04755) == 0 && close(out) == 0;
}

TEST_CASE(env, set_user_id_programs_stay_on_tcp)
{
    char dir[] = "/tmp/env_test.XXXXXX", file[64];
    struct statvfs fs;
    int status = -1;
    pid_t pid;

    if (geteuid() != 0)
        SKIP("only root can make a set-user-ID program");
    ASSERT(mkdtemp(dir));
    snprintf(file, sizeof(file), "%s/copy", dir);
    if (statvfs(dir, &fs) == 0 && (fs.f_flag & ST_NOSUID)) {
        rmdir(dir);
        SKIP("/tmp is mounted nosuid");
    }
    ASSERT(chmod(dir, 0755) == 0);
    ASSERT(copy_self(file));
    pid = fork();
    if (pid == 0) {
        setenv("ENV_TEST_SECURE", "1", 1);
        setenv("RAILSOCK_MODE", "rail", 1);
        setenv("RAILSOCK_LOG", "debug:/tmp/env_test.must-not-exist", 1);
        if (setresuid(65534, 65534, 65534) == 0)
            execl(file, file, (char *)NULL);
        _exit(2);
    }
    EXPECT(waitpid(pid, &status, 0) == pid);
    EXPECT_EQ_INT(status, 0);
    unlink(file);
    rmdir(dir);
}
