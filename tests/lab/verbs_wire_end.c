/*
 * verbs_wire_end.c - verbs_wire_test: the end of a rail that is well.
 */
#include "tests/lab/verbs_wire.h"

#include "config/reason.h"
#include "rsock/loop.h"
#include "rsock/sys.h"

static void end_job(void *arg)
{
    struct conn *c = arg;
    struct rsk_msg m = {.type = 8, .reason = RSN_IDLE};
    struct rsk_rail *r = atomic_load(&c->rail);

    if (wire->ctl_send(r, &m) < 0)
        wrong(c, "the last words cannot be said");
    wire->kill(r, RSN_PEER_LEFT);
}

/* By an adapter that takes its time: the client's (verbs_wire_lazy.c). Both ends are told that it
 * is over, and the server why. */
int last_words(struct conn *c)
{
    uint64_t end = sys_now() + PATIENCE_S * 1000000000ull;
    struct rsk_msg m = {.type = 0};

    if (!c->server) {
        if (send_all(c, 3000) < 0)
            return -1;
        rsk_loop_post(end_job, c);
        while (!atomic_load(&c->failed))
            if (sys_now() > end)
                return wrong(c, "no RSK_FAIL");
            else
                nap(1000);
        end_on_loop(c);
        return 0;
    }
    if (recv_all(c, 3000) < 0)
        return -1;
    while (!wire->ctl_recv(c->rail, &m)) {
        if (atomic_load(&c->failed) && !wire->ctl_recv(c->rail, &m))
            return wrong(c, "the rail has failed, and nobody has said why");
        if (sys_now() > end)
            return wrong(c, "nothing has been said");
        wire->poll(c->rail, RSK_ANY);
        nap(1000);
    }
    return m.type == 8 && m.reason == RSN_IDLE ? 0 : wrong(c, "message %u", m.type);
}
