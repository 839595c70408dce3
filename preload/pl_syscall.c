/*
 * pl_syscall.c - system calls by number. The kernel would do them to the anchor: a stream that is
 * named in one leaves first and stays on TCP, what concerns descriptors goes through the wrapper of
 * that name, and what forks, executes or changes the process is treated as libc's function is.
 *
 * `syscall` looks at the number and then jumps: to libc's with every register and the stack as they
 * were, or to a function here that takes the same arguments. No frame of ours lies below, because
 * vfork returns twice on it. Any thread.
 */
#include "preload/pl_own.h"
#include "preload/pl_poll.h"

#include "config/env.h"
#include "config/reason.h"
#include "rsock/own.h"
#include "rsock/sys.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#define ARGS long nr, long a, long b, long c, long d, long e, long f

/* libc's, with all that there was. */
#define THE_CALL pl_real.syscall(nr, a, b, c, d, e, f)

/* ---- calls that have a wrapper ---- */

static long by_name(ARGS)
{
    (void)d, (void)e, (void)f;
    switch (nr) {
    case SYS_close: {
        RSK_UNCANCELLED; /* as by this way the kernel's is */
        return close((int)a);
    }
    case SYS_close_range:
        return close_range((unsigned)a, (unsigned)b, (int)c);
    case SYS_dup:
        return dup((int)a);
#ifdef SYS_dup2
    case SYS_dup2:
        return dup2((int)a, (int)b);
#endif
    case SYS_dup3:
        return dup3((int)a, (int)b, (int)c);
    case SYS_fcntl:
        return fcntl((int)a, (int)b, c);
    case SYS_pidfd_getfd:
        return pidfd_getfd((int)a, (int)b, (unsigned)c);
    case SYS_shutdown:
        return shutdown((int)a, (int)b);
    case SYS_unshare:
        return unshare((int)a);
    case SYS_setns:
        return setns((int)a, (int)b);
    case SYS_chroot:
        return chroot((const char *)a);
    default: /* SYS_capset */
        return capset((cap_user_header_t)a, (cap_user_data_t)b);
    }
}

/* pivot_root by its number: another root for the process. */
static long new_root(ARGS)
{
    struct pl_hold h;
    long r;

    pl_hold_begin(&h, RSN_NAMESPACE, FB_HOLD_THREAD);
    r = THE_CALL;
    pl_hold_end(&h);
    return r;
}

static long filter(ARGS)
{
    bool strict = nr == SYS_prctl ? b == SECCOMP_MODE_STRICT : a == SECCOMP_SET_MODE_STRICT;
    struct pl_hold h;
    long r;

    pl_filter_begin(&h, strict, (const void *)c);
    r = THE_CALL;
    pl_hold_end(&h);
    return r;
}

static long new_ring(ARGS)
{
    long r = THE_CALL;

    if (r >= 0)
        pl_ring_made(((const struct io_uring_params *)b)->flags);
    return r;
}

/* ---- processes ---- */

static uint64_t clone_flags(long nr, long a)
{
#ifdef SYS_fork
    if (nr == SYS_fork)
        return 0;
#endif
    return nr == SYS_clone3 ? (a ? ((const struct clone_args *)a)->flags : CLONE_THREAD)
                            : (uint64_t)a;
}

/* Does the child go on where this thread is? */
static bool same_stack(long nr, long a, long b)
{
    if (nr == SYS_clone3)
        return !((const struct clone_args *)a)->stack;
    return nr != SYS_clone || !b;
}

static long copy(ARGS)
{
    struct pl_fork fork;
    const bool apart = !(clone_flags(nr, a) & CLONE_VFORK); /* see pl_clone.c */
    long pid;
    int err;

    pl_fork_begin(&fork, clone_flags(nr, a) & CLONE_FILES);
    if (apart)
        rsk_own_fork_begin();
    pid = THE_CALL;
    err = errno;
    if (pid == 0) {
        pl_child();
    } else {
        if (apart)
            rsk_own_fork_end();
        pl_fork_end(&fork);
    }
    errno = err;
    return pid;
}

