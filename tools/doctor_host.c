/*
 * doctor_host.c - what rails need of this host apart from RDMA. What can be tried is tried.
 */
#include "tools/doctor.h"

#include "config/cgroup.h"
#include "ipoib_fallback/pub.h"
#include "rsock/shm_bell.h"
#include "rsock/shm_diag.h"
#include "rsock/unix_names.h"
#include "tools/budget_look.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/magic.h>
#include <linux/tcp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

/* Below it a process that lowers its limit has no rails: pl_hold.c. */
enum { FEW = 640 };
/* config/values.c. */
enum { SMALLEST_RING = 4096 };
/* A process's file, its folder, and what `run --report` has. */
enum { INODES = 8 };

void doc_KERNEL(struct doctor *d, struct doc_result *r)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct tcp_info info;
    socklen_t len = sizeof(info);
    struct utsname u;

    (void)d;
    uname(&u);
    /* What a switch is made by. An option's length is as long as the kernel's struct, or ours. */
    if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
        doc_say(r, DOC_FAIL, "%s %s; TCP_INFO: %s", u.sysname, u.release, strerror(errno));
    else if (len < offsetof(struct tcp_info, tcpi_bytes_retrans) + sizeof(info.tcpi_bytes_retrans))
        doc_say(r, DOC_FAIL, "%s %s does not count a connection's bytes (tcpi_bytes_sent)",
                u.sysname, u.release);
    else
        doc_say(r, DOC_OK, "%s %s %s counts a connection's bytes", u.sysname, u.release, u.machine);
    if (fd >= 0)
        close(fd);
}

static bool is_the_tests(const char *name)
{
    return strncmp(name, "RAILSOCK_TEST_", 14) == 0;
}

