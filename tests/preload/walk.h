/*
 * walk.h - for a process that goes through a call of its child's instruction by instruction: which
 * they are, and a stop at each of them in turn. The child raises SIGTRAP before the call, and says
 * in memory of both when it is over.
 */
#ifndef TESTS_PRELOAD_WALK_H
#define TESTS_PRELOAD_WALK_H

#include "pair.h"

#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

#if defined(__x86_64__)
#define CAN_WALK true
#else
#include <elf.h>
#include <sys/auxv.h>
#include <sys/uio.h>

/* Each step's exception makes a store exclusive fail: without instructions for what is atomic a
 * loop around one has no end. */
#define CAN_WALK ((getauxval(AT_HWCAP) & HWCAP_ATOMICS) != 0)
#endif

struct walk {
    unsigned long at[16384]; /* each instruction once, in the order in which they are come by */
    unsigned places;
};

/* Memory of a parent and its children. */
static inline void *shared_by_all(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    must(p != MAP_FAILED, "mmap");
    return p;
}

/* The child has asked to be traced: it ends with us. Returns what it did first. */
static inline int first_stop(pid_t pid)
{
    int status;

    must(waitpid(pid, &status, 0) == pid, "waitpid");
    if (WIFSTOPPED(status))
        must(ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)PTRACE_O_EXITKILL) == 0,
             "PTRACE_O_EXITKILL");
    return status;
}

/* How is a request of ptrace's that lets it run. False: it has ended. */
static inline bool goes_on(pid_t pid, int how, int sig, int *status)
{
    must(ptrace(how, pid, NULL, (void *)(long)sig) == 0, "ptrace");
    must(waitpid(pid, status, 0) == pid, "waitpid");
    return WIFSTOPPED(*status);
}

/* A child of ours, traced to its end. In each of its raises at_raise says with which signal it
 * goes on, 0: none. */
static inline void trace_child(int (*child)(void), int (*at_raise)(pid_t))
{
    pid_t pid = fork();
    int status;

    if (pid == 0)
        exit(child());
    status = first_stop(pid);
    while (WIFSTOPPED(status)) {
        int sig = WSTOPSIG(status);

        (void)goes_on(pid, PTRACE_CONT, sig == SIGTRAP ? at_raise(pid) : sig, &status);
    }
    printf("exited %d status %d\n", WIFEXITED(status), WEXITSTATUS(status));
}

#if defined(__x86_64__)
static inline unsigned long pc_of(pid_t pid)
{
    return (unsigned long)ptrace(PTRACE_PEEKUSER, pid, (void *)offsetof(struct user, regs.rip),
                                 NULL);
}

static inline void poke(pid_t pid, int which, unsigned long value)
{
    must(ptrace(PTRACE_POKEUSER, pid, (void *)offsetof(struct user, u_debugreg[which]),
                (void *)value) == 0,
         "a breakpoint");
}

/* pc 0: no more. */
static inline void breakpoint(pid_t pid, unsigned long pc)
{
    if (pc)
        poke(pid, 0, pc);
    poke(pid, 7, pc != 0);
}
#else
static inline unsigned long pc_of(pid_t pid)
{
    struct user_regs_struct regs;
    struct iovec v = {&regs, sizeof(regs)};

    must(ptrace(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &v) == 0, "registers");
    return regs.pc;
}

/* pc 0: no more. */
static inline void breakpoint(pid_t pid, unsigned long pc)
{
    enum { ON = 1, OF_PROGRAMS = 2 << 1, WHOLE_INSTRUCTION = 15 << 5 };
    struct { /* the first of struct user_hwdebug_state */
        uint32_t info, pad;
        uint64_t at;
        uint32_t control, pad2;
    } state = {.at = pc, .control = pc ? ON | OF_PROGRAMS | WHOLE_INSTRUCTION : 0};
    struct iovec v = {&state, sizeof(state)};

    must(ptrace(PTRACE_SETREGSET, pid, (void *)NT_ARM_HW_BREAK, &v) == 0, "a breakpoint");
}
#endif

