/*
 * kit_live.c - threads, signals and processes that take part in a case. See kit.h.
 */
#include "tests/conform/kit.h"

#include "tests/asleep.h"

#include <semaphore.h>
#include <sys/syscall.h>
#include <sys/wait.h>

int my_tid(void)
{
    return (int)syscall(SYS_gettid);
}

void asleep(int tid)
{
    for (int i = 0, in_row = 0; i < PATIENCE && in_row < 3; i++) {
        in_row = state_of(tid) == 'S' ? in_row + 1 : 0;
        sleep_ms(1);
    }
}

static void *later_main(void *arg)
{
    struct later *l = arg;

    asleep(l->of);
    l->fn(l->arg);
    return NULL;
}

void later(struct later *l, void (*fn)(void *), void *arg)
{
    l->of = my_tid();
    l->fn = fn;
    l->arg = arg;
    must(pthread_create(&l->thread, NULL, later_main, l) == 0, "pthread_create");
}

void later_end(struct later *l)
{
    pthread_join(l->thread, NULL);
}

volatile sig_atomic_t caught;
static sem_t caught_one;

static void count(int sig)
{
    (void)sig;
    caught = caught + 1;
    sem_post(&caught_one);
}

void until_caught(void)
{
    struct timespec limit;

    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 30;
    while (sem_timedwait(&caught_one, &limit) != 0 && errno == EINTR)
        ;
}

void catch_signal(int sig, int flags)
{
    struct sigaction a;

    memset(&a, 0, sizeof(a));
    a.sa_handler = count;
    a.sa_flags = flags;
    must(sigaction(sig, &a, NULL) == 0, "sigaction");
}

/* ---- descriptors on their way */

ssize_t pass_fd(int via, int fd)
{
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } u;
    struct iovec v = {(char[]){"x"}, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    struct cmsghdr *h;

    memset(&u, 0, sizeof(u));
    m.msg_control = u.room;
    m.msg_controllen = sizeof(u.room);
    h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(h), &fd, sizeof(int));
    return sendmsg(via, &m, 0);
}

int passed_fd(int via)
{
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } u;
    char byte;
    struct iovec v = {&byte, 1};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = &u, .msg_controllen = sizeof(u)};
    int fd = -1;

    must(recvmsg(via, &m, 0) == 1 && CMSG_FIRSTHDR(&m), "recvmsg");
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
    return fd;
}

/* ---- the far process */

void far_begin(struct far *f, void (*fn)(struct far *))
{
    far_begin_as(f, fn, board_one);
}

void far_begin_as(struct far *f, void (*fn)(struct far *), void (*boards)(int fd, bool here))
{
    struct sockaddr_storage at;
    socklen_t len;
    int l = listener(&net4, &at, &len), down[2], up[2];

    must(pipe(down) == 0 && pipe(up) == 0, "pipe");
    fflush(stdout);
    f->pid = fork();
    must(f->pid >= 0, "fork");
    if (f->pid == 0) {
        close(l);
        close(down[1]);
        close(up[0]);
        f->in = down[0];
        f->out = up[1];
        f->fd = socket(AF_INET, SOCK_STREAM, 0);
        must(connect(f->fd, (struct sockaddr *)&at, len) == 0, "far: connect");
        if (boards)
            boards(f->fd, false);
        fn(f);
        exit(0);
    }
    close(down[0]);
    close(up[1]);
    f->in = up[0];
    f->out = down[1];
    f->fd = accept(l, NULL, NULL);
    must(f->fd >= 0, "far: accept");
    if (boards)
        boards(f->fd, true);
    close(l);
}

void far_step(struct far *f)
{
    must(write(f->out, "s", 1) == 1, "far_step");
}

void far_wait(struct far *f)
{
    char byte;

    must(read(f->in, &byte, 1) == 1, "far_wait");
}

int far_end(struct far *f)
{
    int status = 0;

    must(waitpid(f->pid, &status, 0) == f->pid, "waitpid");
    if (WIFSIGNALED(status))
        say("far: %s", strsignal(WTERMSIG(status)));
    else
        say("far: status %d", WEXITSTATUS(status));
    return status;
}
