/*
 * tap_wish.c - what `railsock tap` is asked for: its options, and which connection they mean.
 */
#include "tools/tap_wish.h"

#include "ipoib_fallback/tap_ring.h"
#include "tools/stat_print.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RING = 8 << 20 };

void tap_usage(FILE *f)
{
    fputs(
        "usage: railsock tap [OPTIONS] [PID | ADDRESS:PORT]...\n"
        "\n"
        "Writes what goes over one TCP connection of a running program, on a rail or not, as a\n"
        "pcapng file that Wireshark and tcpdump read. One connection must be meant:\n"
        "\n"
        "  --pid PID            of this process; the number alone means the same\n"
        "  ADDRESS:PORT         with this address at either end; two of them: at both\n"
        "  --program NAME       of programs of this name, or pattern: 'redis*'\n"
        "  --port PORT          with this port at either end\n"
        "  --path PATH          on tcp, shm or verbs in either direction\n"
        "\n"
        "If both ends of one connection are meant, the end that has accepted it is tapped. If\n"
        "several are meant they are listed.\n"
        "\n"
        "  -o, --output FILE    writes there, readable for you only; -: standard output\n"
        "  --bytes N            keeps the first N bytes of each packet, from 1 to 61440\n"
        "  --count N            ends after N packets\n"
        "  --seconds N          ends after N seconds\n"
        "  --buffer SIZE        between the program and the tap, 128k to 256m; default 8m\n"
        "\n"
        "It begins with the next bytes that the program sends or receives, and ends when the\n"
        "connection or the program does, at --count or --seconds, or by ^C.\n"
        "\n"
        "A packet is what one call of the program sent or received, at most 60 KiB. There is no\n"
        "such packet on any network: IP and TCP headers are made up, with right checksums and no\n"
        "SYN, and the byte with the number k since the connection was made has the sequence\n"
        "number k modulo 2^32. Bytes that the kernel's TCP carries, before the connection boards\n"
        "and after it leaves, are recorded as well; the interface of a packet says what carried\n"
        "it. Received bytes are shown when the program reads them. What sendfile sends over TCP\n"
        "is a hole; what goes by calls that the library leaves to the kernel (splice, aio) is\n"
        "neither seen nor counted.\n"
        "\n"
        "The program is never made to wait for the tap. What the buffer has no room for is\n"
        "missing in the file: a hole in the sequence numbers, a comment at the next packet, and\n"
        "a count in the interface's statistics.\n"
        "\n"
        "The bytes are as secret as memory: a process can be tapped by its own user, if it is\n"
        "dumpable and has no capabilities, and by root.\n"
        "\n"
        "  railsock tap -o - --program redis-server --port 40000 | wireshark -k -i -\n",
        f);
}

/* ---- options */

static bool parse_number(const char *option, const char *word, uint64_t least, uint64_t most,
                         uint64_t *number)
{
    unsigned long long value;
    char *end;

    errno = 0;
    value = strtoull(word, &end, 10);
    if (errno || !isdigit((unsigned char)*word) || *end || value < least || value > most) {
        fprintf(stderr, "railsock tap: %s %s: expected a number from %llu to %llu\n", option, word,
                (unsigned long long)least, (unsigned long long)most);
        return false;
    }
    *number = value;
    return true;
}

static bool parse_32(const char *option, const char *word, uint32_t most, uint32_t *number)
{
    uint64_t value;

    if (!parse_number(option, word, 1, most, &value))
        return false;
    *number = (uint32_t)value;
    return true;
}

/* The next power of two. */
static bool parse_buffer(const char *word, uint32_t *size)
{
    char *end;
    unsigned long value = strtoul(word, &end, 10), unit = 1;
    uint64_t want;

    if (*end == 'k' || *end == 'm')
        unit = *end++ == 'k' ? 1024 : 1024 * 1024;
    want = (uint64_t)value * unit;
    if (!isdigit((unsigned char)*word) || *end || value > TAP_MOST || want < TAP_LEAST ||
        want > TAP_MOST) {
        fprintf(stderr, "railsock tap: --buffer %s: expected a size from 128k to 256m\n", word);
        return false;
    }
    for (*size = TAP_LEAST; *size < want; *size *= 2)
        ;
    return true;
}

