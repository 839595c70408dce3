/*
 * shm_peer.c - see shm_peer.h.
 *
 * A user's number alone does not say it: processes in two containers may both be root, and
 * see nothing of each other; a daemon may have a user's number for the moment of one request,
 * and root's again.
 */
#include "rsock/shm_peer.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "rsock/own.h"
#include "rsock/strange.h"
#include "rsock/sys.h"

bool shm_peer_cred(int sock, struct shm_cred *cred)
{
    struct ucred uc = {0};
    socklen_t len = sizeof uc;

    if (sys_getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &uc, &len) || len != sizeof uc)
        return false;
    *cred = (struct shm_cred){.uid = uc.uid, .pid = (uint32_t)uc.pid};
    return true;
}

static bool is_ours(uint32_t uid)
{
    uint32_t real = 0, effective = 0, saved = 0;

    return SYS6(SYS_getresuid, &real, &effective, &saved, 0, 0, 0) == 0 && uid == real &&
           uid == effective && uid == saved;
}

/* Is the process in the PID namespace of our /proc itself? Its status lists its pid there and in
 * each namespace below: then it has one only. */
static bool has_one_number(int fd)
{
    enum { LINE = 64 };
    static const char name[] = "\nNSpid:\t";
    char text[4096];
    off_t at = 0;

    for (;;) {
        long n = SYS6(SYS_pread64, fd, text, sizeof text - 1, at, 0, 0);
        const char *line, *end;

        if (n < 0)
            return false;
        text[n] = 0;
        line = strstr(text, name);
        if (line) {
            end = line + sizeof name - 1;
            end += strcspn(end, "\t\n");
            if (*end || line == text)
                return *end == '\n';
            at += line - text;
        } else if (n < LINE) {
            return true; /* a kernel without such namespaces */
        } else {
            at += n - LINE + 1; /* groups come before it, and there may be many */
        }
    }
}

/* Are the real, the effective and the saved one of its users this one? They are among
 * the first lines. */
static bool is_one_user(int fd, uint32_t uid)
{
    char text[1024], ids[64];
    long n = SYS6(SYS_pread64, fd, text, sizeof text - 1, 0, 0, 0);

    if (n < 0)
        return false;
    text[n] = 0;
    snprintf(ids, sizeof ids, "\nUid:\t%u\t%u\t%u\t", uid, uid, uid);
    return strstr(text, ids) != NULL;
}

/* In a chroot there may be no /proc, and so nobody whom he trusts. Who may not look takes him
 * for one of us. */
static bool has_our_root(uint32_t pid)
{
    char path[40], root[2];

    snprintf(path, sizeof path, "/proc/%u/root", pid);
    return SYS6(SYS_readlinkat, AT_FDCWD, path, root, sizeof root, 0, 0) <= 1;
}

void shm_peer_judge(struct shm_cred *cred)
{
    bool ours = is_ours(cred->uid);
    char path[40];
    int fd;

    cred->trusted = cred->alike = cred->unseen = false;
    if (!cred->pid || !(ours || cred->uid == 0))
        return;
    snprintf(path, sizeof path, "/proc/%u/status", cred->pid);
    fd = rsk_own_fd(sys_open(path, O_RDONLY | O_CLOEXEC, 0));
    cred->unseen = fd == -ENOENT || fd == -EACCES;
    if (fd < 0)
        return;
    cred->trusted = has_one_number(fd);
    cred->alike = ours && cred->trusted && is_one_user(fd, cred->uid) && has_our_root(cred->pid);
    rsk_own_close(fd);
}

/* Writing to a descriptor that a stranger chose may block for ever, write into a file of ours, or
 * tell a third process something in our name: only a socket will do whose other end is his, or from
 * who could hurt us anyway a non-blocking eventfd. */
bool shm_peer_event_good(int fd, const struct shm_cred *cred, bool *socket)
{
    char path[48], link[40];
    struct shm_cred maker;
    long n;

    *socket = strange_option(fd, SO_DOMAIN) == AF_UNIX;
    if (*socket)
        /* The pid of a process in a namespace that ours does not see reads 0: then its uid
         * has to match. */
        return strange_option(fd, SO_TYPE) == SOCK_STREAM && shm_peer_cred(fd, &maker) &&
               maker.pid == cred->pid && (cred->pid || maker.uid == cred->uid);
    if (!cred->trusted)
        return false;
    /* Not self: that has no descriptors any more once the main thread has ended. */
    snprintf(path, sizeof path, "/proc/thread-self/fd/%d", fd);
    n = SYS6(SYS_readlinkat, AT_FDCWD, path, link, sizeof link - 1, 0, 0);
    link[n > 0 ? n : 0] = 0;
    return strcmp(link, "anon_inode:[eventfd]") == 0 && (sys_fcntl(fd, F_GETFL, 0) & O_NONBLOCK);
}
