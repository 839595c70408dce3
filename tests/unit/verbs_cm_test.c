/*
 * verbs_cm_test.c - who asks over RDMA, with libraries that are not there: from which port, and
 * what a peer can make of it that sends him on and on.
 */
#include "tests/shim/shim.h"
#include "tests/unit/verbs_cm_calls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config/reason.h"
#include "rsock/verbs_int.h"

/* ---- the libraries: an id has a port from where it is resolved until it is destroyed, and no
 * other one has that */

enum { IDS = 16 };

static struct fake_id {
    struct rdma_cm_id id;
    bool live;
    uint16_t from, to;
} ids[IDS];

static struct rdma_event_channel *create_event_channel(void)
{
    struct rdma_event_channel *c = malloc(sizeof(*c));

    c->fd = eventfd(0, EFD_CLOEXEC);
    return c;
}

static int create_id(struct rdma_event_channel *c, struct rdma_cm_id **id, void *context,
                     enum rdma_port_space space)
{
    (void)c, (void)space;
    for (unsigned i = 0; i < IDS; i++) {
        if (ids[i].live)
            continue;
        ids[i] = (struct fake_id){.live = true, .id.context = context};
        *id = &ids[i].id;
        return 0;
    }
    errno = ENOMEM;
    return -1;
}

static int destroy_id(struct rdma_cm_id *id)
{
    ((struct fake_id *)id)->live = false;
    return 0;
}

static int resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int ms)
{
    struct fake_id *f = (struct fake_id *)id;
    uint16_t from = ntohs(((struct sockaddr_in *)src)->sin_port);

    (void)ms;
    for (unsigned i = 0; from && i < IDS; i++)
        if (ids[i].live && ids[i].from == from) {
            errno = EADDRINUSE;
            return -1;
        }
    f->from = from;
    f->to = ntohs(((struct sockaddr_in *)dst)->sin_port);
    return 0;
}

/* What may be set before the address is resolved: how soon to repeat. */
static unsigned timeouts;
static int set_option(struct rdma_cm_id *id, int level, int option, void *value, size_t len)
{
    (void)level, (void)len;
    timeouts += option == RDMA_OPTION_ID_ACK_TIMEOUT && *(uint8_t *)value == 14 &&
                !((struct fake_id *)id)->to;
    errno = ENOSYS; /* an old kernel */
    return -1;
}

static struct rdma_cm_event event;
static bool event_there, in_step;

static int get_cm_event(struct rdma_event_channel *c, struct rdma_cm_event **ev)
{
    (void)c;
    if (!event_there)
        return -1;
    event_there = false;
    in_step = rsk_own_in_step();
    *ev = &event;
    return 0;
}

static int ack_cm_event(struct rdma_cm_event *ev)
{
    (void)ev;
    return 0;
}

static struct rdma_cm_id *moved;
static int migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *c)
{
    (void)c;
    moved = id;
    return 0;
}

static int resolve_route(struct rdma_cm_id *id, int ms)
{
    (void)id, (void)ms;
    return 0;
}

static int said;

static void done(void *owner, struct rsk_rail *r, int reason)
{
    (void)owner, (void)r;
    said = reason;
}

static void libraries(void)
{
    vdl.create_event_channel = create_event_channel;
    vdl.create_id = create_id;
    vdl.destroy_id = destroy_id;
    vdl.resolve_addr = resolve_addr;
    vdl.set_option = set_option;
    vdl.get_cm_event = get_cm_event;
    vdl.ack_cm_event = ack_cm_event;
    vdl.migrate_id = migrate_id;
    vdl.resolve_route = resolve_route;
    device = NULL;
    moved = NULL;
    memset(ids, 0, sizeof(ids));
    n_deadlines = 0;
    said = -1;
}

static const struct fake_id *asking(void)
{
    return rail ? (struct fake_id *)rail->id : NULL;
}