static bool parse_path(const char *word)
{
    for (enum fb_path p = FB_PATH_TCP; p <= FB_PATH_VERBS; p++)
        if (strcmp(word, stat_path_name(p)) == 0)
            return true;
    fprintf(stderr, "railsock tap: --path %s: expected tcp, shm or verbs\n", word);
    return false;
}

static bool parse_seconds(const char *word, double *seconds)
{
    char *end;

    *seconds = strtod(word, &end);
    if (isdigit((unsigned char)*word) && !*end && *seconds > 0 && *seconds <= 1e6)
        return true;
    fprintf(stderr, "railsock tap: --seconds %s: expected seconds, up to 1000000\n", word);
    return false;
}

/* 10.0.0.1:80 or [fe80::1]:80 */
static bool parse_end(const char *word, struct fb_pub_addr *a)
{
    const char *colon = strrchr(word, ':');
    char ip[INET6_ADDRSTRLEN + 2];
    size_t n = colon ? (size_t)(colon - word) : 0;
    uint32_t port;

    if (n == 0 || n >= sizeof(ip)) {
        fprintf(stderr, "railsock tap: %s: expected a process's number or ADDRESS:PORT\n", word);
        return false;
    }
    if (!parse_32("port", colon + 1, UINT16_MAX, &port))
        return false;
    memcpy(ip, word, n);
    ip[n] = '\0';
    *a = (struct fb_pub_addr){.family = AF_INET, .port = (uint16_t)port};
    if (inet_pton(AF_INET, ip, a->addr) == 1)
        return true;
    if (*ip == '[' && ip[n - 1] == ']') {
        ip[n - 1] = '\0';
        a->family = AF_INET6;
        if (inet_pton(AF_INET6, ip + 1, a->addr) == 1)
            return true;
    }
    fprintf(stderr, "railsock tap: %s: not an IPv4 address or an IPv6 address in brackets\n", word);
    return false;
}

static bool parse_word(const char *word, struct tap_wish *w)
{
    if (isdigit((unsigned char)*word) && !strchr(word, ':')) {
        if (!w->filter.pid)
            return parse_32("process", word, INT32_MAX, &w->filter.pid);
        fprintf(stderr, "railsock tap: %s: expected one process, and %u was named before\n", word,
                w->filter.pid);
        return false;
    }
    if (w->nends == 2) {
        fprintf(stderr,
                "railsock tap: %s: expected at most two ADDRESS:PORT, the ends of one connection\n",
                word);
        return false;
    }
    return parse_end(word, &w->ends[w->nends++]);
}

