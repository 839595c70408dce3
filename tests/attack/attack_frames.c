/*
 * attack_frames.c - lies in what travels on the anchor, and in the messages beside it. The
 * connection is real, so is the proof; the frames are not.
 *
 * Frames of our own library are changed on their way: fb_io is the table of its system calls.
 */
#include "tests/attack/attack.h"

#include <sys/socket.h>

static ssize_t (*real_send)(int fd, const struct iovec *v, int cnt, int flags);
static void (*change)(struct fb_frame *);
static uint8_t change_type;

static ssize_t changed_send(int fd, const struct iovec *v, int cnt, int flags)
{
    struct fb_frame f;
    struct iovec mine = {&f, sizeof f};

    if (cnt != 1 || v->iov_len != sizeof f)
        return real_send(fd, v, cnt, flags);
    memcpy(&f, v->iov_base, sizeof f);
    if (f.type != change_type || f.version != FB_PROTO_VERSION || f.epoch != attacked->x->epoch)
        return real_send(fd, v, cnt, flags);
    change(&f);
    return real_send(fd, &mine, 1, flags);
}

static void send_changed(uint8_t type, void (*fn)(struct fb_frame *))
{
    change_type = type;
    change = fn;
    real_send = fb_io.send;
    fb_io.send = changed_send;
}

/* With a tag that is right for what the frame says now. */
static void tag_anew(struct fb_frame *f)
{
    fb_tag(attacked->x->nonce0, attacked->x->nonce1, f, FB_FRAME_TAGGED, f->tag);
}

static void wrong_tag(struct fb_frame *f)
{
    f->tag[3] ^= 1;
}

static void wrong_nonce(struct fb_frame *f)
{
    f->N[0] ^= 1;
    tag_anew(f);
}

static void wrong_epoch(struct fb_frame *f)
{
    f->epoch--;
    tag_anew(f);
}

static void wrong_version(struct fb_frame *f)
{
    f->version++;
    tag_anew(f);
}

static void wrong_type(struct fb_frame *f)
{
    f->type = f->type == FF_SWITCH ? FF_RESUME : FF_SWITCH;
    tag_anew(f);
}

static void wrong_place(struct fb_frame *f)
{
    f->u.sw.S++;
    tag_anew(f);
}

static void noise(struct fb_frame *f)
{
    for (size_t i = 1; i < sizeof *f; i++)
        ((uint8_t *)f)[i] = (uint8_t)(i * 37);
}

static void F_ahead(struct fb_frame *f)
{
    f->u.re.F += 1 << 20;
    f->u.re.E += 1 << 20;
    tag_anew(f);
}

static void E_behind(struct fb_frame *f)
{
    f->u.re.E = 0;
    tag_anew(f);
}

#define SWITCH_LIE(name)               \
    static void switch_##name(void)    \
    {                                  \
        send_changed(FF_SWITCH, name); \
    }
SWITCH_LIE(wrong_tag)
SWITCH_LIE(wrong_nonce)
SWITCH_LIE(wrong_epoch)
SWITCH_LIE(wrong_version)
SWITCH_LIE(wrong_type)
SWITCH_LIE(wrong_place)
SWITCH_LIE(noise)

#define RESUME_LIE(name)                        \
    static void resume_##name(struct victim *v) \
    {                                           \
        send_changed(FF_RESUME, name);          \
        fb_pin(v->s, RSN_CALL, false);          \
    }
RESUME_LIE(wrong_tag)
RESUME_LIE(wrong_nonce)
RESUME_LIE(wrong_epoch)
RESUME_LIE(wrong_version)
RESUME_LIE(wrong_type)
RESUME_LIE(noise)
RESUME_LIE(F_ahead)
RESUME_LIE(E_behind)

static void write_raw(struct victim *v, const void *p, size_t n)
{
    if (send(v->fd, p, n, MSG_NOSIGNAL) != (ssize_t)n)
        DIE("the raw write failed");
}

