/*
 * values.h - the settings that a stream has: how one is written, what it means, and which of
 * several levels (defaults, rules file, rule, environment) has the say. One table for the
 * environment, the rules and what prints them.
 */
#ifndef CFG_VALUES_H
#define CFG_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cfg_mode { CFG_AUTO, CFG_TCP, CFG_RAIL };
enum cfg_wire { CFG_WIRE_AUTO, CFG_WIRE_SHM, CFG_WIRE_VERBS };

/* In the order in which they are printed. */
enum cfg_key {
    CFG_MODE,     /* auto|tcp|rail; rail boards eagerly unless a board says otherwise */
    CFG_WIRE,     /* auto|shm|verbs */
    CFG_BOARD,    /* auto|eager|after=N|after=Nk|after=Nm|never */
    CFG_SPIN,     /* microseconds (0..1000000), or auto */
    CFG_RING,     /* bytes, k, m: up to 64 MiB, rounded up to a power of two; 0: the wire's own */
    CFG_RAILS,    /* rails at once, 0..100000 */
    CFG_MEMORY,   /* bytes of their rings, k, m, g */
    CFG_IDLE,     /* seconds (0..86400) after which a rail is given back; 0: never */
    CFG_STALL,    /* milliseconds (0..60000) for which a full ring may stand still; 0: for ever */
    CFG_TOS,      /* service type of the rail's packets (IPv4 ToS, IPv6 traffic class), 0..255 */
    CFG_SITE_KEY, /* the file of the key that both ends must have; none */
    CFG_KEYS
};

struct cfg_map; /* rules.h */
struct cfg_use;

/* What a stream points to: nobody changes it once a stream has it. */
struct cfg_stream {
    enum cfg_mode mode;
    enum cfg_wire wire;
    bool board_never, spin_auto; /* spin_auto: spin_ns is where it begins, the rest is measured */
    int16_t tos;                 /* -1: what the kernel takes */
    uint16_t reason;             /* RSN_* if it must stay on TCP, else 0 */
    uint32_t board_calls;        /* calls on the stream before it asks */
    uint32_t spin_ns, ring;
    uint64_t board_bytes; /* or this many bytes */
    uint64_t max_rails, max_memory, idle_ns, stall_ns;
    uint32_t given;             /* 1 << key: somebody has set it */
    const char *key_file;       /* of the site key; NULL: there is none */
    const uint8_t *site_key;    /* 16 bytes; NULL: none, or it could not be read */
    const struct cfg_map *maps; /* where RDMA reaches what TCP reaches elsewhere */
    struct cfg_use *use;        /* a rule's own budget: what its streams have. NULL: it has none */
};

#define CFG_STREAM_DEFAULTS                                                             \
    {                                                                                   \
        .board_calls = 8, .board_bytes = 64 << 10, .spin_ns = 20000, .spin_auto = true, \
        .max_rails = 1024, .max_memory = 512ull << 20, .idle_ns = 60000000000ull,       \
        .stall_ns = 50000000, .tos = -1,                                                \
    }
extern const struct cfg_stream cfg_stream_defaults;

/* Bytes of both rings of a rail that is asked for, whose size is not known yet, where no ring
 * is configured. */
#define CFG_RAIL_EXPECTED (512u * 1024)

/* "mode" and the like. */
const char *cfg_key_name(enum cfg_key);
/* What its value has to be, in words. */
const char *cfg_key_expected(enum cfg_key);
/* False: not a value of that; nothing is changed. A file's name stays where it is, and is noted. */
bool cfg_key_parse(enum cfg_key, const char *text, struct cfg_stream *);
/* The value as it would be written. Returns text. */
const char *cfg_key_print(enum cfg_key, const struct cfg_stream *, char *text, size_t size);

/* Takes one setting over, as given. */
void cfg_key_take(struct cfg_stream *out, const struct cfg_stream *from, enum cfg_key);

/* The defaults, then what each level has given: later ones have the say. A mode=rail boards at once
 * unless its own level or a later one gives a board. */
void cfg_resolve(struct cfg_stream *out, const struct cfg_stream *const level[], unsigned n);

#endif