static void *cloning(long nr, long a, long b)
{
    uint64_t flags = clone_flags(nr, a);

    pl_cloning(flags);
    if (flags & CLONE_THREAD || !pl_is_owner())
        return (void *)pl_real.syscall;
    if (flags & CLONE_VM) {
        pl_before_spawn();
        return (void *)pl_real.syscall;
    }
    if (same_stack(nr, a, b))
        return (void *)copy;
    /* It does not come back here: it finds out by itself, and what it inherits is plain. */
    pl_leave_for_child(flags & CLONE_FILES);
    return (void *)pl_real.syscall;
}

/* ---- calls that name descriptors ---- */

static void leave(int fd)
{
    PL_HELD f = pl_hold(fd);

    if (f && f->kind == PL_STREAM)
        fb_pin(f->stream, RSN_BYPASSED, true);
    else if (f)
        pl_epoll_cross(f);
}

static _Thread_local int refused;

/* In place of a call that would write past what was sent before. */
static long refuse(ARGS)
{
    (void)nr, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
    errno = refused;
    return -1;
}

/* What the wrapper of its name does, for what is not the kernel's alone after all. */
static long receive(ARGS)
{
    RSK_UNCANCELLED;
    switch (nr) {
    case SYS_read:
        return read((int)a, (void *)b, (size_t)c);
    case SYS_readv:
        return readv((int)a, (const struct iovec *)b, (int)c);
    case SYS_preadv2: /* e is the upper half of a place where a word has not room for all of it */
        return preadv2((int)a, (const struct iovec *)b, (int)c, d, (int)f);
    case SYS_recvfrom:
        return recvfrom((int)a, (void *)b, (size_t)c, (int)d, (struct sockaddr *)e, (socklen_t *)f);
    case SYS_recvmsg:
        return recvmsg((int)a, (struct msghdr *)b, (int)c);
    default: /* SYS_recvmmsg */
        return recvmmsg((int)a, (struct mmsghdr *)b, (unsigned)c, (int)d, (struct timespec *)e);
    }
}

/* For what only receives. Returns where to jump: with bytes unread in front of an announced switch,
 * or on a rail whose peer has gone, the stream cannot leave before they are read, and what the
 * kernel takes has to be counted. */
static void *leave_to_receive(int fd)
{
    PL_HELD f = pl_hold(fd);

    if (f && f->kind == PL_STREAM) {
        fb_pin(f->stream, RSN_BYPASSED, true);
        return fb_plain_rx(f->stream) ? (void *)pl_real.syscall : (void *)receive;
    }
    if (f)
        pl_epoll_cross(f);
    return (void *)pl_real.syscall;
}

/* For what only sends. Returns where to jump. */
static void *leave_to_send(int fd, long flags)
{
    PL_HELD f = pl_hold(fd);
    int err = f && f->kind == PL_STREAM ? pl_pin_tx(f, RSN_BYPASSED, (int)flags) : 0;

    if (f && f->kind != PL_STREAM)
        pl_epoll_cross(f);
    refused = -err;
    return err ? (void *)refuse : (void *)pl_real.syscall;
}

static void leave_polled(const struct pollfd *p, unsigned long n)
{
    for (unsigned long i = 0; p && i < n; i++)
        leave(p[i].fd);
}

static void leave_selected(int n, const fd_set *const set[3])
{
    n = pl_select_sees(n);
    for (int fd = 0; fd < n; fd++)
        for (int i = 0; i < 3; i++)
            if (set[i] && ((const unsigned long *)set[i])[fd / 64] >> (fd % 64) & 1) {
                leave(fd);
                break;
            }
}

/* The kernel's own aio: it reads, writes and polls. */
static void leave_submitted(struct iocb *const *list, long n)
{
    for (long i = 0; list && i < n; i++)
        leave((int)list[i]->aio_fildes);
}

