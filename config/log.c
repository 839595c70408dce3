/*
 * log.c - one line of log: formatted into one buffer on the stack, one write. It may be
 * called in a signal handler, while any lock is held and before other constructors have
 * run, so no malloc and no stdio stream. The formats in use need neither: no floating
 * point, no wide strings.
 */
#include "config/log.h"

#include "config/env.h"
#include "config/raw.h"

#include <errno.h>
#include <linux/major.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LINE_SIZE 512

_Atomic int cfg_log_level = CFG_LOG_ERROR;

const char CFG_LOG_SYSLOG[] = "syslog";
static const char *_Atomic told; /* NULL: cfg.log_file */
void (*cfg_log_around)(bool begins);

void cfg_log_to(int level, const char *file)
{
    atomic_store(&told, file);
    atomic_store(&cfg_log_level, level);
}

static const char *level_name(int level)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};

    return names[level < CFG_LOG_ERROR ? 0 : level > CFG_LOG_DEBUG ? 3 : level - 1];
}

/* "railsock[PID] TIME PROGRAM LEVEL: ", without the name in what comes before it is known. */
static size_t line_head(char line[LINE_SIZE], int level)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (size_t)snprintf(line, LINE_SIZE - 1,
                            "railsock[%d] %lld.%06ld %.32s%s%s: ", (int)getpid(),
                            (long long)ts.tv_sec, ts.tv_nsec / 1000, cfg.program,
                            cfg.program[0] ? " " : "", level_name(level));
}

/* Of n bytes, or what snprintf would have liked to write. The last place was kept for
 * the end of line. */
static size_t line_end(char line[LINE_SIZE], size_t n)
{
    if (n > LINE_SIZE - 2)
        n = LINE_SIZE - 2;
    /* A newline inside, from a program's name say, would make two lines of one; U+0080 to U+009F
     * are controls, too. */
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < ' ' || (unsigned char)line[i] >= 0x7f)
            line[i] = '?';
    line[n++] = '\n';
    return n;
}

/* As syslog(3), which cannot be used: it keeps a descriptor and takes locks. 0 or -errno. */
static int put_syslog(int level, const char *line, size_t n)
{
    static const int priority[] = {3, 4, 6, 7}; /* of the facility LOG_USER, 1 */
    struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "/dev/log"};
    char packet[LINE_SIZE + 8];
    int fd = (int)cfg_raw4(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, 0);
    int head;
    long r;

    if (fd < 0)
        return fd;
    head = snprintf(packet, sizeof(packet), "<%d>", 8 + priority[level - CFG_LOG_ERROR]);
    memcpy(packet + head, line, n - 1); /* without the end of line */
    r = cfg_raw4(SYS_connect, fd, (long)&un, sizeof(un), 0);
    if (r == 0)
        r = cfg_raw_write(fd, packet, (size_t)head + n - 1);
    cfg_raw_close(fd);
    return r < 0 ? (int)r : 0;
}

/* write(2), once; the signals that it may cause are not for the program. 0 or -errno. */
static int quietly(int fd, const void *p, size_t n)
{
    const struct timespec now = {0, 0};
    uint64_t signals = 1ull << (SIGPIPE - 1) | 1ull << (SIGXFSZ - 1), pending = 0, before;
    long r;

    cfg_raw4(SYS_rt_sigpending, (long)&pending, sizeof(pending), 0, 0);
    cfg_raw4(SYS_rt_sigprocmask, SIG_BLOCK, (long)&signals, (long)&before, sizeof(signals));
    r = cfg_raw4(SYS_write, fd, (long)p, (long)n, 0);
    signals &= ~pending; /* those are not ours */
    if ((r == -EPIPE || r == -EFBIG) && signals)
        cfg_raw4(SYS_rt_sigtimedwait, (long)&signals, 0, (long)&now, sizeof(signals));
    cfg_raw4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&before, 0, sizeof(before));
    return r < 0 ? (int)r : 0;
}

/* What number 2 is by the program's will: a file, a terminal, a pipe, journald's socket; 0:
 * it is closed. */
static _Atomic uint64_t noted_dev, noted_ino;
static _Atomic bool noted;

static void look_at_stderr(uint64_t *dev, uint64_t *ino)
{
    struct stat st = {0};

    (void)cfg_raw4(SYS_fstat, STDERR_FILENO, (long)&st, 0, 0);
    *dev = st.st_dev;
    *ino = st.st_ino;
}

void cfg_log_note_stderr(void)
{
    uint64_t dev, ino;

    look_at_stderr(&dev, &ino);
    atomic_store(&noted_dev, dev);
    atomic_store(&noted_ino, ino);
    atomic_store(&noted, true);
}

/* A daemon that has closed the first three, and opened its files, pipes and sockets: the lines
 * would be among its data. */
static bool is_another(void)
{
    uint64_t dev, ino;

    look_at_stderr(&dev, &ino);
    return atomic_load(&noted) &&
           (dev != atomic_load(&noted_dev) || ino != atomic_load(&noted_ino));
}

/* Would a line of ours, which is no longer than a pipe's page, be taken at once? */
static bool takes_a_line(void)
{
    const struct timespec now = {0, 0};
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};

    return cfg_raw4(SYS_ppoll, (long)&p, 1, (long)&now, 0) != 0;
}

/* Nobody waits for who reads it, with locks held perhaps: what there is no room for is counted.
 * Other threads and programs may fill the last of it meanwhile. */
