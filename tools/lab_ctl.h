/*
 * lab_ctl.h - our side of the control channel; lab-guest documents its lines.
 */
#ifndef RAILSOCK_LAB_CTL_H
#define RAILSOCK_LAB_CTL_H

#include "lab_session.h"

/* Acts on one line from a host; text is changed. A line that makes no sense fails it. */
void lab_ctl_line(struct lab_host *host, char *text);

/* Sends text to a host. A host that does not take it has failed. Does not block. */
void lab_ctl_send(struct lab_host *host, const char *text);

/* Tells host 1 the size of our terminal. */
void lab_ctl_send_size(struct lab_session *s);

#endif