/* What other parts than the library read. */
static bool is_the_commands(const char *name)
{
    static const char *const names[] = {"RAILSOCK_LIBRARY", "RAILSOCK_SHARE", "RAILSOCK_COMMAND",
                                        "RAILSOCK_LAB_CACHE"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return is_the_tests(name);
}

/* What is wrong with a variable of that name; empty: nothing. False: nobody reads it. */
static bool look_at(const char *name, const char *value, char *why, size_t size)
{
    const char *expected;

    why[0] = '\0';
    if (!cfg_is_setting(name))
        return is_the_commands(name);
    expected = cfg_expected(name, value);
    if (expected)
        snprintf(why, size, "%s=%.80s: expected %s", name, value, expected);
    return true;
}

/* All whose values are wrong, with semicolons, and the first that nobody reads. Both empty: all
 * are in order. */
static void wrong_variables(char *wrong, size_t size, char unknown[64])
{
    size_t at = 0;

    wrong[0] = unknown[0] = '\0';
    for (char **e = environ; *e; e++) {
        size_t n = strcspn(*e, "=");
        char own[64], why[300];

        if (strncmp(*e, "RAILSOCK_", 9) != 0 || n >= sizeof(own) || !(*e)[n] || !(*e)[n + 1])
            continue;
        memcpy(own, *e, n);
        own[n] = '\0';
        if (!look_at(own, *e + n + 1, why, sizeof(why)) && !*unknown)
            strcpy(unknown, own);
        if (*why && at < size)
            at += (size_t)snprintf(wrong + at, size - at, "%s%s", at ? "; " : "", why);
    }
}

/* One that only railsock's own tests set; empty: none. */
static void find_tests(char name[64])
{
    name[0] = '\0';
    for (char **e = environ; *e && !*name; e++) {
        size_t n = strcspn(*e, "=");

        if (is_the_tests(*e) && n < 64 && (*e)[n] && (*e)[n + 1]) {
            memcpy(name, *e, n);
            name[n] = '\0';
        }
    }
}

/* Whether the environment leaves no rail, whatever the rules say: where it names no ring they may
 * choose the smallest. */
static bool no_budget(char why[BUDGET_WHY])
{
    struct cfg_stream least = cfg.stream;

    if (!(cfg.env.given & 1u << CFG_RING))
        least.ring = SMALLEST_RING;
    return budget_look(&least, &least, why) && budget_look(&cfg.stream, &cfg.stream, why);
}

static void say_board(const struct cfg_stream *s, char *text, size_t size)
{
    if (s->board_bytes == UINT64_MAX)
        snprintf(text, size, "%u calls", s->board_calls);
    else if (s->board_calls == UINT32_MAX)
        snprintf(text, size, "%llu bytes", (unsigned long long)s->board_bytes);
    else
        snprintf(text, size, "%u calls or %llu bytes", s->board_calls,
                 (unsigned long long)s->board_bytes);
}

void doc_SETTINGS(struct doctor *d, struct doc_result *r)
{
    static const char *const wires[] = {"auto", "shm", "verbs"};
    char wrong[sizeof(r->says)], name[64], tests[64], board[80], why[BUDGET_WHY];

    wrong_variables(wrong, sizeof(wrong), name);
    if (*wrong) {
        doc_say(r, DOC_FAIL, "%s%s%s", wrong, *name ? "; nobody reads " : "", name);
        r->advice = "set each to what is expected, or unset it";
    } else if (cfg.stream.mode == CFG_TCP) {
        doc_say(r, DOC_FAIL, "RAILSOCK_MODE=tcp: every connection stays on TCP");
    } else if (cfg.stream.board_never) {
        doc_say(r, DOC_FAIL, "RAILSOCK_BOARD=never: every connection stays on TCP");
    } else if (no_budget(why)) {
        d->no_budget = true;
        doc_say(r, DOC_FAIL, "RAILSOCK_%s: %s: every connection stays on TCP",
                cfg.stream.max_rails ? "MEMORY" : "RAILS", why);
        r->advice = cfg.stream.max_rails ? "unset RAILSOCK_MEMORY, or make it as much for each rail"
                                         : "unset RAILSOCK_RAILS, or make it more than 0";
    } else {
        find_tests(tests);
        say_board(&cfg.stream, board, sizeof(board));
        doc_say(r, *name || *tests ? DOC_NOTE : DOC_OK,
                "wire %s, boards after %s, where no rule says otherwise%s%s%s%s%s", wires[d->wire],
                board, *name ? "; nobody reads " : "", name, *tests ? "; " : "", tests,
                *tests ? " is for railsock's own tests: unset it" : "");
    }
}

void doc_DESCRIPTORS(struct doctor *d, struct doc_result *r)
{
    struct rlimit l = {0};

    if (getrlimit(RLIMIT_NOFILE, &l) < 0)
        doc_say(r, DOC_FAIL, "the limit cannot be read: %s", strerror(errno));
    else
        doc_say(r, l.rlim_cur >= FEW ? DOC_OK : DOC_FAIL,
                "a process may open %llu; rails need %d, as the library's own are 512 and up",
                (unsigned long long)l.rlim_cur, FEW);
    d->few = l.rlim_cur < FEW;
}

void doc_PROGRESS(struct doctor *d, struct doc_result *r)
{
    struct io_uring_params p = {0};
    int fd;

    (void)d;
    if (!cfg.uring) {
        doc_say(r, DOC_OK, "RAILSOCK_PROGRESS=epoll: not used");
        return;
    }
    if (prctl(PR_GET_SECCOMP) != 0) {
        doc_say(r, DOC_NOTE,
                "not used under a seccomp filter, which may kill who tries: the progress thread "
                "uses epoll instead");
        return;
    }
    fd = (int)syscall(SYS_io_uring_setup, 4, &p);
    if (fd < 0)
        doc_say(r, DOC_NOTE, "refused (%s): the progress thread uses epoll instead",
                strerror(errno));
    else
        doc_say(r, DOC_OK, "can be used");
    if (fd >= 0)
        close(fd);
}

void doc_SECCOMP(struct doctor *d, struct doc_result *r)
{
    char line[256];
    FILE *f = fopen("/proc/self/status", "re");
    int mode = -1;

    (void)d;
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "Seccomp: %d", &mode) == 1)
            break;
    if (f)
        fclose(f);
    if (!f)
        doc_say(r, DOC_SKIP, "/proc cannot be read");
    else if (mode > 0)
        doc_say(r, DOC_NOTE,
                "this process runs under a filter that it inherited; whether it lets through what "
                "rails need, the other checks show");
    else
        doc_say(r, DOC_OK, mode == 0 ? "no filter" : "not known to this kernel");
}

