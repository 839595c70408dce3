/*
 * tap_pcapng.c - the bytes of a connection as a pcapng file (draft-ietf-opsawg-pcapng): one
 * section, an interface for each path, raw IP packets. Their headers are made here: RFC 791,
 * 8200, 9293. The byte with the number k has the sequence number k mod 2^32. What is missing is a
 * hole in the numbers, and a comment. Not LINKTYPE_RAW: libpcap 1.10 refuses files with two
 * interfaces of that type.
 */
#include "tools/tap.h"

#include "config/reason.h"
#include "tools/stat_print.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum {
    SECTION = 0x0a0d0d0a,
    INTERFACE = 1,
    STATISTICS = 5,
    PACKET = 6,
    RAW_IP4 = 228,
    RAW_IP6 = 229
};
enum { OPT_END = 0, OPT_COMMENT = 1 };
enum { SHB_USERAPPL = 4, IF_NAME = 2, IF_DESCRIPTION = 3, IF_TSRESOL = 9 };
enum { EPB_FLAGS = 2, EPB_DROPCOUNT = 4, EPB_IN = 1, EPB_OUT = 2 };
enum { ISB_START = 2, ISB_END = 3, ISB_RECEIVED = 4, ISB_DROPPED = 5 };
enum { FIN = 1, RST = 4, PSH = 8, ACK = 16 };
enum { IP4 = 20, IP6 = 40, TCP = 20 };

/* ---- blocks, in this machine's byte order */

struct block {
    uint32_t type;
    size_t len;
    _Alignas(8) uint8_t body[IP6 + TCP + TAP_PIECE + 4096];
};

static struct block block;

static void add(const void *p, size_t n)
{
    memcpy(block.body + block.len, p, n);
    block.len += n;
    while (block.len & 3)
        block.body[block.len++] = 0;
}

static void begin(uint32_t type, const void *fixed, size_t n)
{
    block.type = type;
    block.len = 0;
    add(fixed, n);
}

static void option(uint16_t code, const void *p, size_t n)
{
    uint16_t head[2] = {code, (uint16_t)n};

    add(head, sizeof(head));
    add(p, n);
}

static void text(uint16_t code, const char *s)
{
    option(code, s, strlen(s));
}

static void number(uint16_t code, uint64_t v)
{
    option(code, &v, sizeof(v));
}

/* A time as two halves, the high one first. */
static void moment(uint16_t code, uint64_t ns)
{
    uint32_t halves[2] = {(uint32_t)(ns >> 32), (uint32_t)ns};

    option(code, halves, sizeof(halves));
}

static void put_block(FILE *f, bool options)
{
    uint32_t total, end = 0;

    if (options)
        add(&end, sizeof(end));
    total = (uint32_t)(block.len + 12);
    fwrite(&block.type, sizeof(block.type), 1, f);
    fwrite(&total, sizeof(total), 1, f);
    fwrite(block.body, block.len, 1, f);
    fwrite(&total, sizeof(total), 1, f);
}

/* ---- packets */

/* RFC 1071. */
static uint32_t sum(uint32_t s, const uint8_t *p, size_t n)
{
    uint64_t wide = s;

    for (; n > 1; n -= 2, p += 2)
        wide += (uint32_t)(p[0] << 8 | p[1]);
    if (n)
        wide += (uint32_t)(p[0] << 8);
    while (wide >> 16)
        wide = (wide & 0xffff) + (wide >> 16);
    return (uint32_t)wide;
}

static void put16(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint64_t v)
{
    put16(p, (uint32_t)(v >> 16) & 0xffff);
    put16(p + 2, (uint32_t)v & 0xffff);
}

/* The headers of a packet with len bytes, of which `kept` are at hand. The TCP checksum of one that
 * is cut is that of what is there. Returns their length. */
static size_t headers(struct tap_file *t, uint8_t *h, bool rx, uint64_t at, uint8_t flags,
                      const uint8_t *bytes, size_t len, size_t kept)
{
    const struct fb_pub_addr *src = rx ? &t->peer : &t->local, *dst = rx ? &t->local : &t->peer;
    bool six = src->family == AF_INET6;
    size_t ip = six ? IP6 : IP4, addr = six ? 16 : 4;
    uint8_t *tcp = h + ip;
    uint32_t s;

    memset(h, 0, ip + TCP);
    if (six) {
        h[0] = 0x60;
        put16(h + 4, (uint32_t)(TCP + len));
        h[6] = IPPROTO_TCP;
        h[7] = 64;
        memcpy(h + 8, src->addr, 16);
        memcpy(h + 24, dst->addr, 16);
    } else {
        h[0] = 0x45;
        put16(h + 2, (uint32_t)(ip + TCP + len));
        h[6] = 0x40; /* don't fragment: then the identification may be 0 */
        h[8] = 64;
        h[9] = IPPROTO_TCP;
        memcpy(h + 12, src->addr, 4);
        memcpy(h + 16, dst->addr, 4);
        put16(h + 10, ~sum(0, h, IP4) & 0xffff);
    }
    put16(tcp, src->port);
    put16(tcp + 2, dst->port);
    put32(tcp + 4, at);
    put32(tcp + 8, t->way[!rx].next);
    tcp[12] = TCP / 4 << 4;
    tcp[13] = flags;
    put16(tcp + 14, 0xffff);
    s = sum((uint32_t)(IPPROTO_TCP + TCP + len), six ? h + 8 : h + 12, 2 * addr);
    s = sum(s, tcp, TCP);
    put16(tcp + 16, ~sum(s, bytes, kept) & 0xffff);
    return ip + TCP;
}