bool tap_parse(int argc, char **argv, struct tap_wish *w)
{
    static const struct option table[] = {
        {"output", required_argument, NULL, 'o'},
        {"pid", required_argument, NULL, 'p'},
        {"program", required_argument, NULL, 'n'},
        {"port", required_argument, NULL, 'P'},
        {"path", required_argument, NULL, 'a'},
        {"bytes", required_argument, NULL, 'b'},
        {"count", required_argument, NULL, 'c'},
        {"seconds", required_argument, NULL, 's'},
        {"buffer", required_argument, NULL, 'B'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    bool right = true;
    int c;

    *w = (struct tap_wish){.ring = RING};
    optind = 0;
    while (right && (c = getopt_long(argc, argv, "o:h", table, NULL)) != -1) {
        switch (c) {
        case 'o':
            w->output = optarg;
            break;
        case 'p':
            right = parse_32("--pid", optarg, INT32_MAX, &w->filter.pid);
            break;
        case 'n':
            w->filter.program = optarg;
            break;
        case 'P':
            right = parse_32("--port", optarg, UINT16_MAX, &w->filter.port);
            break;
        case 'a':
            w->filter.path = optarg;
            right = parse_path(optarg);
            break;
        case 'b':
            right = parse_32("--bytes", optarg, TAP_PIECE, &w->snap);
            break;
        case 'c':
            right = parse_number("--count", optarg, 1, UINT64_MAX, &w->count);
            break;
        case 's':
            right = parse_seconds(optarg, &w->seconds);
            break;
        case 'B':
            right = parse_buffer(optarg, &w->ring);
            break;
        case 'h':
            w->help = true;
            return true;
        default:
            return false;
        }
    }
    while (right && argv[optind])
        right = parse_word(argv[optind++], w);
    if (right && !w->output) {
        if (!isatty(1)) {
            w->output = "-";
        } else {
            fputs("railsock tap: where to? -o FILE, or standard output into a pipe\n", stderr);
            right = false;
        }
    }
    return right;
}

/* ---- which connection */

static bool same(const struct fb_pub_addr *a, const struct fb_pub_addr *b)
{
    return a->family == b->family && a->port == b->port &&
           memcmp(a->addr, b->addr, a->family == AF_INET ? 4 : 16) == 0;
}

static bool is_end(const struct stat_conn *c, const struct fb_pub_addr *a)
{
    return same(&c->local, a) || same(&c->peer, a);
}

/* Takes out connections whose ends are not those that were named; then processes without any. */
static size_t keep_ends(struct stat_list *list, const struct tap_wish *w)
{
    size_t kept = 0, all = 0;

    for (size_t i = 0; i < list->n; i++) {
        struct stat_process p = list->processes[i];
        size_t n = 0;

        for (size_t j = 0; j < p.nconns; j++) {
            const struct stat_conn *c = &p.conns[j];

            if (c->local.family && (w->nends < 1 || is_end(c, &w->ends[0])) &&
                (w->nends < 2 || is_end(c, &w->ends[1])))
                p.conns[n++] = *c;
        }
        p.nconns = n;
        all += n;
        if (n)
            list->processes[kept++] = p;
        else
            free(p.conns);
    }
    list->n = kept;
    list->some = true;
    return all;
}

/* The one, or that of the two ends of one which has accepted it. */
static struct tap_choice choose(const struct stat_list *list, size_t all)
{
    struct tap_choice found[2] = {{NULL, NULL}, {NULL, NULL}};
    size_t n = 0;

    for (size_t i = 0; i < list->n && all <= 2; i++)
        for (size_t j = 0; j < list->processes[i].nconns; j++)
            found[n++] = (struct tap_choice){&list->processes[i], &list->processes[i].conns[j]};
    if (all == 1)
        return found[0];
    if (all == 2 && same(&found[0].c->local, &found[1].c->peer) &&
        same(&found[0].c->peer, &found[1].c->local))
        return found[!found[0].c->accepted];
    return (struct tap_choice){NULL, NULL};
}

static void complain(const char *path, const char *why)
{
    fprintf(stderr, "railsock tap: %s: %s; ignored\n", path, why);
}

static void no_choice(const struct tap_wish *w, const struct stat_list *list, size_t all)
{
    struct stat_view view = {0};

    if (all) {
        fputs("railsock tap: more than one connection is meant, and only one can be:\n", stderr);
        stat_print_table(stderr, list, &view);
    } else if (w->filter.pid && kill((pid_t)w->filter.pid, 0) < 0) {
        fprintf(stderr,
                errno == EPERM
                    ? "railsock tap: process %u is another user's: only he and root may\n"
                    : "railsock tap: there is no process %u\n",
                w->filter.pid);
    } else {
        struct stat_list ignored;

        fputs("railsock tap: no such connection of a program that runs with railsock and that you "
              "may look into; `railsock stat` lists them\n",
              stderr);
        /* It may be one of a process whose file cannot be read: another version's, perhaps. */
        if (!w->filter.pid && stat_read(STAT_BASE, 0, complain, &ignored) >= 0)
            stat_free(&ignored);
    }
}

bool tap_choose(const struct tap_wish *w, struct stat_list *list, struct tap_choice *it)
{
    int err = stat_read(STAT_BASE, w->filter.pid, w->filter.pid ? complain : NULL, list);
    size_t all;

    if (err < 0)
        fprintf(stderr, "railsock tap: %s: %s\n", STAT_BASE, strerror(-err));
    stat_addresses(list);
    stat_filter(list, &w->filter);
    all = keep_ends(list, w);
    *it = choose(list, all);
    if (!it->c)
        no_choice(w, list, all);
    return it->c;
}
