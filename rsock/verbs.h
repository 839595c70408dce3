/*
 * verbs.h - what the layer above may ask of the verbs wire beyond wire.h.
 */
#ifndef RSK_VERBS_H
#define RSK_VERBS_H

#include <stdint.h>

#include "rsock/wire.h"

/* The RDMA port on which this process answers for this TCP port (host order); 0: none. It is the
 * port itself, unless another process had that first. Progress thread. */
int rsk_verbs_local_port(int family, uint16_t port);

#endif