void doc_SHM(struct doctor *d, struct doc_result *r)
{
    const uint64_t want = 1 << 20;
    char dir[48];
    struct statfs fs;
    struct stat st;
    uint64_t room;

    (void)d;
    snprintf(dir, sizeof(dir), FB_PUB_DIR, (unsigned)geteuid());
    if (statfs("/dev/shm", &fs) < 0) {
        doc_say(r, DOC_NOTE, "%s: stat shows nothing; mount a tmpfs there", strerror(errno));
        return;
    }
    room = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
    /* Who finds no place for what stat shows has rails all the same; who has one and no room in it
     * for more, none. */
    if (lstat(dir, &st) == 0 &&
        (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 0777) != 0700)) {
        doc_say(r, DOC_NOTE,
                "%s is not a folder of mode 700 of yours: stat shows nothing until it is removed",
                dir);
    } else if (faccessat(AT_FDCWD, "/dev/shm", W_OK | X_OK, AT_EACCESS) < 0) {
        doc_say(r, DOC_NOTE, "%s: stat shows nothing; %s", strerror(errno),
                errno == EROFS ? "mount -o remount,rw /dev/shm; containers: --tmpfs /dev/shm, or "
                                 "an emptyDir of medium Memory"
                               : "chmod 1777 /dev/shm");
    } else if (fs.f_type != TMPFS_MAGIC) {
        doc_say(r, DOC_NOTE, "is not a tmpfs: counters that stat shows would be written to a disk");
    } else if (fs.f_blocks && room < want) {
        doc_say(r, DOC_FAIL,
                "tmpfs, %llu MiB free: programs that stat shows get no rails for want of room; of "
                "those that find none at their start stat shows nothing",
                (unsigned long long)(room >> 20));
    } else if (fs.f_files && fs.f_ffree < INODES) {
        doc_say(r, DOC_NOTE,
                "tmpfs, %llu inodes free: of programs that find none stat shows nothing; mount it "
                "with more (nr_inodes=)",
                (unsigned long long)fs.f_ffree);
    } else if (!fs.f_blocks) {
        doc_say(r, DOC_OK, "tmpfs, without a limit");
    } else {
        doc_say(r, DOC_OK, "tmpfs, %llu MiB free", (unsigned long long)(room >> 20));
    }
}

