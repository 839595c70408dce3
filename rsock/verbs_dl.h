/*
 * verbs_dl.h - librdmacm and libibverbs, opened when they are first needed. Linking them
 * costs every exec of every program 1.4 ms, so nothing of the library names their symbols.
 *
 * The inline functions of verbs.h (ibv_post_send, ibv_poll_cq, ibv_post_recv,
 * ibv_req_notify_cq) call through the context and need no entry here. The fields have no
 * ibv_ prefix because some of those names are macros in verbs.h.
 */
#ifndef RSK_VERBS_DL_H
#define RSK_VERBS_DL_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>

/* V(library, version, symbol, field, result, parameters). The version is the one that today's
 * headers mean: libibverbs also has older functions of the same names and other structs. */
/* clang-format off */
#define RSK_VERBS_SYMBOLS(V) \
    V(ibv, "IBVERBS_1.1", "ibv_fork_init", fork_init, int, (void)) \
    V(ibv, "IBVERBS_1.1", "ibv_get_device_name", get_device_name, const char *, (struct ibv_device *)) \
    V(ibv, "IBVERBS_1.1", "ibv_close_device", close_device, int, (struct ibv_context *)) \
    V(ibv, "IBVERBS_1.1", "ibv_query_device", query_device, int, (struct ibv_context *, struct ibv_device_attr *)) \
    V(ibv, "IBVERBS_1.1", "ibv_get_async_event", get_async_event, int, (struct ibv_context *, struct ibv_async_event *)) \
    V(ibv, "IBVERBS_1.1", "ibv_ack_async_event", ack_async_event, void, (struct ibv_async_event *)) \
    V(ibv, "IBVERBS_1.1", "ibv_alloc_pd", alloc_pd, struct ibv_pd *, (struct ibv_context *)) \
    V(ibv, "IBVERBS_1.1", "ibv_dealloc_pd", dealloc_pd, int, (struct ibv_pd *)) \
    V(ibv, "IBVERBS_1.1", "ibv_reg_mr", reg_mr, struct ibv_mr *, (struct ibv_pd *, void *, size_t, int)) \
    V(ibv, "IBVERBS_1.1", "ibv_dereg_mr", dereg_mr, int, (struct ibv_mr *)) \
    V(ibv, "IBVERBS_1.0", "ibv_create_comp_channel", create_comp_channel, struct ibv_comp_channel *, (struct ibv_context *)) \
    V(ibv, "IBVERBS_1.0", "ibv_destroy_comp_channel", destroy_comp_channel, int, (struct ibv_comp_channel *)) \
    V(ibv, "IBVERBS_1.1", "ibv_create_cq", create_cq, struct ibv_cq *, (struct ibv_context *, int, void *, struct ibv_comp_channel *, int)) \
    V(ibv, "IBVERBS_1.1", "ibv_destroy_cq", destroy_cq, int, (struct ibv_cq *)) \
    V(ibv, "IBVERBS_1.1", "ibv_get_cq_event", get_cq_event, int, (struct ibv_comp_channel *, struct ibv_cq **, void **)) \
    V(ibv, "IBVERBS_1.1", "ibv_ack_cq_events", ack_cq_events, void, (struct ibv_cq *, unsigned int)) \
    V(ibv, "IBVERBS_1.1", "ibv_modify_qp", modify_qp, int, (struct ibv_qp *, struct ibv_qp_attr *, int)) \
    V(ibv, "IBVERBS_1.1", "ibv_wc_status_str", wc_status_str, const char *, (enum ibv_wc_status)) \
    V(ibv, "IBVERBS_1.1", "ibv_event_type_str", event_type_str, const char *, (enum ibv_event_type)) \
    V(cma, "RDMACM_1.0", "rdma_create_event_channel", create_event_channel, struct rdma_event_channel *, (void)) \
    V(cma, "RDMACM_1.0", "rdma_destroy_event_channel", destroy_event_channel, void, (struct rdma_event_channel *)) \
    V(cma, "RDMACM_1.0", "rdma_create_id", create_id, int, (struct rdma_event_channel *, struct rdma_cm_id **, void *, enum rdma_port_space)) \
    V(cma, "RDMACM_1.0", "rdma_destroy_id", destroy_id, int, (struct rdma_cm_id *)) \
    V(cma, "RDMACM_1.0", "rdma_bind_addr", bind_addr, int, (struct rdma_cm_id *, struct sockaddr *)) \
    V(cma, "RDMACM_1.0", "rdma_resolve_addr", resolve_addr, int, (struct rdma_cm_id *, struct sockaddr *, struct sockaddr *, int)) \
    V(cma, "RDMACM_1.0", "rdma_resolve_route", resolve_route, int, (struct rdma_cm_id *, int)) \
    V(cma, "RDMACM_1.0", "rdma_create_qp", create_qp, int, (struct rdma_cm_id *, struct ibv_pd *, struct ibv_qp_init_attr *)) \
    V(cma, "RDMACM_1.0", "rdma_destroy_qp", destroy_qp, void, (struct rdma_cm_id *)) \
    V(cma, "RDMACM_1.0", "rdma_connect", connect, int, (struct rdma_cm_id *, struct rdma_conn_param *)) \
    V(cma, "RDMACM_1.0", "rdma_listen", listen, int, (struct rdma_cm_id *, int)) \
    V(cma, "RDMACM_1.0", "rdma_accept", accept, int, (struct rdma_cm_id *, struct rdma_conn_param *)) \
    V(cma, "RDMACM_1.0", "rdma_reject", reject, int, (struct rdma_cm_id *, const void *, uint8_t)) \
    V(cma, "RDMACM_1.0", "rdma_notify", notify, int, (struct rdma_cm_id *, enum ibv_event_type)) \
    V(cma, "RDMACM_1.0", "rdma_disconnect", disconnect, int, (struct rdma_cm_id *)) \
    V(cma, "RDMACM_1.0", "rdma_get_cm_event", get_cm_event, int, (struct rdma_event_channel *, struct rdma_cm_event **)) \
    V(cma, "RDMACM_1.0", "rdma_ack_cm_event", ack_cm_event, int, (struct rdma_cm_event *)) \
    V(cma, "RDMACM_1.0", "rdma_migrate_id", migrate_id, int, (struct rdma_cm_id *, struct rdma_event_channel *)) \
    V(cma, "RDMACM_1.0", "rdma_set_option", set_option, int, (struct rdma_cm_id *, int, int, void *, size_t)) \
    V(cma, "RDMACM_1.0", "rdma_get_src_port", get_src_port, __be16, (struct rdma_cm_id *)) \
    V(cma, "RDMACM_1.0", "rdma_get_devices", get_devices, struct ibv_context **, (int *)) \
    V(cma, "RDMACM_1.0", "rdma_free_devices", free_devices, void, (struct ibv_context **))
/* clang-format on */

struct vb_dl {
#define V(lib, version, symbol, field, ret, params) ret(*field) params;
    RSK_VERBS_SYMBOLS(V)
#undef V
};

/* Valid after vb_dl_open() has returned 0. */
extern struct vb_dl vdl;

/* Opens both libraries. 0; -ENOENT when one or a symbol is missing, and then it is not tried again;
 * -ENOMEM when there is no room, -EMFILE when there is no descriptor. Progress thread, or before it
 * runs. */
int vb_dl_open(void);
/* A forked child does not have the memory that is registered: before Linux 5.12. */
bool vb_dl_leaves_out(void);
/* Has the address space (RLIMIT_AS) room for libraries and their drivers? Those that libibverbs
 * cannot load it complains of on the program's stderr. */
bool vb_dl_room(void);
/* Gives them back, with every context that librdmacm holds; nothing of theirs is in use any more.
 * If somebody else has librdmacm loaded there is no verbs afterwards. Progress thread. */
void vb_dl_shut(void);
/* A forked child: what there is to close is its parent's. */
void vb_dl_close_none(void);
/* A context of librdmacm's, which ends without closing any: vb_dl_shut does it. */
void vb_dl_close_later(struct ibv_context *);

#endif
