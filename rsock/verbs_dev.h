/*
 * verbs_dev.h - devices, librdmacm's event channels, and what is looked at before either is opened.
 * For verbs_*.c only; progress thread, or a forked child.
 */
#ifndef RSK_VERBS_DEV_H
#define RSK_VERBS_DEV_H

#include <stdbool.h>
#include <stddef.h>

#include "rsock/verbs_dl.h"

struct vb_dev;
struct vb_cm_owner;

/* ---- verbs_dev.c */

/* An id of librdmacm's has come with an opened device. */
void vb_dev_seen(struct rdma_cm_id *id);
/* The device of a CM id, counted; NULL with ENOMEM, EMFILE, or ENODEV: it has failed. */
struct vb_dev *vb_dev_get(struct rdma_cm_id *);
/* Moves a device's descriptors out of the application's way, in a step that has opened it. */
void vb_dev_hide(struct ibv_context *);
void vb_dev_put(struct vb_dev *);
void vb_dev_gone(struct vb_dev *);
/* Ends an id that is on the device, once its port is up. It must have no QP any more. */
void vb_dev_end_id(struct vb_dev *, struct rdma_cm_id *);
struct vb_dev *vb_dev_find(const struct ibv_context *);
/* After a removal librdmacm keeps a dead context until it looks at the list of devices again. */
void vb_dev_resync(void);
/* Ends everything on all devices and closes them. */
void vb_dev_shut(void);
/* In a forked child. False: there was none. */
bool vb_dev_forget(void);

/* ---- verbs_fork.c */

/* Before anything is opened: if librdmacm was in use when this process was forked off, it is loaded
 * afresh. False: it may not. */
bool vb_dev_afresh(void);

/* ---- verbs_host.c */

/* 0: the kernel shows some RDMA device that is not iWARP; or a reason. */
int vb_host_has_device(void);
int vb_host_may_listen(void); /* 0: there is no iWARP device; -ENODEV, -EMFILE */
/* Why nothing of RDMA is to be opened now, a reason or 0: the program has a device of
 * /dev/infiniband open that we have not opened, or had (where /proc is not to be read, none);
 * libibverbs would complain on stderr; or less than a second ago it was refused. */
int vb_host_refuses(void);
void vb_host_refused(int reason); /* what came of opening it */

/* ---- verbs_channel.c */

/* 0; -EMFILE, -ENOMEM, -ENODEV or -ENOENT. Opens the event channel at the first call. */
int vb_cm_open(void);
bool vb_cm_is_open(void);
/* A new id on the channel; NULL with errno. */
struct rdma_cm_id *vb_cm_id(struct vb_cm_owner *, enum rdma_port_space);
/* The device of the id is open: its events open none any more. */
void vb_cm_inside(struct rdma_cm_id *);
void vb_cm_forget(void);
/* Closes the event channels, which no id is left on. */
void vb_cm_shut(void);

#endif