/* The peer refuses, and says who else could be asked. */
static void refuses(uint16_t reason, uint16_t port)
{
    static struct vb_rej rej;

    rej = (struct vb_rej){
        .h = {.magic = VB_MAGIC, .len = sizeof(rej)}, .reason = reason, .redirect = port};
    event = (struct rdma_cm_event){
        .id = rail->id,
        .event = RDMA_CM_EVENT_REJECTED,
        .status = 28, /* consumer defined */
        .param.conn = {.private_data = &rej, .private_data_len = sizeof(rej)}};
    event_there = true;
    on_channel(channels[0], 1);
}

static void sent_on(uint16_t port)
{
    refuses(RSN_NOT_MINE, port);
}

/* One that has no data. */
static void comes(enum rdma_cm_event_type type, void *channel)
{
    static struct ibv_device ib = {.transport_type = IBV_TRANSPORT_IB};
    static struct ibv_context context = {.device = &ib};

    rail->id->verbs = &context;
    event = (struct rdma_cm_event){.id = rail->id, .event = type};
    event_there = true;
    on_channel(channel, 1);
}

static struct rsk_tuple from_port(uint16_t port)
{
    return (struct rsk_tuple){.family = AF_INET,
                              .src = {127, 0, 0, 1},
                              .dst = {10, 1, 0, 2},
                              .src_port = port,
                              .dst_port = 7000};
}

/* One that the kernel has chosen, and nobody has. */
static uint16_t any_port(int *fd)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(a);

    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT(bind(*fd, (struct sockaddr *)&a, len) == 0);
    ASSERT(getsockname(*fd, (struct sockaddr *)&a, &len) == 0);
    return ntohs(a.sin_port);
}

static struct rdma_event_channel *no_channel(void)
{
    errno = ENOENT;
    return NULL;
}

/* ---- */

/* First, as the channel stays. */
TEST_CASE(verbs_cm, that_there_is_no_channel_is_noted)
{
    libraries();
    vdl.create_event_channel = no_channel;
    EXPECT_EQ_INT(vb_cm_open(), -ENODEV);
    EXPECT_EQ_INT(refused, RSN_NO_VERBS);
}

TEST_CASE(verbs_cm, the_port_of_a_listener_is_left_to_it)
{
    int fd;
    uint16_t port = any_port(&fd);
    struct rsk_tuple t = from_port(port), chosen = from_port(700);

    EXPECT_EQ_INT(vb_own_port(&t), port);
    EXPECT_EQ_INT(vb_own_port(&chosen), 0); /* by its program, which may be going to listen there */
    ASSERT_EQ_INT(listen(fd, 1), 0);
    EXPECT_EQ_INT(vb_own_port(&t), 0);
    close(fd);
    EXPECT_EQ_INT(vb_own_port(&t), port);
    /* Of both families. */
    fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd,
                       (struct sockaddr *)&(struct sockaddr_in6){.sin6_family = AF_INET6,
                                                                 .sin6_port = htons(port)},
                       sizeof(struct sockaddr_in6)) < 0)
        SKIP("no IPv6");
    ASSERT_EQ_INT(listen(fd, 1), 0);
    EXPECT_EQ_INT(vb_own_port(&t), 0);
    close(fd);
}

static void ask(uint16_t *port)
{
    struct rsk_tuple t;
    int fd;

    libraries();
    *port = any_port(&fd);
    close(fd);
    t = from_port(*port);
    t.src[0] = 10; /* not loopback's */
    timeouts = 0;
    ASSERT_EQ_INT(vb_connect(&t, NULL, 0, NULL, done), 0);
    EXPECT_EQ_INT(timeouts, 1);
    ASSERT(asking() != NULL);
    EXPECT_EQ_INT(asking()->from, *port);
    EXPECT_EQ_INT(asking()->to, 7000);
}

