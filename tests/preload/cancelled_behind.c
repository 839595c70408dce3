/*
 * cancelled_behind.c - a thread that may be cancelled at any instruction, and is where the kernel
 * has just given it bytes of a connection that has no rail yet: what it has taken is known all the
 * same, and the connection boards.
 */
#include "cancelled.h"

static void boards_later(void)
{
    on_rail(p);
    after();
}

static void *canceller(void *unused)
{
    (void)unused;
    cancel_first(boards_later);
    return NULL;
}

static void child(void)
{
    struct sockaddr_in at;
    int l = listener(&at);

    to_be_cancelled(canceller);
    must(close(p[0]) == 0 && close(p[1]) == 0, "close");
    pair_at(l, &at, p);
    write_piece();
    must(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL) == 0, "type");
    raise(SIGTRAP);
    read_piece();
    both->over = true;
    if (!both->wish)
        raise(SIGTRAP);
    for (;;)
        ;
}

int main(void)
{
    enum { TIMES = 3 };
    static struct walk w;

    if (!may_trace())
        return 0;
    for (unsigned n = 0; n == 0 || n < w.places * TIMES; n++) {
        pid_t pid = next_child();

        if (pid == 0) {
            child();
            _exit(1);
        }
        if (!w.places) {
            behind_system_calls(&w, pid, first_stop(pid));
            continue;
        }
        (void)first_stop(pid);
        run_to(pid, w.at[n % w.places]);
        cancel_it_there();
        goes_well(&w, n, pid, 0, "read");
    }
    puts("cancelled behind it");
    return 0;
}
