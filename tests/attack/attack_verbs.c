/*
 * attack_verbs.c - lies of a peer on the verbs wire: immediates, work requests and remote
 * keys that an honest one never posts. What it does is posted on its own queue pair, past its
 * own bookkeeping.
 */
#include "tests/attack/attack.h"

#include "rsock/verbs_int.h"
#include "rsock/verbs_proto.h"

static struct vb_rail *rail(struct victim *v)
{
    return vb_of(conn(v)->x->rail);
}

/*
 * Posts a list of requests, unsignalled: only a refusal by the adapter is heard of. With the
 * lock held over the whole list, so that nothing of our library's comes between; and its
 * messages are counted, or our library would be the first to complain, of a victim that has
 * taken more than was sent.
 */
static void post(struct vb_rail *r, struct ibv_send_wr *list)
{
    struct ibv_send_wr *bad;

    vb_lock(&r->lock);
    for (struct ibv_send_wr *wr = list; wr; wr = wr->next) {
        wr->wr_id = vb_wr_id(r, VB_WR_SEND, 0);
        r->sent += wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    }
    if (!r->qp || ibv_post_send(r->qp, list, &bad))
        DIE("the lie cannot be posted");
    vb_unlock(&r->lock);
}

static struct ibv_send_wr immediate_of(const struct vb_rail *r, uint32_t imm)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htonl(imm)};

    wr.wr.rdma.remote_addr = r->r_ring;
    wr.wr.rdma.rkey = r->r_rkey;
    return wr;
}

static void immediate(struct vb_rail *r, uint32_t imm)
{
    struct ibv_send_wr wr = immediate_of(r, imm);

    post(r, &wr);
}

/* Memory, and then a message behind it if there is one. */
static void write_then(struct vb_rail *r, uint64_t address, uint32_t rkey, const void *p,
                       uint32_t n, struct ibv_send_wr *then)
{
    struct ibv_sge sge = {.addr = (uintptr_t)p, .length = n};
    struct ibv_send_wr wr = {.next = then,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_INLINE,
                             .sg_list = &sge,
                             .num_sge = 1};

    wr.wr.rdma.remote_addr = address;
    wr.wr.rdma.rkey = rkey;
    post(r, &wr);
}

static void write_to(struct vb_rail *r, uint64_t address, uint32_t rkey, const void *p, uint32_t n)
{
    write_then(r, address, rkey, p, n, NULL);
}

static void imm_type(struct victim *v)
{
    immediate(rail(v), VB_IMM(9, 0, 1));
}

static void imm_length(struct victim *v)
{
    struct vb_rail *r = rail(v);

    immediate(r, VB_IMM(VB_DATA, r->data_sent & VB_SEQ, r->base.tx_size + 1));
}

static void imm_zero(struct victim *v)
{
    struct vb_rail *r = rail(v);

    immediate(r, VB_IMM(VB_DATA, r->data_sent & VB_SEQ, 0));
}

static void imm_sequence(struct victim *v)
{
    struct vb_rail *r = rail(v);

    immediate(r, VB_IMM(VB_DATA, (r->data_sent + 1) & VB_SEQ, 1));
}

/* The slots hold what was said before: the hand-shake, announcements, echoes. */
static void ctl_replay(struct victim *v)
{
    struct vb_rail *r = rail(v);

    for (int i = 0; i < 10; i++)
        immediate(r, VB_IMM(VB_CTRL, 0, 0));
}

static void credit_with(struct vb_rail *r, const struct vb_credit *c, uint32_t imm)
{
    struct ibv_send_wr then = immediate_of(r, imm);

    write_then(r, r->r_credit, r->r_rkey, c, sizeof *c, &then);
}

static void credit(struct victim *v, const struct vb_credit *c)
{
    /* A WAKE, so that it is looked at now. */
    credit_with(rail(v), c, VB_IMM(VB_WAKE, VB_NEED_BYTES | VB_NEED_MESSAGES, 0));
}

static void credit_ahead(struct victim *v)
{
    struct vb_rail *r = rail(v);
    struct vb_credit c = {
        .consumed = r->arrived + 1000000, .messages = r->pub_messages, .control = r->pub_control};

    credit(v, &c);
}

static void credit_messages(struct victim *v)
{
    struct vb_rail *r = rail(v);
    struct vb_credit c = {
        .consumed = r->consumed, .messages = 1ull << 40, .control = r->pub_control};

    credit(v, &c);
}