TEST_CASE(verbs_cm, who_is_sent_on_keeps_his_port)
{
    uint16_t port;

    ask(&port);
    for (uint16_t to = 7001; to < 7004; to++) {
        sent_on(to);
        ASSERT(asking() != NULL);
        EXPECT_EQ_INT(asking()->from, port);
        EXPECT_EQ_INT(asking()->to, to);
    }
    sent_on(7000); /* where it began */
    EXPECT(asking() == NULL);
    EXPECT_EQ_INT(said, RSN_NOT_MINE);
    for (unsigned i = 0; i < IDS; i++)
        EXPECT(!ids[i].live);
}

/* Not to blame on the way to the peer's host, or on all of that, at anybody's word. */
TEST_CASE(verbs_cm, what_a_peer_may_say)
{
    const int not [] = {RSN_RDV_TIMEOUT, RSN_RAIL_FAILED, RSN_DEVICE_GONE, 1000, 65535};
    uint16_t port;

    for (unsigned i = 0; i < sizeof(not ) / sizeof(*not ); i++) {
        ask(&port);
        refuses((uint16_t) not [i], 0);
        EXPECT_EQ_INT(said, RSN_PEER_REFUSED);
    }
    ask(&port);
    refuses(RSN_BUDGET, 0);
    EXPECT_EQ_INT(said, RSN_BUDGET);
}

static unsigned n_refused;

static void no_rail(void *owner, int reason)
{
    (void)owner;
    n_refused++;
    EXPECT_EQ_INT(reason, RSN_PEER_REFUSED);
}

/* Who has asked us, and refuses what we have answered, does not send us anywhere. */
TEST_CASE(verbs_cm, who_is_asked_is_not_sent_on)
{
    static const struct rsk_accept_ops ops = {.refused = no_rail};
    uint16_t port;

    ask(&port);
    rail->initiator = false;
    rail->state = VB_ACCEPTED;
    rail->done = NULL;
    rail->ops = &ops;
    rail->began = 0;
    sent_on(7001);
    EXPECT(asking() == NULL);
    EXPECT_EQ_INT(n_refused, 1);
    EXPECT_EQ_INT(said, -1);
    for (unsigned i = 0; i < IDS; i++)
        EXPECT(!ids[i].live);
}

TEST_CASE(verbs_cm, who_is_sent_on_has_no_more_time)
{
    enum { LATE_US = 20000 };
    uint16_t port;

    ask(&port);
    ASSERT_EQ_INT(n_deadlines, 1);
    for (unsigned i = 1; i < 3; i++) {
        usleep(LATE_US);
        sent_on((uint16_t)(7000 + i));
        ASSERT_EQ_INT(n_deadlines, i + 1);
        EXPECT(deadlines[i] <= deadlines[0] - i * LATE_US * UINT64_C(1000));
    }
    sent_on(7000);
}

/* What takes a number waits for the end of a step, and of the events that come once the device is
 * there one is several commands to the adapter. */
TEST_CASE(verbs_cm, steps_end_at_the_door)
{
    static struct vb_dev known;
    uint16_t port;

    ask(&port);
    device = &known;
    comes(RDMA_CM_EVENT_ADDR_RESOLVED, channels[0]);
    EXPECT(in_step);
    ASSERT(rail && moved == rail->id);
    ASSERT_EQ_INT(n_channels, 2);
    comes(RDMA_CM_EVENT_ROUTE_ERROR, channels[1]);
    EXPECT(!event_there && !in_step);
    EXPECT(rail == NULL);
    EXPECT_EQ_INT(said, RSN_NO_RDMA_ON_ROUTE);
}

/* A device that has failed is not taken for a lack of memory. */
TEST_CASE(verbs_cm, why_there_is_no_device)
{
    static const struct {
        int err, reason;
    } why[] = {{ENODEV, RSN_DEVICE_GONE}, {EMFILE, RSN_LIMIT_FD}, {ENOMEM, RSN_NO_MEMORY}};
    uint16_t port;

    for (unsigned i = 0; i < sizeof(why) / sizeof(*why); i++) {
        ask(&port);
        why_not = why[i].err;
        comes(RDMA_CM_EVENT_ADDR_RESOLVED, channels[0]);
        EXPECT_EQ_INT(said, why[i].reason);
    }
}
