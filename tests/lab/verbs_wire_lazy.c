/*
 * verbs_wire_lazy.c - an adapter that sends when it comes to it, as real ones do: what is posted is
 * sent some milliseconds later, by a thread of its own, and what has not been sent when the queue
 * pair is moved to ERR or destroyed is thrown away. (rxe sends within the call.)
 */
#include "tests/lab/verbs_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rsock/sys.h"
#include "rsock/verbs_dl.h"

enum { POSTS = 256, LATE_US = 5000, PIECES = 3 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct post {
    struct ibv_qp *qp; /* NULL: none, or thrown away */
    struct ibv_send_wr wr[PIECES];
    struct ibv_sge sge[PIECES];
    uint64_t at;
} posts[POSTS];
static unsigned first, end;

static int (*real_post)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
static int (*real_modify)(struct ibv_qp *, struct ibv_qp_attr *, int);
static void (*real_destroy)(struct rdma_cm_id *);
static int (*real_create)(struct rdma_cm_id *, struct ibv_pd *, struct ibv_qp_init_attr *);

static int post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct post *p;
    unsigned n = 0;

    (void)bad;
    pthread_mutex_lock(&lock);
    if (end - first == POSTS)
        abort();
    p = &posts[end++ % POSTS];
    *p = (struct post){.qp = qp, .at = sys_now() + LATE_US * UINT64_C(1000)};
    for (; wr; wr = wr->next, n++) {
        p->wr[n] = *wr;
        p->sge[n] = *wr->sg_list;
        p->wr[n].sg_list = &p->sge[n];
        p->wr[n].next = wr->next ? &p->wr[n + 1] : NULL;
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

static void *send_later(void *unused)
{
    struct ibv_send_wr *bad;

    for (;; nap(1000)) {
        pthread_mutex_lock(&lock);
        for (; first != end && posts[first % POSTS].at <= sys_now(); first++)
            if (posts[first % POSTS].qp)
                real_post(posts[first % POSTS].qp, posts[first % POSTS].wr, &bad);
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

static void throw_away(const struct ibv_qp *qp)
{
    pthread_mutex_lock(&lock);
    for (unsigned i = first; i != end; i++)
        if (posts[i % POSTS].qp == qp)
            posts[i % POSTS].qp = NULL;
    pthread_mutex_unlock(&lock);
}

static int modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    if (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_ERR)
        throw_away(qp);
    return real_modify(qp, attr, mask);
}

static void destroy(struct rdma_cm_id *id)
{
    throw_away(id->qp);
    real_destroy(id);
}

static int create(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    int err = real_create(id, pd, attr);

    if (err)
        return err;
    if (id->verbs->ops.post_send != post)
        real_post = id->verbs->ops.post_send;
    id->verbs->ops.post_send = post;
    return 0;
}

void be_lazy(void)
{
    pthread_t t;

    if (real_create)
        return;
    real_modify = vdl.modify_qp;
    real_destroy = vdl.destroy_qp;
    real_create = vdl.create_qp;
    vdl.modify_qp = modify;
    vdl.destroy_qp = destroy;
    vdl.create_qp = create;
    pthread_create(&t, NULL, send_later, NULL);
}
