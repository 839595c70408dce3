/*
 * lab_session.h - the state of a running lab, shared by lab_run.c and lab_ctl.c.
 * All of it belongs to the main thread.
 */
#ifndef RAILSOCK_LAB_SESSION_H
#define RAILSOCK_LAB_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "lab.h"
#include "lab_barrier.h"
#include "lab_config.h"
#include "lab_host.h"
#include "lab_lines.h"
#include "lab_tty.h"

#define LAB_TAIL 80 /* lines of the console kept for a report */

enum lab_state { LAB_BOOTING, LAB_READY, LAB_RUNNING, LAB_ENDED, LAB_DRAINED };
enum lab_phase { LAB_PHASE_BOOT, LAB_PHASE_RUN, LAB_PHASE_END };

struct lab_stream {
    struct lab_host *host;
    int fd; /* where its lines go */
};

struct lab_host {
    struct lab_session *session;
    unsigned number; /* from 1 */
    struct lab_qemu qemu;
    enum lab_state state;
    int status;       /* the command's, once ended */
    int64_t panic_ms; /* when the console showed one; 0: none */
    bool drained[LAB_CHANNELS];
    struct lab_lines lines[LAB_CHANNELS];
    struct lab_stream streams[LAB_CHANNELS];
    char *tail[LAB_TAIL];
    unsigned tail_n;
    char failure[128]; /* why it failed; empty: it did not */
};

struct lab_session {
    const struct lab_options *options;
    const struct lab_image *image;
    const char *scratch;
    char token[LAB_TOKEN_SIZE];
    struct lab_host hosts[LAB_MAX_HOSTS];
    struct lab_hub *hub;
    struct lab_barriers barriers;
    struct lab_tty tty;
    enum lab_phase phase;
    int64_t deadline_ms; /* of the phase; 0: none */
    int signal_fd;       /* that end it: it also ends a write that waits */
    int size_fd;         /* SIGWINCH, of a shell; else -1 */
    int signal;          /* that ended the lab, or 0 */
    int write_error;     /* of our own output, -errno */
    int status;          /* set when the lab itself failed, else 0 */
    bool raw;            /* the terminal needs \r\n */
    bool over;
    bool stood_still; /* a host did not boot in time */
    /* Of our own output, by descriptor: nobody took it in time, and no more is written. */
    bool given_up[STDERR_FILENO + 1];
};

/*
 * For our own output: its reader is waited for until a signal ends the lab, or COMMAND's time is
 * over and a little more.
 */
struct lab_patience lab_session_patience(const struct lab_session *s);

/* Writes "railsock lab: [host N: ]..." to stderr; number 0: no host. */
void lab_say(struct lab_session *s, unsigned number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Marks a host as failed and ends the lab. The first reason stays. */
void lab_host_fail(struct lab_host *host, const char *why);

/* Reports failed hosts with their consoles' ends; returns the exit status of the lab. */
int lab_session_report(struct lab_session *s);

#endif