/* Is a system call the instruction before this one? */
static inline bool is_behind_system_call(pid_t pid, unsigned long pc)
{
#if defined(__x86_64__)
    return (ptrace(PTRACE_PEEKTEXT, pid, (void *)(pc - 2), NULL) & 0xffff) == 0x050f;
#else
    return (ptrace(PTRACE_PEEKTEXT, pid, (void *)(pc - 4), NULL) & 0xffffffff) == 0xd4000001;
#endif
}

static inline void note(struct walk *w, unsigned long pc)
{
    for (unsigned i = 0; i < w->places; i++)
        if (w->at[i] == pc)
            return;
    must(w->places < sizeof(w->at) / sizeof(w->at[0]), "a longer list");
    w->at[w->places++] = pc;
}

/* From its raise until the call is over. */
static inline void walk(struct walk *w, pid_t pid, const volatile bool *over)
{
    int status;

    w->places = 0;
    while (!*over) {
        must(goes_on(pid, PTRACE_SINGLESTEP, 0, &status), "stepping");
        note(w, pc_of(pid));
    }
}

__attribute__((noinline)) static void landmark(void)
{
    __asm__ volatile("");
}

/* Some virtual machines have no breakpoints: they are taken, and nothing stops there. */
static inline bool has_breakpoints(void)
{
    static int known; /* 1 no, 2 yes */
    pid_t pid;
    int status;

    if (known)
        return known == 2;
    fflush(stdout);
    pid = fork();
    must(pid >= 0, "fork");
    if (pid == 0) {
        must(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0, "PTRACE_TRACEME");
        raise(SIGTRAP);
        landmark();
        _exit(0);
    }
    status = first_stop(pid);
    must(WIFSTOPPED(status), "the child's raise");
    breakpoint(pid, (unsigned long)landmark);
    known = goes_on(pid, PTRACE_CONT, 0, &status) ? 2 : 1;
    if (known == 2)
        must(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid, "SIGKILL");
    return known == 2;
}

/* For a stop at one instruction of `each`, or of more: a few hundred stops, however long the call
 * is, or few where each takes as many steps as there are instructions before it. */
static inline unsigned walk_step(const struct walk *w, unsigned each)
{
    unsigned step = w->places / (has_breakpoints() ? 400 : 12) + 1;

    return step > each ? step : each;
}

/* Has it stopped for a signal that somebody has sent, and not for the one of a step? */
static inline bool is_sent(pid_t pid, int status)
{
    siginfo_t info;

    if (WSTOPSIG(status) != SIGTRAP)
        return true;
    must(ptrace(PTRACE_GETSIGINFO, pid, NULL, &info) == 0, "PTRACE_GETSIGINFO");
    return info.si_code <= 0;
}

/* Lets it run to the next time that it comes by this instruction, or raises. By a breakpoint of the
 * processor's, for this thread alone, because the others run the same code; or step by step. */
static inline void run_to(pid_t pid, unsigned long pc)
{
    int status;

    if (has_breakpoints()) {
        breakpoint(pid, pc);
        must(goes_on(pid, PTRACE_CONT, 0, &status), "to the breakpoint");
        breakpoint(pid, 0);
        return;
    }
    do {
        must(goes_on(pid, PTRACE_SINGLESTEP, 0, &status), "to the place");
    } while (pc_of(pid) != pc && !is_sent(pid, status));
}

/* It is in the raise before its call. Walks it at first, with w->places 0; then has it go on to the
 * next place. The signal that it gets there, 0: none, -1: it has been at all of them. */
static inline int walk_on(struct walk *w, unsigned *n, pid_t pid, const volatile bool *over)
{
    if (!w->places) {
        walk(w, pid, over);
        *n = 0;
        return 0;
    }
    if (*n >= w->places)
        return -1;
    run_to(pid, w->at[*n]);
    *n += has_breakpoints() ? 1 : walk_step(w, 1);
    return SIGUSR1;
}

#endif
