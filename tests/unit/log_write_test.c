/*
 * log_write_test.c - what a line of the log looks like, and where it goes if its
 * file cannot be had.
 */
#include "config/env.h"
#include "config/log.h"
#include "tests/shim/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char said[2048]; /* on stderr */

/* No variable of who runs this is meant. */
__attribute__((constructor)) static void no_settings(void)
{
    unsetenv("RAILSOCK_LOG");
    unsetenv("RAILSOCK_CONFIG");
}

TEST_CASE(log, one_line_and_errno_is_kept)
{
    char file[] = "/tmp/log_write_test.XXXXXX", text[4096], fill[2000];
    int fd = mkstemp(file);
    ssize_t n;

    ASSERT(fd >= 0);
    cfg_init();
    snprintf(cfg.log_file, sizeof(cfg.log_file), "%s", file);
    cfg_log_level = CFG_LOG_WARN;
    memset(fill, 'y', sizeof(fill) - 1);
    fill[sizeof(fill) - 1] = '\0';
    errno = 4711;
    log_info("not seen");
    log_warn("one\ntwo\xc2\x9b %d", 3);
    log_error("%s", fill);
    EXPECT_EQ_INT(errno, 4711);
    cfg_init();
    n = pread(fd, text, sizeof(text) - 1, 0);
    ASSERT(n > 0);
    text[n] = '\0';
    EXPECT(strstr(text, " log_write_test warn: one?two?? 3\n"));
    EXPECT(!strstr(text, "not seen"));
    EXPECT(n < 700);
    EXPECT(strchr(strchr(text, '\n') + 1, '\n') == text + n - 1);
    close(fd);
    unlink(file);
}

/* What fn has sent to stderr in a child is in said[]. */
static void heard(void (*fn)(const char *), const char *arg)
{
    FILE *out = tmpfile();
    int status = -1;
    size_t n;
    pid_t pid;

    ASSERT(out);
    pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        dup2(fileno(out), STDERR_FILENO);
        snprintf(cfg.log_file, sizeof(cfg.log_file), "%s", arg);
        cfg_log_level = CFG_LOG_INFO;
        fn(arg);
        _exit(0);
    }
    EXPECT(waitpid(pid, &status, 0) == pid);
    EXPECT_EQ_INT(status, 0);
    rewind(out);
    n = fread(said, 1, sizeof(said) - 1, out);
    said[n] = '\0';
    fclose(out);
}

static int times(const char *part)
{
    int n = 0;

    for (const char *at = said; (at = strstr(at, part)); at++)
        n++;
    return n;
}

static void log_twice(const char *file)
{
    (void)file;
    errno = 4711;
    log_info("first line");
    log_info("second line");
    EXPECT_EQ_INT(errno, 4711);
}

TEST_CASE(log, a_file_that_cannot_be_opened_is_told_of_once)
{
    heard(log_twice, "/no/such/folder/rs.log");
    EXPECT(strncmp(said, "railsock[", 9) == 0);
    EXPECT_EQ_INT(times(" error: the log /no/such/folder/rs.log could not be opened by user "), 1);
    EXPECT_EQ_INT(times(": no such file or folder; its lines come here\n"), 1);
    EXPECT(strstr(said, "its lines come here\n") < strstr(said, " info: first line\n"));
    EXPECT_EQ_INT(times(" info: second line\n"), 1);
}

TEST_CASE(log, a_file_that_cannot_be_written_to_is_told_of_once)
{
    if (access("/dev/full", W_OK) != 0)
        SKIP("no /dev/full");
    heard(log_twice, "/dev/full");
    EXPECT_EQ_INT(times("the log /dev/full could not be written to by user "), 1);
    EXPECT_EQ_INT(times(": no space is left; its lines come here\n"), 1);
    EXPECT_EQ_INT(times(" info: first line\n"), 1);
    EXPECT_EQ_INT(times(" info: second line\n"), 1);
}

