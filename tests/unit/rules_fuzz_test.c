/*
 * rules_fuzz_test.c - the rules' parser, the one of the library, on the files of tests/config with
 * random changes. No text may bring it down; every error has a place in the text; and what has no
 * error is printed in a form that reads as itself.
 *
 *     make fuzz [SECONDS=60]                            under ASan and UBSan, until the time is up
 *     RAILSOCK_TEST_SEED=N RAILSOCK_FUZZ_RUNS=1 ...     the text of one seed again, which is shown
 */
#include "config/env.h"
#include "config/parse.h"
#include "config/print.h"
#include "tests/shim/shim.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const names[] = {"libsdp.conf",  "native.conf", "native.inc",  "broken.conf",
                                    "broken.inc",   "binary.conf", "match.conf",  "broken.loop",
                                    "broken.loop2", "native.inc2", "escaped.conf"};
#ifdef RAILSOCK_SANITIZED
#define RUNS 4000
#else
#define RUNS 20000
#endif
enum { N_NAMES = sizeof(names) / sizeof(names[0]), MOST = 16384 };

static struct {
    char text[MOST];
    size_t n;
} corpus[N_NAMES], input;

static uint64_t rng;

static uint32_t rnd(uint32_t below)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)(rng >> 32) % below;
}

static void read_corpus(void)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        char path[64];
        FILE *f;

        snprintf(path, sizeof(path), "tests/config/%s", names[i]);
        f = fopen(path, "r");
        ASSERT(f);
        corpus[i].n = fread(corpus[i].text, 1, sizeof(corpus[i].text), f);
        fclose(f);
        ASSERT(corpus[i].n > 0 && corpus[i].n < sizeof(corpus[i].text) / 2);
    }
}

/* Puts m bytes in the place of k at `at`. */
static void splice(size_t at, size_t k, const char *bytes, size_t m)
{
    char copy[256];

    if (k > input.n - at)
        k = input.n - at;
    if (m > sizeof(copy) || input.n - k + m > sizeof(input.text))
        return;
    memcpy(copy, bytes, m); /* they may be of the input itself */
    memmove(input.text + at + m, input.text + at + k, input.n - at - k);
    memcpy(input.text + at, copy, m);
    input.n = input.n - k + m;
}

static void mutate(void)
{
    static const char *const bits[] = {
        " ",          "\n",
        "\\\n",       "\"",
        "{",          "}",
        "#",          "\\",
        "*",          ":",
        "/",          "-",
        "\t",         "\r\n",
        "client ",    "server ",
        "any ",       "use ",
        "to ",        "mode ",
        "0",          "9",
        "::",         "[",
        "]",          "include ",
        "reach ",     " at ",
        "tos ",       "log ",
        "user ",      "65535",
        "4294967296", "99999999999999999999",
        "k",          "m",
        "program ",   "defaults ",
    };
    size_t at = rnd((uint32_t)input.n + 1), other;
    const char *bit = bits[rnd(sizeof(bits) / sizeof(bits[0]))];
    char byte = (char)rnd(256);

    switch (rnd(6)) {
    case 0:
        splice(at, 1, &byte, 1);
        break;
    case 1:
        splice(at, rnd(8), "", 0);
        break;
    case 2:
    case 3:
        splice(at, rnd(2) * rnd(6), bit, strlen(bit));
        break;
    case 4: /* a piece of the text elsewhere */
        other = rnd((uint32_t)input.n + 1);
        splice(at, 0, input.text + other,
               rnd((uint32_t)(input.n - other < 100 ? input.n - other : 100) + 1));
        break;
    default: /* ends here */
        if (rnd(8) == 0)
            input.n = at;
        break;
    }
}

static struct {
    const char *text;
    size_t n;
} reading;

/* There is the input and the corpus, and no other file. */
static ssize_t fake_read(const char *path, char *buf, size_t size)
{
    const char *text = strcmp(path, "input") == 0 ? reading.text : NULL;
    size_t n = reading.n;

    for (size_t i = 0; i < N_NAMES && !text; i++)
        if (strcmp(path, names[i]) == 0) {
            text = corpus[i].text;
            n = corpus[i].n;
        }
    if (!text)
        return -ENOENT;
    if (n > size)
        n = size;
    memcpy(buf, text, n);
    return (ssize_t)n;
}