static int make_memfd(void)
{
    int fd = memfd_create("railsock-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    return fd < 0 || ftruncate(fd, 4096) < 0 ||
                   fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0
               ? errno
               : 0;
}

/* Processors that the affinity of programs that are started here leaves them; 0: not known. */
static unsigned may_use(void)
{
    unsigned long mask[128] = {0};
    long n = syscall(SYS_sched_getaffinity, 0, sizeof(mask), mask);
    int cpus = 0;

    for (size_t i = 0; n > 0 && i < sizeof(mask) / sizeof(mask[0]); i++)
        cpus += __builtin_popcountl(mask[i]);
    return (unsigned)cpus;
}

static void *nothing(void *arg)
{
    return arg;
}

void doc_THREADS(struct doctor *d, struct doc_result *r)
{
    pthread_t thread;
    int err = pthread_create(&thread, NULL, nothing, NULL);

    (void)d;
    if (err)
        doc_say(r, DOC_FAIL, "none can be started: %s", strerror(err));
    else
        doc_say(r, DOC_OK, "the library's own can be started");
    if (!err)
        pthread_join(thread, NULL);
}

/* What decides for how long a wait spins. */
void doc_PROCESSORS(struct doctor *d, struct doc_result *r)
{
    static struct cfg_cgroups groups;
    uint64_t held = cfg_cgroup_throttled(&groups, CFG_CGROUP_OWN, CFG_CGROUP_ROOT);
    unsigned n = may_use();

    (void)d;
    if (sysconf(_SC_NPROCESSORS_ONLN) == 1)
        doc_say(r, DOC_NOTE, "1: no wait spins, so every message has to wake who gets it");
    else if (held == 0)
        doc_say(r, DOC_OK, "%u, with a CPU limit that has held nothing back so far", n);
    else if (held != UINT64_MAX)
        doc_say(r, DOC_NOTE,
                "%u, and a CPU limit that has held this control group back for %.1f s in all: "
                "while it does so for a twentieth of the time, waits spin for 20 us at most",
                n, (double)held / 1e9);
    else
        doc_say(r, DOC_OK, "%u", n);
}

/* In a child, as a seccomp filter may kill who tries. 0 or an errno; negative: the signal that
 * ended it. *no_child: an errno, there is none. */
static int try_memfd(int *no_child)
{
    pid_t child = fork();
    int status = 0;

    *no_child = child < 0 ? errno : 0;
    if (child < 0)
        return 0;
    if (child == 0) {
        prctl(PR_SET_DUMPABLE, 0);
        _exit(make_memfd());
    }
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return errno;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

bool doc_memfd(struct doc_result *r)
{
    int no_child, err = try_memfd(&no_child);

    if (no_child) {
        doc_say(r, DOC_SKIP, "not tried: no process can be started: %s", strerror(no_child));
    } else if (err < 0) {
        doc_say(r, DOC_FAIL,
                "memfd_create kills who calls it (%s), so it would kill a program that is to "
                "board within the host",
                strsignal(-err));
        r->advice = "systemd: SystemCallFilter=memfd_create beside the unit's own, or "
                    "SystemCallErrorNumber=EPERM, and its connections stay on TCP. Until then "
                    "RAILSOCK_WIRE=verbs, or RAILSOCK_MODE=tcp";
    } else if (err) {
        doc_say(r, DOC_FAIL, "no sealed memory for rings: %s", strerror(err));
    } else {
        doc_say(r, DOC_OK, "sealed memory for rings");
    }
    return !err;
}

void doc_MEMFD(struct doctor *d, struct doc_result *r)
{
    static const char strict[] = "/proc/sys/vm/overcommit_memory";
    char line[16];

    (void)d;
    /* Root's end refuses who is not root, too. */
    if (doc_memfd(r) && shm_strict())
        doc_say(
            r, DOC_NOTE,
            "sealed memory for rings; but %s: rails within the host only between processes of "
            "one user",
            doc_line(strict, line, sizeof(line))
                ? "vm.overcommit_memory is 2"
                : "vm.overcommit_memory may be 2, or there is a limit of addresses (ulimit -v)");
}

/* A TCP connection of our own, over the loopback interface. False: that cannot even be made. */
static bool own_connection(struct rsk_tuple *t, int fds[3])
{
    struct sockaddr_in to = {.sin_family = AF_INET}, from = {0};
    socklen_t len = sizeof(to);

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fds[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fds[2] = -1;
    if (bind(fds[0], (struct sockaddr *)&to, len) < 0 || listen(fds[0], 1) < 0 ||
        getsockname(fds[0], (struct sockaddr *)&to, &len) < 0 ||
        connect(fds[1], (struct sockaddr *)&to, len) < 0 ||
        getsockname(fds[1], (struct sockaddr *)&from, &len) < 0)
        return false;
    fds[2] = accept(fds[0], NULL, NULL);
    *t = (struct rsk_tuple){
        .family = AF_INET, .src_port = ntohs(from.sin_port), .dst_port = ntohs(to.sin_port)};
    memcpy(t->src, &from.sin_addr, 4);
    memcpy(t->dst, &to.sin_addr, 4);
    return fds[2] >= 0;
}

void doc_SOCK_DIAG(struct doctor *d, struct doc_result *r)
{
    struct rsk_tuple t;
    uint32_t uid = 0;
    int fds[3];

    if (d->few) {
        doc_say(r, DOC_SKIP, "cannot be told with so few descriptors");
        return;
    }
    if (!own_connection(&t, fds)) {
        doc_say(r, DOC_FAIL, "no TCP connection to 127.0.0.1: %s", strerror(errno));
        r->advice = "ip link set lo up";
    } else if (!shm_diag_usable()) {
        doc_say(r, DOC_FAIL, "the kernel cannot be asked who owns a connection");
    } else if (shm_diag_owner(&t, SHM_END_DST, &uid) || uid != geteuid()) {
        doc_say(r, DOC_FAIL, "the kernel does not know the owner of a connection of ours");
    } else {
        doc_say(r, DOC_OK, "the kernel says who owns a connection");
    }
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

void doc_NAMES(struct doctor *d, struct doc_result *r)
{
    char line[128];
    int fd;

    (void)d;
    if (!doc_line(RSK_UNIX_LIST, line, sizeof(line))) {
        doc_say(r, DOC_FAIL, RSK_UNIX_LIST ": %s", strerror(errno));
        return;
    }
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        doc_say(r, DOC_FAIL, "no sockets of AF_UNIX, by which processes find each other: %s",
                strerror(errno));
        r->advice = "allow them: in a systemd unit RestrictAddressFamilies=AF_UNIX beside its own";
        return;
    }
    close(fd);
    doc_say(r, DOC_OK, RSK_UNIX_LIST " can be read");
}
