/*
 * passed.c - connections that messages take to another process, by libc's functions and by number:
 * who gets one reads what is written from then on. And control data that is wrong, which the kernel
 * refuses: nothing beyond it is read, and nothing is passed.
 */
#include "say.h"

#include <sys/mman.h>
#include <sys/wait.h>

enum { PAGE = 4096, MANY = 5000, MOST = 1024 };

static char *before_nothing(size_t pages)
{
    char *at =
        mmap(NULL, (pages + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    must(at != MAP_FAILED && mprotect(at + pages * PAGE, PAGE, PROT_NONE) == 0, "mmap");
    return at + pages * PAGE;
}

static struct msghdr passing(void *control, size_t room, int fd)
{
    static struct iovec word = {(void *)"x", 1};
    struct cmsghdr head = {CMSG_LEN(sizeof(fd)), SOL_SOCKET, SCM_RIGHTS};

    memcpy(control, &head, sizeof(head));
    memcpy((char *)control + sizeof(head), &fd, sizeof(fd));
    return (struct msghdr){
        .msg_iov = &word, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room};
}

static const char *const ways[] = {"sendmsg", "sendmmsg", "SYS_sendmsg", "SYS_sendmmsg"};

static long send_by(int way, int fd, struct mmsghdr *m, unsigned cnt)
{
    switch (way) {
    case 0:
        return sendmsg(fd, &m->msg_hdr, MSG_DONTWAIT);
    case 1:
        return sendmmsg(fd, m, cnt, MSG_DONTWAIT);
    case 2:
        return syscall(SYS_sendmsg, fd, &m->msg_hdr, MSG_DONTWAIT);
    default:
        return syscall(SYS_sendmmsg, fd, m, cnt, MSG_DONTWAIT);
    }
}

static void passed_by(int way)
{
    char control[CMSG_SPACE(sizeof(int))], word;
    int unix_pair[2], p[2];
    pid_t pid;

    printf("-- %s\n", ways[way]);
    fflush(stdout);
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, unix_pair) == 0, "socketpair");
    pid = fork();
    if (pid == 0) {
        struct iovec v = {&word, 1};
        struct msghdr m = {.msg_iov = &v,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof(control)};
        struct cmsghdr *head;
        int fd;

        must(recvmsg(unix_pair[1], &m, 0) == 1 && (head = CMSG_FIRSTHDR(&m)), "recvmsg");
        memcpy(&fd, CMSG_DATA(head), sizeof(fd));
        must(write(fd, "from who got it", 15) == 15, "write");
        _exit(0);
    }
    tcp_pair(p);
    on_rail(p);
    struct mmsghdr m = {.msg_hdr = passing(control, sizeof(control), p[0])};
    SHOW(send_by(way, unix_pair[0], &m, 1));
    ended(pid);
    hear(p[1], "end");
    close(p[0]);
    close(p[1]);
    close(unix_pair[0]);
    close(unix_pair[1]);
}

/* Bytes behind what the message has, in the same page or in none. */
static void wrong(int way)
{
    char *end = before_nothing(1), *in_page = end - 2048;
    struct cmsghdr *head;
    struct mmsghdr m = {0};
    int unix_pair[2], p[2];

    printf("-- %s, wrong\n", ways[way]);
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, unix_pair) == 0, "socketpair");
    tcp_pair(p);
    on_rail(p);
    m.msg_hdr = passing(end - CMSG_SPACE(sizeof(int)), CMSG_SPACE(sizeof(int)), p[0]);
    head = m.msg_hdr.msg_control;
    head->cmsg_len = 1 << 20;
    SHOW(send_by(way, unix_pair[0], &m, 1));
    m.msg_hdr = passing(in_page, sizeof(*head), p[0]);
    SHOW(send_by(way, unix_pair[0], &m, 1));
    m.msg_hdr.msg_controllen = 3;
    SHOW(send_by(way, unix_pair[0], &m, 1));
    m.msg_hdr = passing(in_page, CMSG_SPACE(sizeof(int)), p[0]);
    ((struct cmsghdr *)in_page)->cmsg_len = sizeof(*head) - 1;
    SHOW(send_by(way, unix_pair[0], &m, 1));
    if (mode_rail()) {
        unsigned long long before = tcp_sent(p[0]);

        pass(p, 0);
        if (tcp_sent(p[0]) != before)
            puts("it has left its rail");
    }
    close(p[0]);
    close(p[1]);
    close(unix_pair[0]);
    close(unix_pair[1]);
    munmap(end - PAGE, 2 * PAGE);
}

/* The kernel looks at so many. */
static void too_many(int way)
{
    const size_t size = MOST * sizeof(struct mmsghdr);
    char *end = before_nothing(size / PAGE);
    int unix_pair[2];

    must(socketpair(AF_UNIX, SOCK_STREAM, 0, unix_pair) == 0, "socketpair");
    SHOW(send_by(way, unix_pair[0], (struct mmsghdr *)(end - size), MANY));
    close(unix_pair[0]);
    close(unix_pair[1]);
    munmap(end - size, size + PAGE);
}

int main(void)
{
    for (int way = 0; way < 4; way++) {
        passed_by(way);
        wrong(way);
        if (way % 2)
            too_many(way);
    }
    return 0;
}
