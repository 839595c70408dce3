/*
 * verbs_post_test.c - the sender half against a peer that writes its credit as it likes, with a
 * queue pair that takes everything.
 */
#include "tests/shim/shim.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "config/reason.h"
#include "rsock/section.h"
#include "rsock/verbs_int.h"

/* ---- what verbs_post.c calls */

_Thread_local struct rsk_sig rsk_sig;
_Atomic bool rsk_sections_on;
_Atomic bool vb_probing = true;
const struct rsk_wire rsk_verbs_wire = {.much = 4};

void rsk_cancel_later(void)
{
}

void vb_probe_ask(void)
{
}

void vb_mind_due(struct vb_part *p, bool anew)
{
    (void)anew;
    (void)p;
}

void vb_rail_fail(struct vb_rail *r, int reason)
{
    atomic_store(&r->base.failed, (uint32_t)reason);
}

/* ---- */

enum { RING = 65536, CTL = 4096, PAGE = 4096 };

static struct vb_rail rail;
static struct vb_credit *credit;

static int take_all(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    (void)qp, (void)wr, (void)bad;
    return 0;
}

static void all_done(void)
{
    atomic_store(&rail.sq_done, rail.sq_posted);
}

static void begin(void)
{
    static struct ibv_context context;
    static struct ibv_qp qp;

    if (!credit) {
        credit = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        rail.staging = malloc(RING + CTL + VB_CREDIT_OUT * sizeof *credit);
    }
    context.ops.post_send = take_all;
    qp.context = &context;
    memset(credit, 0, sizeof *credit);
    rail = (struct vb_rail){.staging = rail.staging};
    rail.qp = &qp;
    rail.knows = true;
    rail.credit_in = credit;
    rail.base.wire = &rsk_verbs_wire;
    rail.base.tx_size = RING;
    rail.max_message = RING / 4;
    rail.ctl_out = rail.staging + RING;
    rail.credit_out = (void *)(rail.staging + RING + CTL);
    rail.no_room_at = VB_ASKED_NONE;
    vb_tx_start(&rail.base, 1);
    ASSERT_EQ_INT(vb_tx_open(&rail.base), 0);
}

static void fill_up(size_t piece)
{
    struct iovec v[2];
    size_t n;

    while ((n = vb_tx_space(&rail.base, v))) {
        ASSERT_EQ_INT(vb_tx_put(&rail.base, n < piece ? n : piece), 0);
        all_done();
    }
}

/* A sender of small pieces that has filled the ring ahead of the peer's library: it has asked
 * to be told of bytes and of messages. The stream can still be handed back, which does not wait
 * for the peer. */
TEST_CASE(verbs_post, control_while_all_is_full)
{
    const struct rsk_msg m = {.type = 9};

    begin();
    fill_up(100);
    vb_wait_for_room(&rail, 1);
    all_done();
    EXPECT_EQ_INT(rail.waiting, VB_NEED_BYTES | VB_NEED_MESSAGES);
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ_INT(vb_ctl_send(&rail.base, &m), 0);
        all_done();
    }
    /* One more could take what an answer needs. */
    EXPECT_EQ_INT(vb_ctl_send(&rail.base, &m), -EAGAIN);
    EXPECT_EQ_INT(rail.base.failed, 0);
}

static struct ibv_send_wr posted;

static int take_one(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    (void)qp, (void)bad;
    posted = *wr;
    EXPECT_EQ_INT(wr->sg_list->length, 4096);
    return 0;
}

/* A packet of the largest kind, of which the peer hears nothing, and within the least ring. */
TEST_CASE(verbs_post, the_path_is_tested)
{
    begin();
    rail.qp->context->ops.post_send = take_one;
    rail.r_ring = 77;
    EXPECT_EQ_INT(vb_post_test(&rail), 0);
    EXPECT_EQ_INT(posted.opcode, IBV_WR_RDMA_WRITE);
    EXPECT_EQ_INT(posted.wr.rdma.remote_addr, 77);
    EXPECT_EQ_INT(rail.sent, 0);
    EXPECT_EQ_INT(rail.sq_posted, 1);
    /* Of a rail that has failed meanwhile. */
    rail.base.failed = RSN_DEVICE_GONE;
    EXPECT_EQ_INT(vb_post_test(&rail), -EPIPE);
}

/* Credit that may wait for data is not forgotten by a look that posts nothing. */
TEST_CASE(verbs_post, credit_for_later_is_kept)
{
    begin();
    fill_up(100);
    EXPECT_EQ_INT(rail.waiting & VB_NEED_MESSAGES, VB_NEED_MESSAGES);
    atomic_fetch_or(&rail.due, VB_DUE_SOON);
    vb_due(&rail, VB_DUE_WAIT_MESSAGES); /* has been said */
    EXPECT_EQ_INT(rail.due & VB_DUE_SOON, VB_DUE_SOON);
    vb_due(&rail, VB_DUE_CREDIT);
    EXPECT_EQ_INT(rail.due, 0);
}

#ifdef __x86_64__

enum { TRAP_FLAG = 0x100 };

static uint64_t says[2]; /* by turns, each time that it is looked at */
static unsigned looks;

static void on_look(int sig, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;

    (void)sig;
    mprotect(credit, PAGE, PROT_READ | PROT_WRITE);
    if (info->si_addr == &credit->consumed)
        credit->consumed = says[looks++ % 2];
    uc->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static void after_look(int sig, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;

    (void)sig, (void)info;
    mprotect(credit, PAGE, PROT_NONE);
    uc->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
}

/* A peer that says that all was consumed, and takes it back: each is a number that it may say. What
 * is filled beyond the ring would go out again behind a RESUME, from the memory behind it. */
TEST_CASE(verbs_post, credit_that_is_taken_back)
{
    struct sigaction look = {.sa_sigaction = on_look, .sa_flags = SA_SIGINFO};
    struct sigaction after = {.sa_sigaction = after_look, .sa_flags = SA_SIGINFO}, was[2];
    struct iovec v[2];

    begin();
    fill_up(RING / 4);
    says[0] = 1;
    says[1] = rail.tx;
    sigaction(SIGSEGV, &look, &was[0]);
    sigaction(SIGTRAP, &after, &was[1]);
    for (looks = 0; looks < 16; looks++) {
        size_t n;

        mprotect(credit, PAGE, PROT_NONE);
        n = vb_tx_space(&rail.base, v);
        mprotect(credit, PAGE, PROT_READ | PROT_WRITE);
        if (rail.tx - rail.freed + n > RING) {
            EXPECT_EQ_INT(rail.tx - rail.freed + n, RING);
            break;
        }
    }
    sigaction(SIGSEGV, &was[0], NULL);
    sigaction(SIGTRAP, &was[1], NULL);
    EXPECT(looks >= 16);
    EXPECT_EQ_INT(rail.base.failed, 0);
    /* And whoever asks for more than a ring's gets nothing. */
    atomic_store(&rail.freed, rail.tx - RING - 1);
    EXPECT_EQ_INT(vb_tx_kept(&rail.base, rail.tx - RING - 1, rail.tx, v), 0);
}

#endif