static void parse(struct cfg_rules *r, const char *text, size_t n)
{
    reading.text = text;
    reading.n = n;
    ASSERT(cfg_rules_begin(r));
    r->read = fake_read;
    cfg_rules_read(r, "input", false, false);
    cfg_rules_settle(r);
}

static void check_errors(const struct cfg_rules *r)
{
    unsigned n = 0;

    for (const struct cfg_error *e = r->errors; e; e = e->next, n++)
        if (!e->at.file || !*e->text || (e->at.line && !e->line))
            FAILF("an error without a place or words: %s", e->text);
    if (n != (r->n_errors < CFG_MAX_ERRORS ? r->n_errors : (unsigned)CFG_MAX_ERRORS))
        FAILF("%u errors, %u kept", r->n_errors, n);
}

static char *printed(const struct cfg_rules *r, void (*fn)(FILE *, const struct cfg_rules *))
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    ASSERT(f);
    fn(f, r);
    fclose(f);
    return text;
}

static void look_up(const struct cfg_rules *r)
{
    struct cfg_who who = {"ttcp1", "/usr/local/bin/ttcp1", rnd(3), NULL, NULL};
    uint8_t addr[16] = {10, (uint8_t)rnd(4), 0, 1};

    for (unsigned i = 0; i < 4; i++) {
        const struct cfg_node *n = cfg_rules_find(r, 1 + i % 2, &who, i & 2 ? AF_INET : AF_INET6,
                                                  addr, (uint16_t)rnd(65536));

        if (n && n->stream.maps)
            cfg_map_apply(n->stream.maps, i & 2 ? AF_INET : AF_INET6, addr);
    }
}

/* False: a failure was noted. */
static bool one(void)
{
    struct cfg_rules r, again;
    char *text, *same;
    bool right = true;

    parse(&r, input.text, input.n);
    check_errors(&r);
    if (r.n_errors) {
        free(printed(&r, cfg_print_errors));
    } else {
        look_up(&r);
        text = printed(&r, cfg_print);
        parse(&again, text, strlen(text));
        same = printed(&again, cfg_print);
        right = again.n_errors == 0 && strcmp(text, same) == 0;
        if (!right)
            FAILF("the normal form\n%sreads as\n%s(%u errors)", text, same, again.n_errors);
        free(same);
        free(text);
        cfg_rules_end(&again);
    }
    cfg_rules_end(&r);
    return right;
}

/* Half of them keep to a few lines, which often have no error. */
static void prepare(uint64_t seed)
{
    size_t from = 0;

    rng = seed * 0x9e3779b97f4a7c15u + 1;
    for (int i = 0; i < 4; i++)
        rnd(1);
    input = corpus[rnd(N_NAMES)];
    if (rnd(2)) {
        from = rnd((uint32_t)input.n);
        while (from > 0 && input.text[from - 1] != '\n')
            from--;
        memmove(input.text, input.text + from, input.n - from);
        input.n -= from;
        if (input.n > 300)
            input.n = 300;
    }
    for (uint32_t n = rnd(rnd(2) ? 3 : 30); n > 0; n--)
        mutate();
}

TEST_CASE(rules_fuzz, random_texts)
{
    const char *wanted = getenv("RAILSOCK_FUZZ_RUNS"), *seconds = getenv("RAILSOCK_FUZZ_SECONDS");
    uint64_t runs = wanted ? strtoull(wanted, NULL, 10) : RUNS;
    time_t end = seconds ? time(NULL) + atol(seconds) : 0;
    uint64_t seed = test_seed(), done = 0;

    cfg_init();
    read_corpus();
    for (; seconds ? time(NULL) < end : done < runs; done++, seed++) {
        prepare(seed);
        if (runs == 1)
            fwrite(input.text, 1, input.n, stderr);
        if (!one()) {
            FAILF("RAILSOCK_TEST_SEED=%llu RAILSOCK_FUZZ_RUNS=1", (unsigned long long)seed);
            return;
        }
    }
    printf("# %llu texts\n", (unsigned long long)done);
}
