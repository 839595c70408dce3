/*
 * cancelled_anywhere.c - a thread that may be cancelled at any instruction, and is within a call on
 * its connection, at one of its instructions after another, in a child each. It ends, though it
 * makes no other call, and the connection goes on.
 */
#include "cancelled.h"

struct call {
    const char *name;
    void (*make)(void);
    unsigned each; /* of so many instructions one (walk_step) */
};

static void count(void)
{
    int n;
    ioctl(p[1], FIONREAD, &n);
}

static const struct call calls[] = {
    {"write", write_piece, 16}, {"read", read_piece, 16}, {"FIONREAD", count, 48}};

static void *canceller(void *unused)
{
    (void)unused;
    cancel_first(after);
    return NULL;
}

static void child(const struct call *c)
{
    to_be_cancelled(canceller);
    must(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL) == 0, "type");
    raise(SIGTRAP);
    c->make();
    both->over = true;
    if (!both->wish)
        raise(SIGTRAP); /* it did not come by that instruction this time */
    for (;;)
        ;
}

/* One child, which is cancelled at its n'th place, or walked through. */
static void one(const struct call *c, struct walk *w, unsigned n)
{
    pid_t pid = next_child();

    if (pid == 0) {
        child(c);
        _exit(1);
    }
    if (!at_place(w, n, pid, first_stop(pid)))
        return;
    cancel_it_there();
    goes_well(w, n, pid, 0, c->name);
}

int main(void)
{
    static struct walk w;

    if (!may_trace())
        return 0;
    for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        w.places = 0;
        for (unsigned n = 0; n == 0 || n < w.places; n += walk_step(&w, calls[i].each))
            one(&calls[i], &w, n);
        printf("%s: cancelled in it\n", calls[i].name);
    }
    return 0;
}
