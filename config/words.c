/*
 * words.c - what a value in the rules means: addresses, ports, levels, users, patterns.
 */
#include "config/parse.h"

#include "config/log.h"
#include "config/raw.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

/* Decimal digits in [text, end) up to most; -1: not that. */
static long decimal(const char *text, const char *end, long most)
{
    long n = 0;

    if (text == end)
        return -1;
    for (; text < end; text++) {
        if (!isdigit((unsigned char)*text))
            return -1;
        n = 10 * n + (*text - '0');
        if (n > most)
            return -1;
    }
    return n;
}

static void mask(struct cfg_prefix *p)
{
    for (unsigned bit = p->bits; bit < 128; bit++)
        p->addr[bit / 8] &= (uint8_t) ~(0x80u >> bit % 8);
}

/* ADDRESS[/BITS], also [ADDRESS] and [ADDRESS/BITS] and [ADDRESS]/BITS, in [text, end). */
static bool prefix_of(const char *text, const char *end, struct cfg_prefix *out)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    char addr[INET6_ADDRSTRLEN];
    struct cfg_prefix p = {0};
    const char *slash, *close = NULL;
    long most, bits;

    if (text < end && *text == '[') {
        close = memchr(text, ']', (size_t)(end - text));
        if (!close)
            return false;
        text++;
        if (close + 1 == end)
            end = close; /* what is left may have a slash inside */
    }
    slash = memchr(text, '/', (size_t)(end - text));
    if (close && close != end) {
        if (slash != close + 1) /* [..] must be followed by the slash */
            return false;
    } else {
        close = slash ? slash : end;
    }
    if ((size_t)(close - text) >= sizeof(addr))
        return false;
    memcpy(addr, text, (size_t)(close - text));
    addr[close - text] = '\0';
    p.family = strchr(addr, ':') ? AF_INET6 : AF_INET;
    if (inet_pton(p.family, addr, p.addr) != 1)
        return false;
    most = p.family == AF_INET ? 32 : 128;
    bits = slash ? decimal(slash + 1, end, most) : most;
    if (bits < 0)
        return false;
    p.bits = (uint8_t)bits;
    mask(&p);
    /* The addresses of connections are unmapped, too. */
    if (p.family == AF_INET6 && p.bits >= 96 && memcmp(p.addr, mapped, sizeof(mapped)) == 0) {
        p.family = AF_INET;
        p.bits = (uint8_t)(p.bits - 96);
        memmove(p.addr, p.addr + 12, 4);
        memset(p.addr + 4, 0, 12);
    }
    *out = p;
    return true;
}

bool cfg_word_prefix(const char *text, bool any, struct cfg_prefix *p)
{
    if (any && strcmp(text, "*") == 0) {
        *p = (struct cfg_prefix){0};
        return true;
    }
    return prefix_of(text, text + strlen(text), p);
}

static bool ports_of(const char *text, uint16_t *from, uint16_t *to)
{
    const char *end = text + strlen(text), *dash = strchr(text, '-');
    long a, b;

    if (strcmp(text, "*") == 0) {
        *from = 0;
        *to = UINT16_MAX;
        return true;
    }
    a = decimal(text, dash ? dash : end, UINT16_MAX);
    b = dash ? decimal(dash + 1, end, UINT16_MAX) : a;
    /* Nobody has port 0. */
    if (a < 0 || b < a || b == 0)
        return false;
    *from = (uint16_t)a;
    *to = (uint16_t)b;
    return true;
}

const char *cfg_word_endpoint(const char *text, struct cfg_prefix *p, uint16_t *from, uint16_t *to)
{
    const char *colon = strrchr(text, ':');

    /* An address without a port, in brackets or not, ends in one of these. */
    if (!colon || strchr(colon, ']'))
        return "an address, a colon and a port, like 10.1.0.0/16:5000-5999 or *:*";
    if (colon == text + 1 && *text == '*')
        *p = (struct cfg_prefix){0};
    else if (!prefix_of(text, colon, p))
        return "an address before the last colon, like 10.1.0.0/16, [fd00::]/64 or *";
    return ports_of(colon + 1, from, to) ? NULL
                                         : "a port after the last colon, like 80, 5000-5999 or *";
}

int cfg_word_level(const char *text)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    /* libsdp: 9 errors, 8 warnings, 7 connections, 4 to 6 what matches, below that everything. */
    static const int levels[] = {CFG_LOG_DEBUG, CFG_LOG_DEBUG, CFG_LOG_DEBUG,
                                 CFG_LOG_INFO,  CFG_LOG_INFO,  CFG_LOG_INFO,
                                 CFG_LOG_INFO,  CFG_LOG_WARN,  CFG_LOG_ERROR};

    for (int i = 0; i < 4; i++)
        if (strcmp(text, names[i]) == 0)
            return CFG_LOG_ERROR + i;
    return *text >= '1' && *text <= '9' && !text[1] ? levels[*text - '1'] : 0;
}

bool cfg_prefix_holds(const struct cfg_prefix *p, uint8_t family, const uint8_t *addr)
{
    struct cfg_prefix other = {.family = family, .bits = p->bits};

    if (!p->family)
        return true;
    if (p->family != family)
        return false;
    memcpy(other.addr, addr, family == AF_INET ? 4 : 16);
    mask(&other);
    return memcmp(other.addr, p->addr, sizeof(p->addr)) == 0;
}