static void leave_two(long one, long two)
{
    leave((int)one);
    leave((int)two);
}

/* In a map of sockets, where programs of the kernel's take its bytes or send them elsewhere. */
static void leave_mapped(const union bpf_attr *attr, unsigned long size)
{
    struct bpf_map_info map = {0};
    union bpf_attr ask = {.info = {.info_len = sizeof map, .info = (uintptr_t)&map}};

    if (!attr || size < offsetof(union bpf_attr, flags))
        return;
    ask.info.bpf_fd = attr->map_fd;
    if (SYS6(SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &ask, sizeof ask.info, 0, 0, 0) == 0 &&
        (map.type == BPF_MAP_TYPE_SOCKMAP || map.type == BPF_MAP_TYPE_SOCKHASH) && attr->value)
        leave((int)*(const uint32_t *)(uintptr_t)attr->value);
}

/* Of a forked child's numbers its parent may have had any: the wrapper knows whether
 * that matters. */
static bool ours(int fd)
{
    if (atomic_load_explicit(&pl_heirs, memory_order_relaxed))
        return true;
    PL_HELD f = pl_hold(fd);

    return f != NULL || pl_made(fd) || rsk_own_has(fd);
}

/* Where to go for a number that is not about bytes. */
static void *of_process(long nr, long a, long b, long c)
{
    switch (nr) {
    case SYS_close_range:
    case SYS_unshare:
    case SYS_setns:
    case SYS_chroot:
    case SYS_capset:
        return (void *)by_name;
    case SYS_pivot_root:
        return (void *)new_root;
    case SYS_io_uring_setup:
        return (void *)new_ring;
    case SYS_prctl:
        return a == PR_SET_SECCOMP ? (void *)filter : (void *)pl_real.syscall;
    case SYS_seccomp:
        (void)b, (void)c;
        return a == SECCOMP_SET_MODE_STRICT || a == SECCOMP_SET_MODE_FILTER
                   ? (void *)filter
                   : (void *)pl_real.syscall;
#ifdef SYS_fork
    case SYS_fork:
        return cloning(nr, 0, 0);
    case SYS_vfork:
        return cloning(SYS_clone, CLONE_VM | CLONE_VFORK, 0);
#endif
    case SYS_clone:
    case SYS_clone3:
        return cloning(nr, a, b);
    case SYS_pidfd_getfd:
        return (void *)by_name;
    case SYS_execve:
    case SYS_execveat:
        pl_before_exec();
        break;
    case SYS_exit:
        pl_thread_ends((int)a);
        break;
    case SYS_exit_group:
        pl_ending();
        break;
    default:
        break;
    }
    return (void *)pl_real.syscall;
}