static void log_as_rules_say(const char *file)
{
    cfg_log_to(CFG_LOG_INFO, file);
    log_info("a line");
}

/* RAILSOCK_LOG's its user has chosen; the name that rules give may be known to others. */
TEST_CASE(log, another_users_file_is_not_written_to)
{
    char file[] = "/tmp/log_write_test.XXXXXX";
    struct stat st;
    int fd;

    if (geteuid() != 0)
        SKIP("needs root");
    fd = mkstemp(file);
    ASSERT(fd >= 0);
    heard(log_as_rules_say, file);
    EXPECT_STREQ(said, "");
    ASSERT(fstat(fd, &st) == 0);
    EXPECT(st.st_size > 0);
    ASSERT(ftruncate(fd, 0) == 0 && fchown(fd, 65534, 65534) == 0);
    heard(log_as_rules_say, file);
    EXPECT_EQ_INT(
        times(" could not be written to by user 0: it belongs to another user; its lines"), 1);
    EXPECT_EQ_INT(times(" info: a line\n"), 1);
    ASSERT(fstat(fd, &st) == 0);
    EXPECT_EQ_INT(st.st_size, 0);
    heard(log_twice, file);
    EXPECT_STREQ(said, "");
    close(fd);
    unlink(file);
}

/* Who reads a FIFO of his own at that name would get the lines. */
TEST_CASE(log, another_users_fifo_is_not_written_to)
{
    char dir[] = "/tmp/log_write_test.XXXXXX", fifo[64], text[100];
    int fd;

    if (geteuid() != 0)
        SKIP("needs root");
    ASSERT(mkdtemp(dir));
    snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
    ASSERT(mkfifo(fifo, 0600) == 0);
    fd = open(fifo, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ASSERT(fd >= 0);
    heard(log_as_rules_say, fifo);
    EXPECT_STREQ(said, "");
    EXPECT(read(fd, text, sizeof(text)) > 0);
    ASSERT(chown(fifo, 65534, 65534) == 0);
    heard(log_as_rules_say, fifo);
    EXPECT_EQ_INT(
        times(" could not be written to by user 0: it belongs to another user; its lines"), 1);
    EXPECT_EQ_INT(times(" info: a line\n"), 1);
    EXPECT(read(fd, text, sizeof(text)) <= 0);
    close(fd);
    heard(log_as_rules_say, "/dev/null");
    EXPECT_STREQ(said, "");
    unlink(fifo);
    rmdir(dir);
}

/* Number 2 becomes a file of data; then it is made the place for what is said. */
static void log_in_data(const char *file)
{
    cfg_log_note_stderr();
    log_info("to the first");
    cfg_log_to(CFG_LOG_INFO, "");
    log_info("to stderr");
    close(STDERR_FILENO);
    EXPECT_EQ_INT(open(file, O_RDWR | O_CREAT | O_APPEND, 0600), STDERR_FILENO);
    log_info("to the data");
    cfg_log_note_stderr();
    log_info("to the new one");
}

TEST_CASE(log, a_file_that_number_2_has_become_gets_nothing)
{
    char dir[] = "/tmp/log_write_test.XXXXXX", file[64], text[1000] = "";
    int fd;

    ASSERT(mkdtemp(dir));
    snprintf(file, sizeof(file), "%s/data", dir);
    heard(log_in_data, file);
    fd = open(file, O_RDONLY);
    ASSERT(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
    close(fd);
    EXPECT_EQ_INT(times(" info: to stderr\n"), 1);
    EXPECT(!strstr(text, "to the data"));
    EXPECT(strstr(text, "to the first\n"));
    EXPECT(strstr(text, "to the new one\n"));
    unlink(file);
    rmdir(dir);
}

static void log_in_sockets(const char *file)
{
    char got[100];
    int pair[2], p[2];

    (void)file;
    cfg_log_note_stderr();
    cfg_log_to(CFG_LOG_INFO, "");
    EXPECT_EQ_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) + pipe(p), 0);
    close(STDERR_FILENO);
    EXPECT_EQ_INT(fcntl(pair[1], F_DUPFD, STDERR_FILENO), STDERR_FILENO);
    log_info("to the peer");
    EXPECT(recv(pair[0], got, sizeof(got), MSG_DONTWAIT) < 0);
    close(STDERR_FILENO);
    EXPECT_EQ_INT(fcntl(p[1], F_DUPFD, STDERR_FILENO), STDERR_FILENO);
    log_info("into the pipe");
    EXPECT(fcntl(p[0], F_SETFL, O_NONBLOCK) == 0 && read(p[0], got, sizeof(got)) < 0);
    cfg_log_note_stderr();
    log_info("into the pipe");
    EXPECT(read(p[0], got, sizeof(got)) > 0);
}