static void put_stderr(const char *line, size_t n)
{
    static _Atomic unsigned missing;
    char text[128];
    unsigned some;

    if (takes_a_line() && (some = atomic_exchange(&missing, 0)) > 0) {
        (void)quietly(STDERR_FILENO, text,
                      (size_t)snprintf(text, sizeof(text),
                                       "railsock[%d] lines that are missing here, as who reads "
                                       "them is slow: %u\n",
                                       (int)getpid(), some));
    }
    if (takes_a_line())
        (void)quietly(STDERR_FILENO, line, n);
    else
        atomic_fetch_add(&missing, 1);
}

/* Not where number 2 is a connection, as inetd's servers have it: the peer would read it among the
 * program's own bytes. Nor where it has become something else. */
void cfg_log_stderr(const char *line, size_t n)
{
    struct sockaddr_storage own = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof(own);

    if (cfg_raw4(SYS_getsockname, STDERR_FILENO, (long)&own, (long)&len, 0) == 0 &&
        (own.ss_family == AF_INET || own.ss_family == AF_INET6))
        return;
    if (is_another())
        return;
    put_stderr(line, n);
}

const char *cfg_errno_words(int err, char number[static CFG_ERRNO_WORDS])
{
    static const struct {
        int err;
        const char *words;
    } known[] = {
        {EACCES, "permission denied"},
        {EPERM, "permission denied"},
        {ENOENT, "no such file or folder"},
        {ENOTDIR, "a part of its path is no folder"},
        {EISDIR, "it is a folder"},
        {ELOOP, "symbolic links are not followed"},
        {EROFS, "the file system is read-only"},
        {ENOSPC, "no space is left"},
        {EDQUOT, "the quota is used up"},
        {EFBIG, "no file may be so long"},
        {EMFILE, "no descriptor is left"},
        {ENFILE, "no descriptor is left"},
        {ENXIO, "nobody reads it"},
        {EPIPE, "nobody reads it"},
        {ECONNREFUSED, "nobody reads it"},
        {EAGAIN, "who reads it is slow"},
        {ECONNRESET, "it was reset"},
        {ETIMEDOUT, "it has timed out"},
        {EHOSTUNREACH, "the host is not reachable"},
        {ENETUNREACH, "the network is not reachable"},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].err == err)
            return known[i].words;
    snprintf(number, CFG_ERRNO_WORDS, "error %d", err);
    return number;
}

static _Atomic int fallen; /* the process that has said so: a child has a user of its own */

/* Once, before the first line that goes to stderr instead. */
static void fall_back(const char *file, const char *what, const char *why)
{
    int self = (int)getpid();
    char line[LINE_SIZE];
    size_t n;

    if (atomic_exchange(&fallen, self) == self)
        return;
    n = line_head(line, CFG_LOG_ERROR);
    n += (size_t)snprintf(line + n, LINE_SIZE - 1 - n,
                          "the log %.300s could not be %s by user %d: %s; its lines come here",
                          file, what, (int)cfg_raw4(SYS_geteuid, 0, 0, 0, 0), why);
    cfg_log_stderr(line, line_end(line, n));
}

/* Somebody else may have made the file that the rules name, in /tmp say, or a FIFO there. What
 * RAILSOCK_LOG names the user has chosen. /dev/null and its like are nobody's, also where root has
 * no number (user namespaces). */
static bool is_anothers(int fd, const char *file)
{
    struct stat st = {0};

    return file != cfg.log_file && cfg_raw4(SYS_fstat, fd, (long)&st, 0, 0) == 0 &&
           !(S_ISCHR(st.st_mode) && major(st.st_rdev) == MEM_MAJOR) && st.st_uid != 0 &&
           st.st_uid != (uid_t)cfg_raw4(SYS_geteuid, 0, 0, 0, 0);
}

/*
 * The file is opened for each line and not kept: a descriptor of ours that stays open would
 * be in the way of programs that close or count theirs. It may be a fifo, hence NONBLOCK.
 */
static void put_to(const char *file, int level, const char *line, size_t n)
{
    const char *what = "opened", *why = NULL;
    char number[CFG_ERRNO_WORDS];
    int fd, err;

    if (file == CFG_LOG_SYSLOG) {
        file = "/dev/log";
        what = "written to";
        err = put_syslog(level, line, n);
    } else if (file[0]) {
        err = fd = cfg_raw_open(
            file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK,
            0600);
        if (fd >= 0) {
            what = "written to";
            if (is_anothers(fd, file))
                why = "it belongs to another user";
            err = why ? -EPERM : quietly(fd, line, n);
            cfg_raw_close(fd);
        }
    } else {
        cfg_log_stderr(line, n);
        return;
    }
    if (err < 0) {
        fall_back(file, what, why ? why : cfg_errno_words(-err, number));
        cfg_log_stderr(line, n);
    }
}

static void put(int level, const char *line, size_t n)
{
    const char *file = atomic_load(&told);
    bool opens;

    if (!file)
        file = cfg.log_file;
    opens = cfg_log_around && file[0];
    if (opens)
        cfg_log_around(true);
    put_to(file, level, line, n);
    if (opens)
        cfg_log_around(false);
}

void cfg_log_write(int level, const char *fmt, ...)
{
    char line[LINE_SIZE];
    int saved = errno;
    size_t n;
    va_list ap;

    n = line_head(line, level);
    va_start(ap, fmt);
    n += (size_t)vsnprintf(line + n, LINE_SIZE - 1 - n, fmt, ap);
    va_end(ap);
    put(level < CFG_LOG_ERROR   ? CFG_LOG_ERROR
        : level > CFG_LOG_DEBUG ? CFG_LOG_DEBUG
                                : level,
        line, line_end(line, n));
    errno = saved;
}
