/*
 * rules_own_test.c - what a process does with its rules: reads them once, tells of a broken file
 * once, and logs where they say. Each in a child, because it is once.
 */
#include "tests/unit/rules_part.h"

#include "config/log.h"
#include "config/reason.h"
#include "config/rules.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

/* Loads the rules of such a file in a child, after a look by fn, and returns what
 * went to stderr. */
static char *loaded(const char *path, void (*fn)(void))
{
    static char said[2048];
    const char *out = temporary();
    pid_t pid = fork();
    int status, fd;

    ASSERT(pid >= 0);
    if (pid == 0) {
        dup2(open(out, O_WRONLY | O_TRUNC), STDERR_FILENO);
        setenv("RAILSOCK_CONFIG", path, 1);
        cfg_init();
        EXPECT(!cfg_rules_loaded());
        EXPECT(cfg_rules_stream(CFG_CLIENT, AF_INET, (uint8_t[4]){0}, 1) == &cfg.stream);
        errno = 4711;
        cfg_rules_load();
        cfg_rules_load();
        EXPECT_EQ_INT(errno, 4711);
        EXPECT(cfg_rules_loaded());
        fn();
        _exit(0);
    }
    ASSERT(waitpid(pid, &status, 0) == pid);
    EXPECT_EQ_INT(status, 0);
    fd = open(out, O_RDONLY);
    ASSERT(fd >= 0);
    said[read(fd, said, sizeof(said) - 1)] = '\0';
    close(fd);
    unlink(out);
    return said;
}

static void all_on_tcp(void)
{
    const struct cfg_stream *s = cfg_rules_stream(CFG_SERVER, AF_INET, (uint8_t[4]){0}, 1);

    EXPECT_EQ_INT(s->mode, CFG_TCP);
    EXPECT_EQ_INT(s->reason, RSN_CONFIG);
}

TEST_CASE(rules_own, a_broken_file_is_told_once)
{
    char *said, *line;

    clear();
    said = loaded(FOLDER "broken.conf", all_on_tcp);
    line = strchr(said, '\n');
    EXPECT(strstr(said, FOLDER "broken.conf:1:16: expected stderr, syslog or file; 49 errors; this "
                               "program stays on TCP; railsock check shows all"));
    EXPECT(line && !line[1]);
    said = loaded("/no/such/file", all_on_tcp);
    EXPECT(strstr(said, ": /no/such/file: it is not there; 1 error;"));
}

/* No more of it from here on; returns the limit that there was. */
static struct rlimit without(__rlimit_resource_t resource)
{
    struct rlimit least, enough;

    EXPECT(getrlimit(resource, &enough) == 0);
    least = enough;
    least.rlim_cur = 0;
    EXPECT(setrlimit(resource, &least) == 0);
    return enough;
}

/* Whose limits are its own. */
static void in_child(void (*fn)(void))
{
    pid_t pid;
    int status;

    clear();
    pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        fn();
        _exit(0);
    }
    ASSERT(waitpid(pid, &status, 0) == pid);
    EXPECT_EQ_INT(status, 0);
}

static void without_memory(void)
{
    struct rlimit enough = without(RLIMIT_AS);

    cfg_rules_load();
    EXPECT(setrlimit(RLIMIT_AS, &enough) == 0);
    EXPECT_EQ_INT(cfg_rules_base()->mode, CFG_TCP);
    EXPECT_EQ_INT(cfg_rules_base()->reason, RSN_NO_MEMORY);
}

TEST_CASE(rules_own, without_memory_they_are_not_wrong)
{
    in_child(without_memory);
}

static void settings_of_this(void)
{
    const struct cfg_stream *s = cfg_rules_stream(CFG_CLIENT, AF_INET, (uint8_t[4]){0}, 7000);

    EXPECT(s != &cfg.stream);
    EXPECT_EQ_INT(s->spin_ns, 0);
    EXPECT_EQ_U64(cfg_rules_base()->max_rails, 10);
    s->use->rails = 3;
    cfg_rules_forget();
    EXPECT_EQ_INT(s->use->rails, 0);
}

TEST_CASE(rules_own, of_this_process)
{
    clear();
    EXPECT_STREQ(loaded(FOLDER "match.conf", settings_of_this), "");
}

static void no_rules(void)
{
    EXPECT(cfg_rules_base() == &cfg.stream);
    EXPECT(cfg_rules_stream(CFG_CLIENT, AF_INET, (uint8_t[4]){0}, 1) == &cfg.stream);
}

TEST_CASE(rules_own, none)
{
    clear();
    EXPECT_STREQ(loaded("/dev/null", no_rules), "");
    setenv("RAILSOCK_MODE", "tcp", 1); /* there is nothing to be decided: it is not even opened */
    EXPECT_STREQ(loaded("/no/such/file", no_rules), "");
    clear();
}

static void log_something(void)
{
    log_debug("to the rules' file");
}

static void without_a_descriptor(void)
{
    struct rlimit enough;

    setenv("RAILSOCK_CONFIG", FOLDER "match.conf", 1);
    cfg_init();
    enough = without(RLIMIT_NOFILE);
    EXPECT(!cfg_rules_load());
    EXPECT(!cfg_rules_loaded());
    EXPECT(setrlimit(RLIMIT_NOFILE, &enough) == 0);
    EXPECT(cfg_rules_load());
    settings_of_this();
}