/* What the application writes past the library, on a boarded anchor: 64 bytes of data, and 10. */
static void raw_bytes(struct victim *v)
{
    char data[64];

    memset(data, FB_RESUME_C, sizeof data);
    write_raw(v, data, sizeof data);
}

static void raw_few_and_end(struct victim *v)
{
    write_raw(v, "RESUME here", 11);
    shutdown(v->fd, SHUT_WR);
}

/* A frame that was good in the epoch before: the stream leaves, boards again, and the old frame
 * comes once more. */
static struct fb_frame old;

static void keep(struct fb_frame *f)
{
    old = *f;
}

static void replay(struct victim *v)
{
    send_changed(FF_RESUME, keep);
    fb_leave_all(RSN_CALL, FB_NOBODY);
    if (round_trip(v, 100) || !old.type || !board(v, PATIENCE_S))
        DIE("does not board again");
    write_raw(v, &old, sizeof old);
}

/* ---- messages beside it */

static struct rsk_wire lying_wire;
static const struct rsk_wire *true_wire;
static uint64_t (*real_now)(void);
static int (*lying_ctl_send)(struct rsk_rail *, const struct rsk_msg *);

/* The library asks for the time as soon as it has a rail, before it says anything on it. */
static uint64_t hook_now(void)
{
    struct fb_conn *c = attacked;
    struct rsk_rail *r = c ? c->x->rail : NULL;

    if (r && r->wire != &lying_wire) {
        true_wire = r->wire;
        lying_wire = *true_wire;
        lying_wire.ctl_send = lying_ctl_send;
        r->wire = &lying_wire;
    }
    return real_now();
}

static void lie_in_messages(int (*fn)(struct rsk_rail *, const struct rsk_msg *))
{
    lying_ctl_send = fn;
    real_now = fb_io.now;
    fb_io.now = hook_now;
}

/* Whoever has not seen the SWITCH frame does not know what to send back. */
static int echo_of_nothing(struct rsk_rail *r, const struct rsk_msg *m)
{
    struct rsk_msg out = *m;

    if (out.type == FM_ECHO)
        memset(out.data, 0, sizeof out.data);
    return true_wire->ctl_send(r, &out);
}

static void echo_lie(void)
{
    lie_in_messages(echo_of_nothing);
}

/* Goes on as if proved, with a proof that is wrong by one bit. */
static int proof_by_guess(struct rsk_rail *r, const struct rsk_msg *m)
{
    struct rsk_msg out = *m;

    if (out.type == FM_PROVED)
        out.data[15] ^= 0x80;
    return true_wire->ctl_send(r, &out);
}

static void proof_lie(void)
{
    lie_in_messages(proof_by_guess);
}

/* The proof of the rail before is said again on the next one, and nothing else. */
static struct rsk_msg kept;
static _Atomic bool again;

static int proof_of_before(struct rsk_rail *r, const struct rsk_msg *m)
{
    if (m->type == FM_PROVED)
        kept = *m;
    return true_wire->ctl_send(r, again && m->type == FM_HELLO ? &kept : m);
}

static void keep_proof(void)
{
    lie_in_messages(proof_of_before);
}

static void prove_again(struct victim *v)
{
    again = true;
    fb_leave_all(RSN_CALL, FB_NOBODY);
    if (round_trip(v, 100) || kept.type != FM_PROVED)
        DIE("does not leave");
    if (board(v, 2))
        DIE("boards by a proof of before");
}

/* Knows all of the stream, and not the site key. */
static int proof_without_key(struct rsk_rail *r, const struct rsk_msg *m)
{
    struct fb_conn *c = attacked;
    struct fb_proof_in in = {.nonce0 = c->x->nonce0,
                             .nonce1 = c->x->nonce1,
                             .up = &conn_seen(c)->tx,
                             .down = &conn_seen(c)->rx,
                             .up_at = c->x->hello_up,
                             .down_at = c->x->hello_down,
                             .role = 0};
    struct rsk_msg out = *m;

    if (out.type == FM_PROVED && !fb_proof(&in, out.data))
        DIE("no proof");
    return true_wire->ctl_send(r, &out);
}

