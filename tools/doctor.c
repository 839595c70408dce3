/*
 * doctor.c - `railsock doctor`: runs the checks of doctor.def and prints what they say.
 */
#include "tools/commands.h"

#include "tools/doctor.h"
#include "tools/json.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum group { HOST, PROGRAM, PEER };
enum wires { ANY, SHM, VERBS };

static const struct {
    enum group group;
    enum wires wire;
    const char *name, *advice;
    void (*run)(struct doctor *, struct doc_result *);
} checks[] = {
#define CHECK(group, wire, name, word, advice) {group, wire, word, advice, doc_##name},
#include "tools/doctor.def"
#undef CHECK
};

static void usage(FILE *f)
{
    fputs("usage: railsock doctor [--wire auto|shm|verbs] [--json] [PROGRAM | HOST:PORT]\n"
          "\n"
          "Without a word: whether this host is ready for rails, shared memory within it and RDMA\n"
          "to others. PROGRAM: whether the library can reach it. HOST:PORT: makes one TCP\n"
          "connection there and asks for a rail, step by step, as the library would for a program\n"
          "that no rule names; nothing is sent over the connection.\n"
          "\n"
          "  --wire NAME  looks only at what shm, or verbs, needs; else what RAILSOCK_WIRE says\n"
          "  --json       one JSON object\n"
          "\n"
          "Status 0: ready. 1: something failed; each failure says what to do.\n",
          f);
}

void doc_say(struct doc_result *r, enum doc_verdict verdict, const char *format, ...)
{
    va_list args;

    r->verdict = verdict;
    va_start(args, format);
    vsnprintf(r->says, sizeof(r->says), format, args);
    va_end(args);
    for (char *c = r->says; *c; c++) /* names of others' choice are in it */
        if ((unsigned char)*c < ' ' ||
            (unsigned char)*c >= 0x7f) /* also what terminals take for controls in UTF-8 */
            *c = '?';
}

/* ---- output */

static void (*before)(int); /* what SIGPIPE did */

struct tally {
    unsigned ran, failed;
};

static void put_text(const char *name, const struct doc_result *r, uint64_t ns, bool timed)
{
    static const char *const words[] = {"ok", "note", "FAIL", "skip"};
    char took[24] = "";

    if (timed && r->verdict != DOC_SKIP)
        snprintf(took, sizeof(took), "%.1f ms", (double)ns / 1e6);
    if (timed)
        printf("%-4s  %-11s  %10s  %s\n", words[r->verdict], name, took, r->says);
    else
        printf("%-4s  %-11s  %s\n", words[r->verdict], name, r->says);
    if (r->verdict == DOC_FAIL && *r->advice)
        printf("%*s-> %s\n", timed ? 31 : 19, "", r->advice);
    fflush(stdout); /* steps may take seconds */
}

static void put_json(const char *name, const struct doc_result *r, uint64_t ns, bool first)
{
    static const char *const words[] = {"ok", "note", "fail", "skip"};

    printf("%s{\"check\":", first ? "" : ",");
    json_string(stdout, name);
    printf(",\"verdict\":\"%s\",\"says\":", words[r->verdict]);
    json_string(stdout, r->says);
    fputs(",\"advice\":", stdout);
    json_string(stdout, r->verdict == DOC_FAIL ? r->advice : "");
    printf(",\"microseconds\":%llu}", (unsigned long long)(ns / 1000));
}

/* ---- running */

static bool matters(enum wires wire, enum cfg_wire wanted)
{
    return wire == ANY || wanted == CFG_WIRE_AUTO || (wire == SHM) == (wanted == CFG_WIRE_SHM);
}

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static struct tally run(struct doctor *d, enum group group, bool json)
{
    struct tally t = {0};

    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        struct doc_result r = {.verdict = DOC_SKIP, .advice = checks[i].advice};
        uint64_t begin = now_ns();

        if (checks[i].group != group || !matters(checks[i].wire, d->wire))
            continue;
        if (d->stop)
            doc_say(&r, DOC_SKIP, "needs what failed above");
        else
            checks[i].run(d, &r);
        if (json)
            put_json(checks[i].name, &r, now_ns() - begin, !t.ran);
        else
            put_text(checks[i].name, &r, now_ns() - begin, group == PEER);
        t.ran++;
        t.failed += r.verdict == DOC_FAIL;
    }
    return t;
}