TEST_CASE(rules_own, without_a_descriptor_they_are_read_later)
{
    in_child(without_a_descriptor);
}

TEST_CASE(rules_own, log)
{
    const char *name = strdup(temporary()), *rules = strdup(temporary());
    char text[100], *got;

    clear();
    snprintf(text, sizeof(text), "log destination file %s min-level 1\n", name);
    fill(rules, text, 1);
    EXPECT_STREQ(loaded(rules, log_something), "");
    got = file_text(name);
    EXPECT(strstr(got, "to the rules' file"));
    free(got);
    setenv("RAILSOCK_LOG", "debug", 1);
    EXPECT(strstr(loaded(rules, log_something), "to the rules' file"));
    clear();
    unlink(name);
    unlink(rules);
    free((void *)name);
    free((void *)rules);
}

/* In a /dev of its own, where it is what listens to the log. */
static void syslog_child(const char *rules)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "/dev/log"};
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0), err = memfd_create("stderr", MFD_CLOEXEC);
    char text[900], *line;
    ssize_t n;

    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", "/dev", "tmpfs", 0, NULL) < 0)
        _exit(77);
    EXPECT(bind(fd, (struct sockaddr *)&un, sizeof(un)) == 0);
    setenv("RAILSOCK_CONFIG", rules, 1);
    cfg_init();
    cfg_rules_load();
    log_info("to the system");
    n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);
    EXPECT(n > 0);
    text[n > 0 ? n : 0] = '\0';
    EXPECT(strncmp(text, "<14>railsock[", 13) == 0); /* LOG_USER, LOG_INFO */
    EXPECT(strstr(text, " info: to the system") && !strchr(text, '\n'));
    /* A daemon's worker, whose user could open no file of root's. */
    EXPECT(chmod("/dev/log", 0666) == 0 && setresuid(65534, 65534, 65534) == 0);
    log_info("of nobody");
    n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);
    text[n > 0 ? n : 0] = '\0';
    EXPECT(strstr(text, " info: of nobody"));
    close(fd);
    dup2(err, STDERR_FILENO);
    log_info("to nobody");
    log_info("who listens");
    n = pread(err, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    line = strchr(text, '\n');
    EXPECT(
        line &&
        strstr(text,
               " error: the log /dev/log could not be written to by user 65534: nobody reads it;"));
    EXPECT(line && strstr(line, " info: to nobody\n"));
    line = line ? strchr(line + 1, '\n') : NULL;
    EXPECT(line && strstr(line, " info: who listens\n") && !strchr(line + 1, '\n')[1]);
    _exit(0);
}

TEST_CASE(rules_own, log_to_syslog)
{
    const char *rules = temporary();
    pid_t pid;
    int status;

    clear();
    fill(rules, "log destination syslog min-level 7\n", 1);
    pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0)
        syslog_child(rules);
    ASSERT(waitpid(pid, &status, 0) == pid);
    unlink(rules);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        SKIP("a mount namespace cannot be had");
    EXPECT_EQ_INT(status, 0);
}

static void put(const char *name, const char *text)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    ASSERT(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

/* What the process's streams, and those of a rule, may have where the control group has 64 MiB. */
static void confined_child(const char *rules, uint64_t process)
{
    struct cfg_rules looked;

    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", "/sys/fs/cgroup", "tmpfs", 0, NULL) < 0)
        _exit(77);
    put("/sys/fs/cgroup/memory.max", "67108864\n");
    ASSERT(mkdir("/sys/fs/cgroup/memory", 0755) == 0);
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "67108864\n");
    setenv("RAILSOCK_CONFIG", rules, 1);
    cfg_init();
    ASSERT(cfg_rules_load());
    EXPECT_EQ_INT(cfg_rules_base()->max_memory, process);
    EXPECT_EQ_INT(cfg_rules_stream(CFG_SERVER, AF_INET, (uint8_t[4]){0}, 1)->max_memory, process);
    /* As check and doctor read them. */
    ASSERT(cfg_rules_begin(&looked));
    cfg_rules_read_all(&looked);
    cfg_rules_settle(&looked);
    EXPECT_EQ_INT(looked.base.max_memory, process);
    cfg_rules_end(&looked);
    _exit(0);
}

static void confined(const char *text, const char *env, uint64_t process)
{
    const char *rules = temporary();
    pid_t pid;
    int status;

    clear();
    fill(rules, text, 1);
    pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        if (env)
            setenv("RAILSOCK_MEMORY", env, 1);
        confined_child(rules, process);
    }
    ASSERT(waitpid(pid, &status, 0) == pid);
    unlink(rules);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        SKIP("a mount namespace cannot be had");
    EXPECT_EQ_INT(status, 0);
}

TEST_CASE(rules_own, memory_of_a_control_group)
{
    confined("", NULL, 16 << 20);
    confined("log min-level 9\n", NULL, 16 << 20);
    confined("defaults idle 5\n", NULL, 16 << 20);
    confined("defaults memory 40m\n", NULL, 40 << 20); /* somebody has said so */
    confined("", "50m", 50 << 20);
}