static void credit_control(struct victim *v)
{
    struct vb_rail *r = rail(v);
    struct vb_credit c = {
        .consumed = r->consumed, .messages = r->pub_messages, .control = 1ull << 40};

    credit(v, &c);
}

static void wait_lie(struct victim *v)
{
    struct vb_rail *r = rail(v);
    struct vb_credit c = {.consumed = r->consumed,
                          .messages = r->pub_messages,
                          .control = r->pub_control,
                          .seen = UINT64_MAX / 2};

    credit_with(r, &c, VB_IMM(VB_WAIT, VB_NEED_BYTES, 0));
}

/* What the adapter has to refuse. It ends our queue pair, and the victim's with it. */

static const char bytes[8] = "foreign";

static void key_guess(struct victim *v)
{
    struct vb_rail *r = rail(v);

    write_to(r, r->r_ring, r->r_rkey ^ 0x101, bytes, sizeof bytes);
}

static void beyond_the_ring(struct victim *v)
{
    struct vb_rail *r = rail(v);

    write_to(r, r->r_ring + (1u << 24), r->r_rkey, bytes, sizeof bytes);
}

static void read_memory(struct victim *v)
{
    struct vb_rail *r = rail(v);
    struct ibv_sge sge = {.addr = (uintptr_t)r->staging, .length = 64, .lkey = r->lkey_out};
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ, .sg_list = &sge, .num_sge = 1};

    wr.wr.rdma.remote_addr = r->r_ring;
    wr.wr.rdma.rkey = r->r_rkey;
    post(r, &wr);
}

/* The key of another connection's ring, and its address, on this one's queue pair. */
static void other_ring(struct victim *v)
{
    struct vb_rail *theirs, *ours = rail(v); /* which peer() holds: it fails soon */
    struct victim other;

    victim_connect(&other, victim_address, victim_port);
    if (!board(&other, PATIENCE_S))
        DIE("the other one does not board");
    theirs = rail(&other);
    for (uint64_t i = 0; i < 1024; i += 8)
        write_to(ours, theirs->r_ring + i, theirs->r_rkey, bytes, sizeof bytes);
    /* Ours ends; theirs must not have been touched, nor end. */
    while (conn(v)->x->rail && !ours->base.failed)
        if (round_trip(v, 100))
            break;
    for (int i = 0; i < 20; i++)
        if (round_trip(&other, 1000) || other.s->pub->path_rx == FB_PATH_TCP)
            DIE("the other connection has suffered");
    victim_close(&other);
}

const struct lie verbs_lies[] = {
    {.name = "imm-type", .once = imm_type},
    {.name = "imm-length", .once = imm_length},
    {.name = "imm-zero", .once = imm_zero},
    {.name = "imm-sequence", .once = imm_sequence},
    {.name = "ctl-replay", .once = ctl_replay},
    {.name = "credit-ahead", .each = credit_ahead},
    {.name = "credit-messages", .each = credit_messages},
    {.name = "credit-control", .each = credit_control},
    {.name = "wait-lie", .each = wait_lie},
    {.name = "key-guess", .once = key_guess},
    {.name = "beyond-the-ring", .once = beyond_the_ring},
    {.name = "read-memory", .once = read_memory},
    {.name = "other-ring", .once = other_ring},
    {0},
};

/* ---- before the victim knows us */

static int (*honestly)(struct rdma_cm_id *, struct rdma_conn_param *);

/* A message without bytes needs no key of the victim's, and his queue pair takes it before his
 * library has our answer; which then has it pin a large ring, all that while. */
static int accept_and_ask(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
    enum { LARGE_LOG2 = 24 };
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                             .imm_data = htonl(VB_IMM(VB_WAIT, VB_NEED_MESSAGES, 0))},
                       *bad;
    struct rdma_conn_param mine = *param;
    struct vb_desc d;
    int r;

    memcpy(&d, param->private_data, sizeof d);
    d.h.ring_log2 = LARGE_LOG2;
    mine.private_data = &d;
    r = honestly(id, &mine);
    if (r == 0 && ibv_post_send(id->qp, &wr, &bad))
        DIE("the question cannot be posted");
    return r;
}

void ask_early(void)
{
    if (!rsk_verbs_wire.usable() && !vb_dl_open()) {
        honestly = vdl.accept;
        vdl.accept = accept_and_ask;
    }
    if (!honestly)
        DIE("no verbs here");
}