static int examine(struct doctor *d, enum group group, bool json)
{
    static const char *const ready[] = {
        [HOST] = "this host is ready",
        [PROGRAM] = "the library can reach it",
        [PEER] = "connections there can board",
    };
    struct tally t;

    if (json) {
        fputs("{\"of\":", stdout);
        json_string(stdout, d->target ? d->target : "host");
        fputs(",\"checks\":[", stdout);
    }
    t = run(d, group, json);
    if (json)
        printf("],\"failed\":%u,\"ready\":%s,\"told\":%s}\n", t.failed, t.failed ? "false" : "true",
               d->untold && !t.failed ? "false" : "true");
    else if (t.failed)
        printf("\nnot ready: %u of %u failed\n", t.failed, t.ran);
    else
        printf("\n%s\n",
               d->untold ? "nothing failed, but whether connections there can board cannot be told"
                         : ready[group]);
    if (fflush(stdout) != 0) {
        /* Who reads has seen enough: it ends us as it would have at the first line. */
        if (errno == EPIPE) {
            signal(SIGPIPE, before);
            raise(SIGPIPE);
            errno = EPIPE;
        }
        fprintf(stderr, "railsock doctor: %s\n", strerror(errno));
        return 1;
    }
    return t.failed ? 1 : 0;
}

static bool parse_wire(const char *text, enum cfg_wire *wire)
{
    static const char *const names[] = {
        [CFG_WIRE_AUTO] = "auto", [CFG_WIRE_SHM] = "shm", [CFG_WIRE_VERBS] = "verbs"};

    for (enum cfg_wire w = CFG_WIRE_AUTO; w <= CFG_WIRE_VERBS; w++)
        if (strcmp(text, names[w]) == 0) {
            *wire = w;
            return true;
        }
    fprintf(stderr, "railsock doctor: --wire %s: expected auto, shm or verbs\n", text);
    return false;
}

static bool is_address(int family, const char *text)
{
    unsigned char to[sizeof(struct in6_addr)];

    return inet_pton(family, text, to) == 1;
}

/* An address that lacks its port: "10.0.0.1", "::1"; but "fe80::1:80" has one behind
 * its last colon. */
static bool lacks_port(const char *target)
{
    char host[64];

    snprintf(host, sizeof(host), "%s", target);
    if (strchr(host, ':'))
        *strrchr(host, ':') = '\0';
    return is_address(AF_INET, target) ||
           (is_address(AF_INET6, target) && !is_address(AF_INET6, host));
}

/* What a word has to be that is neither a peer nor a program, and looks like a peer.
 * NULL: it does not. */
static const char *wrong_peer(const char *target)
{
    const char *colon = strrchr(target, ':');
    char path[PATH_MAX];

    if (strchr(target, '/') || elf_search(target, path))
        return NULL;
    if (lacks_port(target))
        return colon ? "[ADDRESS]:PORT: it is an address without a port"
                     : "ADDRESS:PORT: it is an address without a port";
    if (!colon)
        return NULL;
    return colon > target && colon[1] && !colon[1 + strspn(colon + 1, "0123456789")]
               ? "a port from 1 to 65535"
               : "HOST:PORT";
}

int cmd_doctor(int argc, char **argv)
{
    static const struct option table[] = {
        {"wire", required_argument, NULL, 'w'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct doctor d = {.fd = -1};
    const char *wrong;
    bool json = false;
    int c, status;

    cfg_init();
    d.wire = cfg.stream.wire;
    optind = 0;
    while ((c = getopt_long(argc, argv, "h", table, NULL)) != -1) {
        if (c == 'h')
            return command_help("railsock doctor", usage);
        d.wire_given |= c == 'w';
        if (c == 'j')
            json = true;
        else if (c != 'w' || !parse_wire(optarg, &d.wire))
            goto wrong;
    }
    d.target = argv[optind];
    if (d.target && (argv[optind + 1] || !*d.target)) {
        fprintf(stderr, "railsock doctor: unexpected argument: %s\n",
                argv[optind + 1] ? argv[optind + 1] : "");
        goto wrong;
    }
    before = signal(SIGPIPE, SIG_IGN);
    if (!d.target)
        return examine(&d, HOST, json);
    if (access(d.target, F_OK) != 0 && !lacks_port(d.target) && doc_is_peer(d.target, &d)) {
        status = examine(&d, PEER, json);
        doc_peer_end(&d);
        return status;
    }
    wrong = access(d.target, F_OK) != 0 ? wrong_peer(d.target) : NULL;
    if (wrong) {
        fprintf(stderr, "railsock doctor: %s: expected %s\n", d.target, wrong);
        return 2;
    }
    return examine(&d, PROGRAM, json);

wrong:
    return command_wrong("railsock doctor");
}