TEST_CASE(log, what_number_2_has_become_gets_nothing)
{
    heard(log_in_sockets, "");
    EXPECT_STREQ(said, "");
}

/* Number 2 is a pipe that nobody reads for now: nobody waits, and what is missing is said. */
TEST_CASE(log, who_reads_it_is_not_waited_for)
{
    enum { LINES = 2000, TOGETHER = 1 << 20 };
    char *all = calloc(1, TOGETHER);
    int was = dup(STDERR_FILENO), p[2], kept = 0, missing = 0;
    size_t n = 0;
    ssize_t r;

    ASSERT(all && was >= 0 && pipe(p) == 0);
    ASSERT_EQ_INT(dup2(p[1], STDERR_FILENO), STDERR_FILENO);
    close(p[1]);
    cfg_log_to(CFG_LOG_INFO, "");
    for (int i = 0; i < LINES; i++)
        log_info("one of very many lines that are to fill the pipe");
    ASSERT((r = read(p[0], all, TOGETHER - 1)) > 0);
    n = (size_t)r;
    log_info("the last one");
    cfg_log_to(CFG_LOG_ERROR, NULL);
    dup2(was, STDERR_FILENO);
    close(was);
    while ((r = read(p[0], all + n, TOGETHER - 1 - n)) > 0)
        n += (size_t)r;
    close(p[0]);
    for (const char *at = all; (at = strstr(at, "one of very many")); at++)
        kept++;
    ASSERT(strstr(all, "slow: "));
    sscanf(strstr(all, "slow: "), "slow: %d\n", &missing);
    EXPECT_EQ_INT(kept + missing, LINES);
    EXPECT(kept > 0 && missing > 0);
    EXPECT(strstr(strstr(all, "slow: "), "info: the last one\n"));
    free(all);
}

/* As a daemon that begins as root and serves as nobody, by itself and in workers. */
static void log_as_nobody(const char *file)
{
    struct stat st;
    pid_t pid;

    log_info("line of root");
    EXPECT(stat(file, &st) == 0 && st.st_uid == 0 && (st.st_mode & 0777) == 0600);
    pid = fork();
    if (pid > 0)
        waitpid(pid, NULL, 0);
    EXPECT(setresuid(65534, 65534, 65534) == 0);
    log_info("line of nobody");
    log_info("another one");
}

TEST_CASE(log, a_user_who_may_not_write_to_the_file_is_told_once_in_each_process)
{
    char dir[] = "/tmp/log_write_test.XXXXXX", file[64], text[200];
    ssize_t n;
    int fd;

    if (geteuid() != 0)
        SKIP("only root can change the user");
    ASSERT(mkdtemp(dir) && chmod(dir, 0777) == 0);
    snprintf(file, sizeof(file), "%s/rs.log", dir);
    heard(log_as_nobody, file);
    EXPECT_EQ_INT(times("could not be opened by user 65534: permission denied;"), 2);
    EXPECT_EQ_INT(times(" info: line of nobody\n"), 2);
    EXPECT_EQ_INT(times(" info: another one\n"), 2);
    fd = open(file, O_RDONLY);
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    EXPECT(strstr(text, " info: line of root\n") && !strstr(text, "nobody"));
    unlink(file);
    rmdir(dir);
}