static int interface_of(struct tap_file *t, int path)
{
    struct {
        uint16_t link, reserved;
        uint32_t snap;
    } fixed = {.link = t->local.family == AF_INET6 ? RAW_IP6 : RAW_IP4};
    static const char *const what[] = {"bytes that the kernel's TCP carried",
                                       "bytes that went through shared memory",
                                       "bytes that went by RDMA"};
    uint8_t nanoseconds = 9;
    char name[48];

    if (t->interface[path] >= 0)
        return t->interface[path];
    snprintf(name, sizeof(name), "%s%s%s", stat_path_name((enum fb_path)path),
             path == FB_PATH_VERBS && *t->where ? ":" : "", path == FB_PATH_VERBS ? t->where : "");
    begin(INTERFACE, &fixed, sizeof(fixed));
    text(IF_NAME, name);
    text(IF_DESCRIPTION, what[path]);
    option(IF_TSRESOL, &nanoseconds, 1);
    put_block(t->f, true);
    return t->interface[path] = t->interfaces++;
}

__attribute__((format(printf, 3, 4))) static void say(char *comment, size_t size, const char *what,
                                                      ...)
{
    size_t at = strlen(comment);
    va_list ap;

    if (at && at + 2 < size)
        at += (size_t)snprintf(comment + at, size - at, "; ");
    va_start(ap, what);
    vsnprintf(comment + at, size - at, what, ap);
    va_end(ap);
}

static void comment_on(const struct tap_file *t, const struct tap_record *r, uint64_t hole,
                       char *comment, size_t size)
{
    bool rx = r->flags & TAP_RX;
    const struct tap_way *w = &t->way[rx];
    const char *name = stat_path_name((enum fb_path)r->path), *way = rx ? "received" : "sent";

    if (w->path < 0)
        say(comment, size, "the first one here that was %s: its byte is number %llu, over %s", way,
            (unsigned long long)r->at, name);
    else if (w->path != r->path && r->kind == TAP_DATA)
        say(comment, size, "from byte %llu on %s over %s", (unsigned long long)r->at, way, name);
    if (r->path == FB_PATH_TCP && r->kind == TAP_DATA && r->reason && w->path != r->path)
        say(comment, size, "reason %s", cfg_reason_name(r->reason));
    if (hole > w->unseen && w->lost)
        say(comment, size, "%llu bytes before it are missing here: railsock tap was too slow",
            (unsigned long long)(hole - w->unseen));
    else if (hole > w->unseen)
        say(comment, size,
            "%llu bytes before it come later: threads of the program %s at the same time",
            (unsigned long long)(hole - w->unseen), way);
    if (w->unseen)
        say(comment, size, "%llu bytes before it were sent inside the kernel and not seen",
            (unsigned long long)w->unseen);
    if (r->kind == TAP_FIN)
        say(comment, size, rx ? "the program has read the end" : "the program has ended it");
    if (r->kind == TAP_RESET)
        say(comment, size, rx ? "a call said that it was reset" : "closed with bytes unread");
}

