/*
 * doctor.h - between doctor.c, which runs the table of doctor.def, and the checks.
 */
#ifndef TOOLS_DOCTOR_H
#define TOOLS_DOCTOR_H

#include "config/env.h"
#include "rsock/wire.h"
#include "tools/elf_look.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* NOTE: something to know, which stops nothing. SKIP: cannot be told, as something before has
 * failed, or does not matter here. */
enum doc_verdict { DOC_OK, DOC_NOTE, DOC_FAIL, DOC_SKIP };

struct doc_result {
    enum doc_verdict verdict;
    char says[400];
    const char *advice; /* what the table says, unless the check knows better; static text */
};

/* What one check learns and later ones need. */
struct doctor {
    const char *target; /* PROGRAM or HOST:PORT */
    enum cfg_wire wire;
    bool wire_given; /* by an option, which has the say over rules */
    bool stop;       /* the next checks of the group make no sense */

    bool few;                /* descriptors */
    bool no_budget;          /* the environment leaves none, whatever the rules say */
    bool libraries, devices; /* can be used */

    enum elf_why why; /* of PROGRAM */
    char path[PATH_MAX], runs[PATH_MAX];

    char host[256];
    uint16_t port;
    struct addrinfo *addresses;
    int fd; /* the one TCP connection; -1: none */
    struct rsk_tuple tuple;
    const struct cfg_stream *set; /* what the rules have for it */
    bool same_host, served;       /* served: its process is seen to run with the library */
    bool accepted;                /* by the server on this host, so that its uid is known */
    bool untold;  /* nothing has failed, but whether there would be a rail cannot be told */
    uint32_t uid; /* of the other end, on this host */
    struct doc_route *route;
};

void doc_say(struct doc_result *, enum doc_verdict, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define CHECK(group, wire, name, word, advice) \
    void doc_##name(struct doctor *, struct doc_result *);
#include "tools/doctor.def"
#undef CHECK

/* Splits HOST:PORT, [HOST]:PORT. False: it is not of that form. */
bool doc_is_peer(const char *target, struct doctor *);
/* Gives back what the checks of a peer hold. */
void doc_peer_end(struct doctor *);
void doc_route_end(struct doctor *);
/* Asks the peer for a rail by this wire, as the library does; one that comes about is given back. 0
 * or a reason; -errno if it cannot even be asked. */
int doc_ask(const struct rsk_wire *wire, const struct rsk_tuple *tuple);
/* Whether memory for rings can be had; says what is the matter if not. */
bool doc_memfd(struct doc_result *);
/* What an answer, also 0, means. */
void doc_answer(struct doc_result *, int reason);

/* One line of a file of /proc or /sys, without its end. False: it cannot be read. */
bool doc_line(const char *path, char *line, size_t size);
/* Whether librdmacm can find a port, a folder as /sys/class/infiniband/DEVICE/ports/N, by IP
 * addresses, as far as it needs an interface of its own for that. */
bool doc_port_has_address(const char *port);

#endif
