/*
 * given_back.c - what has been sent is its sender's no more once the peer can have it: another
 * thread that has the answer may give the memory back, and so may one that frees the message, while
 * the sender is on its way out of the kernel.
 */
#include "cancelled.h"

#include <dlfcn.h>
#include <sys/uio.h>

enum { SIZE = 48 * 1024, HEAD = 4096 };

struct call {
    const char *name;
    void (*make)(void);
};

static char *memory; /* the message and its vector, then its bytes */

static void by_write(void)
{
    must(write(p[0], memory + HEAD, SIZE) == SIZE, "write");
}

static void by_writev(void)
{
    must(writev(p[0], (struct iovec *)(void *)memory, 2) == SIZE, "writev");
}

static void by_sendmsg(void)
{
    must(sendmsg(p[0], (struct msghdr *)(void *)(memory + 64), 0) == SIZE, "sendmsg");
}

static void by_sendmmsg(void)
{
    struct mmsghdr two[2] = {{.msg_hdr = *(struct msghdr *)(void *)(memory + 64)}};

    must(sendmmsg(p[0], two, 2, 0) == 2 && two[0].msg_len == SIZE, "sendmmsg");
}

static const struct call calls[] = {
    {"write", by_write}, {"writev", by_writev}, {"sendmsg", by_sendmsg}, {"sendmmsg", by_sendmmsg}};

static void *giver(void *unused)
{
    (void)unused;
    while (!both->wish)
        sched_yield();
    must(munmap(memory, HEAD + SIZE) == 0, "munmap");
    both->wish = 2;
    return NULL;
}

static void child(const struct call *c)
{
    char small[64] = "s";
    struct sockaddr_in at;
    struct iovec *v;
    struct msghdr *m;
    int l = listener(&at);
    pthread_t t;

    must(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0, "PTRACE_TRACEME");
    alarm(120);
    must(pthread_create(&t, NULL, giver, NULL) == 0, "thread");
    memory = mmap(NULL, HEAD + SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(memory != MAP_FAILED, "mmap");
    memset(memory + HEAD, 'x', SIZE);
    v = (struct iovec *)(void *)memory;
    v[0] = (struct iovec){memory + HEAD, 100};
    v[1] = (struct iovec){memory + HEAD + 100, SIZE - 100};
    m = (struct msghdr *)(void *)(memory + 64);
    *m = (struct msghdr){.msg_iov = v, .msg_iovlen = 2};
    /* So that what has passed is of use, and the dynamic linker knows the function; it is not
     * worth a rail yet. */
    pair_at(l, &at, p);
    for (int i = 0; i < 5; i++)
        must(write(p[0], small, sizeof(small)) == sizeof(small) &&
                 read(p[1], small, sizeof(small)) == sizeof(small),
             "small");
    must(writev(p[0], v, 1) == 100 && sendmsg(p[0], &(struct msghdr){0}, 0) == 0 &&
             sendmmsg(p[0], &(struct mmsghdr){0}, 1, 0) == 1,
         "first");
    raise(SIGTRAP);
    c->make();
    both->over = true;
    _exit(0);
}

/* The first one that is libc's: the library looks at what it is given by system
 * calls of its own. */
static unsigned long the_send(const struct walk *w)
{
    Dl_info at;

    for (unsigned i = 0; i < w->places; i++)
        if (dladdr((void *)w->at[i], &at) && strstr(at.dli_fname, "libc.so"))
            return w->at[i];
    give_up("no system call of libc's");
}

int main(void)
{
    static struct walk w;

    if (!may_trace())
        return 0;
    for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        w.places = 0;
        /* Once to learn of the place behind the send itself, which is the first. (On a rail, or
         * about to be, there are others before the bytes are taken.) */
        for (int walked = 0; walked < 2 && !mode_rail(); walked++) {
            pid_t pid = next_child();
            int status;

            if (pid == 0)
                child(&calls[i]);
            status = first_stop(pid);
            if (!walked) {
                behind_system_calls(&w, pid, status);
                continue;
            }
            run_to(pid, the_send(&w));
            cancel_it_there();
            goes_well(&w, 0, pid, 0, calls[i].name);
        }
        printf("%s: given back\n", calls[i].name);
    }
    return 0;
}