bool cfg_map_apply(const struct cfg_map *m, uint8_t family, uint8_t addr[16])
{
    for (; m; m = m->next) {
        if (!cfg_prefix_holds(&m->tcp, family, addr))
            continue;
        for (unsigned bit = 0; bit < m->tcp.bits; bit++) {
            uint8_t one = (uint8_t)(0x80u >> bit % 8);

            addr[bit / 8] = (uint8_t)((addr[bit / 8] & ~one) | (m->rdma.addr[bit / 8] & one));
        }
        return true;
    }
    return false;
}

/* ---- patterns: *, ?, [a-z], [!a-z], \; * also matches a slash, as for libsdp */

/* Matches one character. Returns what comes after the set; NULL: it does not match. A [ without an
 * end stands for itself. */
static const char *one_matches(const char *p, char c)
{
    const char *q = p + 1;
    bool negated, found = false;

    if (*p == '\\' && p[1])
        return p[1] == c ? p + 2 : NULL;
    if (*p == '?')
        return p + 1;
    if (*p != '[')
        return *p == c ? p + 1 : NULL;
    negated = *q == '!' || *q == '^';
    q += negated;
    for (bool first = true; *q && (first || *q != ']'); first = false, q++) {
        char low = *q;

        if (q[1] == '-' && q[2] && q[2] != ']')
            q += 2;
        found |= (unsigned char)low <= (unsigned char)c && (unsigned char)c <= (unsigned char)*q;
    }
    if (!*q)
        return c == '[' ? p + 1 : NULL;
    return found != negated ? q + 1 : NULL;
}

bool cfg_glob(const char *p, const char *text)
{
    const char *star = NULL, *again = NULL;

    for (;;) {
        const char *next;

        if (*p == '*') {
            star = ++p;
            again = text;
            continue;
        }
        if (!*text && !*p)
            return true;
        next = *text && *p ? one_matches(p, *text) : NULL;
        if (next) {
            p = next;
            text++;
        } else if (star && *again) {
            /* The last star takes one more; earlier ones never need to. */
            p = star;
            text = ++again;
        } else {
            return false;
        }
    }
}

/* ---- users */

/* The user's number in lines of passwd(5), or CFG_NO_UID. */
static uint32_t uid_in(const char *text, const char *name)
{
    size_t n = strlen(name);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        const char *colon, *end;
        long number;

        line += *line == '\n';
        if (strncmp(line, name, n) != 0 || line[n] != ':')
            continue;
        colon = strchr(line + n + 1, ':');
        end = colon ? strchr(colon + 1, ':') : NULL;
        number = end ? decimal(colon + 1, end, UINT32_MAX - 1l) : -1;
        return number >= 0 ? (uint32_t)number : CFG_NO_UID;
    }
    return CFG_NO_UID;
}

enum { PIECE = 65536 };

/* It may be as long as it likes. Lines longer than a piece are nobody's. */
static uint32_t uid_in_file(int fd, char *piece, const char *name)
{
    uint32_t uid = CFG_NO_UID;
    size_t have = 0;
    ssize_t n = 1;

    while (n > 0 && uid == CFG_NO_UID) {
        char *last;
        size_t whole;

        n = cfg_raw4(SYS_read, fd, (long)(piece + have), (long)(PIECE - 1 - have), 0);
        have += n > 0 ? (size_t)n : 0;
        last = n > 0 ? memrchr(piece, '\n', have) : piece + have;
        if (!last && have < PIECE - 1)
            continue;
        whole = last ? (size_t)(last - piece) : have;
        piece[whole] = '\0';
        if (last)
            uid = uid_in(piece, name);
        whole += last && n > 0; /* the end of line */
        have -= whole < have ? whole : have;
        memmove(piece, piece + whole, have);
    }
    return uid;
}

/* Not getpwnam(3): it may ask a server over a connection that the library would track. */
uint32_t cfg_word_uid(struct cfg_rules *r, const char *name)
{
    long number = decimal(name, name + strlen(name), UINT32_MAX - 1l);
    struct cfg_file file = {.path = "/etc/passwd"};
    size_t used = r->arena.used;
    uint32_t uid = CFG_NO_UID;
    int fd;

    if (number >= 0)
        return (uint32_t)number;
    if (strchr(name, ':') || r->arena.size - used <= PIECE)
        return uid;
    if (r->read) {
        if (cfg_read_file(r, &file, CFG_MAX_TEXT) == 0)
            uid = uid_in(file.text, name);
    } else {
        fd = cfg_raw_open(file.path, O_RDONLY | O_CLOEXEC, 0);
        r->no_fd |= fd == -EMFILE || fd == -ENFILE;
        if (fd < 0)
            return uid;
        uid = uid_in_file(fd, r->arena.base + used, name);
        cfg_raw_close(fd);
        memset(r->arena.base + used, 0, PIECE);
    }
    memset(r->arena.base + used, 0, r->arena.used - used);
    r->arena.used = used; /* the text is not needed any more */
    return uid;
}