void tap_file_put(struct tap_file *t, const struct tap_record *r, const uint8_t *bytes)
{
    struct {
        uint32_t interface, high, low, kept, len;
    } fixed;
    bool rx = r->flags & TAP_RX;
    struct tap_way *w = &t->way[rx];
    uint8_t h[IP6 + TCP], flags = ACK;
    uint32_t direction = rx ? EPB_IN : EPB_OUT;
    char comment[512] = "";
    uint64_t hole = r->at > w->next ? r->at - w->next : 0;
    size_t n;

    if (r->flags & TAP_UNSEEN) { /* shown as a hole before what follows */
        w->unseen += r->len;
        return;
    }
    if (r->lost)
        t->way[0].lost = t->way[1].lost = true;
    if (r->kind == TAP_BEGIN)
        w->next = r->at;
    if (r->kind == TAP_BEGIN || r->kind == TAP_END || (r->kind != TAP_DATA && w->ended))
        return;
    if (r->kind == TAP_DATA)
        flags |= PSH;
    else
        flags |= r->kind == TAP_FIN ? FIN : RST;
    comment_on(t, r, hole, comment, sizeof(comment));
    n = headers(t, h, rx, r->at, flags, bytes, r->len, r->kept);
    fixed.interface = (uint32_t)interface_of(t, r->path); /* may be a block of its own */
    fixed.high = (uint32_t)(r->time >> 32);
    fixed.low = (uint32_t)r->time;
    fixed.kept = (uint32_t)n + r->kept;
    fixed.len = (uint32_t)n + r->len;
    begin(PACKET, &fixed, sizeof(fixed));
    memcpy(block.body + block.len, h, n); /* a multiple of 4 */
    block.len += n;
    add(bytes, r->kept);
    option(EPB_FLAGS, &direction, sizeof(direction));
    if (r->lost)
        number(EPB_DROPCOUNT, r->lost);
    if (*comment)
        text(OPT_COMMENT, comment);
    put_block(t->f, true);

    t->packets[r->path]++;
    t->all++;
    t->bytes += r->len;
    w->unseen = 0;
    w->lost = false;
    w->path = r->path;
    if (r->at + r->len > w->next)
        w->next = r->at + r->len;
    if (r->kind != TAP_DATA) {
        w->ended = true;
        w->next++; /* FIN takes a number */
    }
}

void tap_file_begin(struct tap_file *t, FILE *f, const char *who, const struct stat_conn *c,
                    uint32_t snap)
{
    struct {
        uint32_t magic;
        uint16_t major, minor;
        int64_t length;
    } fixed = {0x1a2b3c4d, 1, 0, -1};
    char comment[1024], local[STAT_ADDR_SIZE], peer[STAT_ADDR_SIZE];
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    *t = (struct tap_file){
        .f = f,
        .local = c->local,
        .peer = c->peer,
        .snap = snap,
        .begun = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec,
        .interface = {-1, -1, -1},
        .way = {{.path = -1}, {.path = -1}},
    };
    snprintf(t->where, sizeof(t->where), "%s", strchr(c->where, '/') ? c->where : "");
    stat_addr(&c->local, local);
    stat_addr(&c->peer, peer);
    snprintf(
        comment, sizeof(comment),
        "The bytes of one TCP connection, %s (%s) to %s, as its program gave them to send() "
        "and got them from recv(), copied by railsock while they went over a rail or over TCP. "
        "No such packets were on a network: IP and TCP headers are made up, and the interface "
        "says what carried the bytes. A sequence number is the number of its byte since the "
        "connection was made, modulo 2^32; there is no SYN. Times are when the program's call "
        "moved the bytes.",
        local, who, peer);
    begin(SECTION, &fixed, sizeof(fixed));
    text(OPT_COMMENT, comment);
    text(SHB_USERAPPL, "railsock tap");
    put_block(f, true);
    /* One at least, so that a reader knows what to expect. */
    interface_of(t, c->path_tx != FB_PATH_TCP ? (int)c->path_tx : (int)c->path_rx);
}

uint64_t tap_file_packets(const struct tap_file *t)
{
    return t->all;
}

static void put_statistics(struct tap_file *t, int path, uint64_t lost)
{
    struct timespec now;
    uint64_t ns;
    struct {
        uint32_t interface, high, low;
    } fixed;

    clock_gettime(CLOCK_REALTIME, &now);
    ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    fixed.high = (uint32_t)(ns >> 32);
    fixed.low = (uint32_t)ns;
    fixed.interface = (uint32_t)interface_of(t, path); /* may be a block of its own */
    begin(STATISTICS, &fixed, sizeof(fixed));
    moment(ISB_START, t->begun);
    moment(ISB_END, ns);
    number(ISB_RECEIVED, t->packets[path] + lost);
    number(ISB_DROPPED, lost);
    put_block(t->f, true);
}

void tap_file_where(struct tap_file *t, const char *where, const uint64_t lost[FB_PATH_VERBS + 1])
{
    if (!*where || strcmp(where, t->where) == 0)
        return;
    if (t->interface[FB_PATH_VERBS] >= 0) {
        put_statistics(t, FB_PATH_VERBS, lost[FB_PATH_VERBS] - t->dropped);
        t->dropped = lost[FB_PATH_VERBS];
        t->packets[FB_PATH_VERBS] = 0;
        t->interface[FB_PATH_VERBS] = -1;
    }
    snprintf(t->where, sizeof(t->where), "%s", where);
}

void tap_file_end(struct tap_file *t, const uint64_t lost[FB_PATH_VERBS + 1])
{
    for (int i = 0; i <= FB_PATH_VERBS; i++) {
        uint64_t n = lost[i] - (i == FB_PATH_VERBS ? t->dropped : 0);

        if (t->interface[i] >= 0 || n)
            put_statistics(t, i, n);
    }
}