/* Called by the assembly below, with the first arguments of the call. Returns where to jump. */
void *pl_syscall_target(long nr, long a, long b, long c, long d, long e);
void *pl_syscall_target(long nr, long a, long b, long c, long d, long e)
{
    pl_ready();
    if (atomic_load_explicit(&pl_passive, memory_order_relaxed))
        return (void *)pl_real.syscall;
    switch (nr) {
    case SYS_close:
    case SYS_dup:
    case SYS_fcntl:
    case SYS_shutdown:
        return ours((int)a) ? (void *)by_name : (void *)pl_real.syscall;
#ifdef SYS_dup2
    case SYS_dup2:
#endif
    case SYS_dup3:
        return ours((int)a) || ours((int)b) || b == STDERR_FILENO ? (void *)by_name
                                                                  : (void *)pl_real.syscall;
    case SYS_write:
    case SYS_writev:
        return leave_to_send((int)a, 0);
    case SYS_sendto:
        return leave_to_send((int)a, d);
    case SYS_sendmsg:
        pl_passes_untold((int)a, (const struct msghdr *)b);
        return leave_to_send((int)a, c);
    case SYS_sendmmsg:
        pl_passes_in((int)a, (const struct mmsghdr *)b, (unsigned)c);
        return leave_to_send((int)a, d);
    case SYS_read:
    case SYS_readv:
    case SYS_preadv2:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_recvmmsg:
        return leave_to_receive((int)a);
    case SYS_pwritev2:
    case SYS_connect:
    case SYS_setsockopt:
    case SYS_ioctl:
#ifdef SYS_epoll_wait
    case SYS_epoll_wait:
#endif
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
    case SYS_vmsplice:
        leave((int)a);
        break;
    case SYS_getsockopt:
        if (b == IPPROTO_TCP && c == TCP_ZEROCOPY_RECEIVE)
            leave((int)a);
        break;
    case SYS_io_submit:
        leave_submitted((struct iocb *const *)c, b);
        break;
    case SYS_bpf:
        if (a == BPF_MAP_UPDATE_ELEM)
            leave_mapped((const union bpf_attr *)b, (unsigned long)c);
        break;
    case SYS_epoll_ctl:
    case SYS_splice:
        leave_two(a, c);
        break;
    case SYS_sendfile:
    case SYS_tee:
        leave_two(a, b);
        break;
#ifdef SYS_poll
    case SYS_poll:
#endif
    case SYS_ppoll:
        leave_polled((const struct pollfd *)a, (unsigned long)b);
        break;
#ifdef SYS_select
    case SYS_select:
#endif
    case SYS_pselect6:
        leave_selected((int)a, (const fd_set *const[]){(fd_set *)b, (fd_set *)c, (fd_set *)d});
        break;
    default:
        (void)e;
        return of_process(nr, a, b, c);
    }
    return (void *)pl_real.syscall;
}

#if defined(__x86_64__)
#define SAVE(reg) "push %" #reg "\n.cfi_adjust_cfa_offset 8\n"
#define BACK(reg) "pop %" #reg "\n.cfi_adjust_cfa_offset -8\n"
#define BODY                                                                                   \
    "endbr64\n" SAVE(rdi) SAVE(rsi) SAVE(rdx) SAVE(rcx) SAVE(r8)                               \
        SAVE(r9) "sub $8, %rsp\n"                                                              \
                 ".cfi_adjust_cfa_offset 8\n"                                                  \
                 "call pl_syscall_target\n"                                                    \
                 "add $8, %rsp\n"                                                              \
                 ".cfi_adjust_cfa_offset -8\n" BACK(r9) BACK(r8) BACK(rcx) BACK(rdx) BACK(rsi) \
                     BACK(rdi) "jmp *%rax\n"
#elif defined(__aarch64__)
#define BODY                       \
    "hint #34\n"                   \
    "stp x29, x30, [sp, #-80]!\n"  \
    ".cfi_adjust_cfa_offset 80\n"  \
    ".cfi_rel_offset x29, 0\n"     \
    ".cfi_rel_offset x30, 8\n"     \
    "stp x0, x1, [sp, #16]\n"      \
    "stp x2, x3, [sp, #32]\n"      \
    "stp x4, x5, [sp, #48]\n"      \
    "str x6, [sp, #64]\n"          \
    "bl pl_syscall_target\n"       \
    "mov x16, x0\n"                \
    "ldp x0, x1, [sp, #16]\n"      \
    "ldp x2, x3, [sp, #32]\n"      \
    "ldp x4, x5, [sp, #48]\n"      \
    "ldr x6, [sp, #64]\n"          \
    "ldp x29, x30, [sp], #80\n"    \
    ".cfi_adjust_cfa_offset -80\n" \
    ".cfi_restore x29\n"           \
    ".cfi_restore x30\n"           \
    "br x16\n"
#else
#error "railsock: syscall is not written for this architecture"
#endif

__asm__(".text\n"
        ".globl syscall\n"
        ".type syscall, %function\n"
        "syscall:\n"
        ".cfi_startproc\n" BODY ".cfi_endproc\n"
        ".size syscall, . - syscall\n");
