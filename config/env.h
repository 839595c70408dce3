/*
 * env.h - the settings of this process, read once from RAILSOCK_* in the
 * environment. A value that cannot be understood is reported once on stderr with
 * its name, what was expected and what is used instead; it never stops a program.
 * A set-user-ID program (AT_SECURE) ignores them all and stays on TCP.
 */
#ifndef CFG_ENV_H
#define CFG_ENV_H

#include <stdbool.h>
#include <stdint.h>

enum cfg_mode { CFG_AUTO, CFG_TCP, CFG_RAIL };
enum cfg_wire { CFG_WIRE_AUTO, CFG_WIRE_SHM, CFG_WIRE_VERBS };

struct cfg {
    enum cfg_mode mode; /* RAILSOCK_MODE=auto|tcp|rail; rail boards eagerly */
    enum cfg_wire wire; /* RAILSOCK_WIRE=auto|shm|verbs */
    bool board_never;   /* RAILSOCK_BOARD=never */
    uint32_t
        board_calls; /* RAILSOCK_BOARD=after=N: calls on the stream before it asks; eager = 1 */
    uint64_t board_bytes; /* after=Nk or Nm: or this many bytes */
    uint32_t spin_ns;     /* RAILSOCK_SPIN=MICROSECONDS (0..1000000) or auto */
    bool spin_auto;       /* spin_ns is where it begins: what sleeping costs is measured */
    uint32_t ring;        /* RAILSOCK_RING=BYTES, k, m; 0 = the wire's own default; a power of two,
                                4 KiB to 64 MiB, else rounded up */
    uint64_t max_rails;   /* RAILSOCK_RAILS=N (0..100000), default 1024: at once in this process */
    uint64_t max_memory;  /* RAILSOCK_MEMORY=BYTES, k, m: of their rings, default 512 MiB */
    uint64_t idle_ns;     /* RAILSOCK_IDLE=SECONDS (0..86400), default 60: then a rail is given
                                back; 0 = never */
    uint64_t
        stall_ns; /* RAILSOCK_STALL=MILLISECONDS (0..60000), default 50: a ring that is full for
                                so long is left; 0 = never */
    bool seccomp_rail;    /* RAILSOCK_SECCOMP=tcp|rail, default tcp: after a filter was installed */
    bool uring;           /* RAILSOCK_PROGRESS=auto|epoll */
    uint64_t test_switch; /* RAILSOCK_TEST_SWITCH=SEED, for tests: harass.c; 0 = off */
    int log_level;        /* RAILSOCK_LOG=error|warn|info|debug[:FILE]; default error */
    char log_file[200];   /* empty: stderr */
};

/* Valid after cfg_init, never changes. */
extern struct cfg cfg;

/* Reads the environment. Called by the library's constructor, and by tests with their own
 * environment set; idempotent only in that it starts from the defaults each time. */
void cfg_init(void);

/* What the variable expects, in words, if value is not that; else NULL. For commands that pass
 * values on. An unknown name expects nothing. */
const char *cfg_expected(const char *name, const char *value);

#endif
