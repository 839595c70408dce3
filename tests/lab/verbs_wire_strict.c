/*
 * verbs_wire_strict.c - an adapter that is stricter than rxe: as on mlx5, hns and others an arming
 * bears a number, which grows when an event of its CQ is taken, and one that comes with an old
 * number is ignored. None may be.
 */
#include "tests/lab/verbs_wire.h"

#include <stdio.h>

#include "rsock/verbs_dl.h"

enum { CQS = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const struct ibv_cq *cq;
    uint32_t number, armed_with;
} cqs[CQS];
static unsigned arms, ignored;

static int (*real_notify)(struct ibv_cq *, int);
static struct ibv_cq *(*real_create)(struct ibv_context *, int, void *, struct ibv_comp_channel *,
                                     int);
static int (*real_get)(struct ibv_comp_channel *, struct ibv_cq **, void **);

static unsigned place(const struct ibv_cq *cq)
{
    unsigned i = 0;

    while (i < CQS - 1 && cqs[i].cq && cqs[i].cq != cq)
        i++;
    cqs[i].cq = cq;
    return i;
}

static int notify(struct ibv_cq *cq, int solicited)
{
    unsigned i;
    bool old;

    pthread_mutex_lock(&lock);
    i = place(cq);
    old = cqs[i].armed_with == cqs[i].number;
    cqs[i].armed_with = cqs[i].number;
    arms++;
    if (old && !ignored++) {
        printf("not ok strict: an arming is ignored\n");
        fflush(stdout);
    }
    pthread_mutex_unlock(&lock);
    return old ? 0 : real_notify(cq, solicited);
}

static struct ibv_cq *create(struct ibv_context *ctx, int cqe, void *context,
                             struct ibv_comp_channel *channel, int vector)
{
    struct ibv_cq *cq = real_create(ctx, cqe, context, channel, vector);
    unsigned i;

    if (!cq)
        return NULL;
    pthread_mutex_lock(&lock);
    i = place(cq);
    cqs[i].number = 1;
    cqs[i].armed_with = 0;
    if (ctx->ops.req_notify_cq != notify)
        real_notify = ctx->ops.req_notify_cq;
    ctx->ops.req_notify_cq = notify;
    pthread_mutex_unlock(&lock);
    return cq;
}

static int get(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
    int err = real_get(channel, cq, context);

    if (err)
        return err;
    pthread_mutex_lock(&lock);
    cqs[place(*cq)].number++;
    pthread_mutex_unlock(&lock);
    return 0;
}

void be_strict(void)
{
    real_create = vdl.create_cq;
    real_get = vdl.get_cq_event;
    vdl.create_cq = create;
    vdl.get_cq_event = get;
}

int was_strict(void)
{
    pthread_mutex_lock(&lock);
    if (arms && !ignored)
        printf("ok strict\n");
    else if (!arms)
        printf("not ok strict: nothing was armed\n");
    pthread_mutex_unlock(&lock);
    fflush(stdout);
    return ignored || !arms;
}