static void keyless_lie(void)
{
    lie_in_messages(proof_without_key);
}

/* Leaves the proof out. */
static int no_proof(struct rsk_rail *r, const struct rsk_msg *m)
{
    return m->type == FM_PROVED ? 0 : true_wire->ctl_send(r, m);
}

static void no_proof_lie(void)
{
    lie_in_messages(no_proof);
}

/* Says that it knows only the first 16 bytes of the stream. */
static int weak_proof(struct rsk_rail *r, const struct rsk_msg *m)
{
    struct rsk_msg out = *m;

    if (out.type == FM_HELLO) {
        out.a = 1;
        out.b = 0;
    }
    return true_wire->ctl_send(r, &out);
}

static void weak_lie(void)
{
    lie_in_messages(weak_proof);
}

/* While our library's own progress thread may be giving the rail back. */
static void say(struct rsk_rail *r, const struct rsk_msg *m)
{
    if (r && !r->failed)
        r->wire->ctl_send(r, m);
}

/* Messages that concern an epoch that is over. */
static void stale_epochs(struct victim *v)
{
    static const uint8_t types[] = {FM_ANN, FM_ACK, FM_NAK, FM_ECHO, FM_LEAVE_REQ, FM_BYE};
    struct rsk_rail *r = conn(v)->x->rail;

    for (size_t i = 0; i < sizeof types; i++) {
        struct rsk_msg m = {
            .type = types[i], .epoch = conn(v)->x->epoch - 1, .a = v->pos, .att = 1};

        say(r, &m);
    }
}

/* An announcement of a switch where one has been on this rail already. */
static void announce_again(struct victim *v)
{
    struct rsk_rail *r = conn(v)->x->rail;
    struct rsk_msg m = {.type = FM_ANN, .epoch = conn(v)->x->epoch, .a = v->pos, .b = 1, .att = 9};

    say(r, &m);
}

/* A LEAVE_REQ that claims to have read what was never sent, and one that takes back what it has. */
static void leave_lies(struct victim *v)
{
    struct rsk_rail *r = conn(v)->x->rail;
    struct rsk_msg m = {.type = FM_LEAVE_REQ, .epoch = conn(v)->x->epoch, .a = UINT64_MAX};

    say(r, &m);
    m.a = 0;
    say(r, &m);
}

const struct lie frame_lies[] = {
    {.name = "stale-epochs", .once = stale_epochs},
    {.name = "announce-again", .once = announce_again},
    {.name = "leave-lies", .leaves = true, .once = leave_lies},
    {.name = "switch-tag", .before = switch_wrong_tag},
    {.name = "switch-nonce", .before = switch_wrong_nonce},
    {.name = "switch-epoch", .before = switch_wrong_epoch},
    {.name = "switch-version", .before = switch_wrong_version},
    {.name = "switch-type", .before = switch_wrong_type},
    {.name = "switch-place", .before = switch_wrong_place},
    {.name = "switch-noise", .before = switch_noise},
    {.name = "resume-tag", .once = resume_wrong_tag},
    {.name = "resume-nonce", .once = resume_wrong_nonce},
    {.name = "resume-epoch", .once = resume_wrong_epoch},
    {.name = "resume-version", .once = resume_wrong_version},
    {.name = "resume-type", .once = resume_wrong_type},
    {.name = "resume-noise", .once = resume_noise},
    {.name = "resume-ahead", .once = resume_F_ahead},
    {.name = "resume-behind", .once = resume_E_behind},
    {.name = "raw-bytes", .once = raw_bytes},
    {.name = "raw-end", .once = raw_few_and_end},
    {.name = "replay", .once = replay},
    {.name = "echo", .before = echo_lie},
    {.name = "proof", .before = proof_lie},
    {.name = "proof-again", .leaves = true, .before = keep_proof, .once = prove_again},
    {.name = "proof-without-key", .before = keyless_lie},
    {.name = "no-proof", .before = no_proof_lie},
    {.name = "weak-proof", .before = weak_lie},
    {0},
};
