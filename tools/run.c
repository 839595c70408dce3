/*
 * run.c - `railsock run`: puts the settings and the library into the environment and
 * becomes the program, so that the pid, the signals and the exit status are the program's.
 * With --report it waits for it instead (run_child.c).
 */
#include "tools/commands.h"

#include "config/env.h"
#include "tools/elf_look.h"
#include "tools/library.h"
#include "tools/profile.h"
#include "tools/run_child.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As env(1) and the shells have them. */
enum { EXIT_FAILED = 125 };

static void usage(FILE *f)
{
    fputs(
        "usage: railsock run [OPTIONS] [--] COMMAND [ARGUMENT...]\n"
        "\n"
        "Runs COMMAND with the library. Its TCP connections to other such programs may board\n"
        "a rail; all others stay as they are. `railsock stat` shows which and why.\n"
        "\n"
        "  --tcp               load the library but stay on TCP, for comparison\n"
        "  --rail              board at the first call; refuse COMMAND if the library cannot reach it\n"
        "  --wire NAME         auto, shm (same host) or verbs (RDMA)\n"
        "  --board POLICY      auto, eager, after=CALLS, after=BYTESk, after=BYTESm or never\n"
        "  --spin US           spin at most this long before a wait sleeps, or auto (auto)\n"
        "  --ring BYTES        size of each ring, rounded up to a power of two, 4k to 64m;\n"
        "                      0: the wire's own\n"
        "  --log LEVEL[:FILE]  error, warn, info or debug\n"
        "  --profile NAMES     latency, throughput or frugal, or several with commas; below\n"
        "  --report[=WHEN]     at its end, if connections stayed on TCP that need not have, say\n"
        "                      which and why; --report=always: in any case; --report=json:FILE:\n"
        "                      sums, time and memory in FILE (-: standard output). COMMAND is then a\n"
        "                      child of run\n"
        "\n"
        "Each sets RAILSOCK_* of its name (--tcp and --rail: RAILSOCK_MODE), which may also be\n"
        "set by hand. RAILSOCK_LIBRARY names the library if it is not where it belongs.\n"
        "\n"
        "A profile sets those of these RAILSOCK_* that neither an option nor the environment does;\n"
        "of several, the last that names one:\n",
        f);
    profile_print(f);
}

static bool rail_demanded; /* --rail */
static enum report_when report_when;
static const char *report_file;

static bool set_report(const char *value)
{
    if (value && strncmp(value, "json:", 5) == 0 && value[5]) {
        report_file = value + 5;
    } else if (value && strcmp(value, "always") != 0) {
        fprintf(stderr, "railsock run: --report=%s: expected always or json:FILE\n", value);
        return false;
    }
    report_when = value ? REPORT_ALWAYS : REPORT_IF_OFF;
    return true;
}

/* Checks a value as the library would and sets the variable. */
static bool set(const char *option, const char *name, const char *value)
{
    const char *expected = cfg_expected(name, value);

    if (expected) {
        fprintf(stderr, "railsock run: %s %s: expected %s\n", option, value, expected);
        return false;
    }
    if (setenv(name, value, 1) < 0) {
        perror("railsock run");
        return false;
    }
    return true;
}

/* Of --log: a relative file belongs to where this was started, and not to where a program of
 * COMMAND's is. */
static bool set_log(const char *value)
{
    const char *file = strchr(value, ':');
    char dir[PATH_MAX], *whole;
    bool right;

    if (!file || !file[1] || file[1] == '/' || !getcwd(dir, sizeof(dir)))
        return set("--log", "RAILSOCK_LOG", value);
    file++;
    if (asprintf(&whole, "%.*s%s/%s", (int)(file - value), value, dir, file) < 0) {
        perror("railsock run");
        return false;
    }
    if (cfg_expected("RAILSOCK_LOG", whole)) { /* too long so: as it was written */
        free(whole);
        return set("--log", "RAILSOCK_LOG", value);
    }
    right = set("--log", "RAILSOCK_LOG", whole);
    free(whole);
    return right;
}

static bool parse_options(int argc, char **argv)
{
    static const struct option table[] = {
        {"tcp", no_argument, NULL, 'T'},
        {"rail", no_argument, NULL, 'R'},
        {"wire", required_argument, NULL, 'w'},
        {"board", required_argument, NULL, 'b'},
        {"spin", required_argument, NULL, 's'},
        {"ring", required_argument, NULL, 'r'},
        {"log", required_argument, NULL, 'l'},
        {"profile", required_argument, NULL, 'p'},
        {"report", optional_argument, NULL, 'o'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    bool right = true, tcp = false, rail = false;
    int c;

    optind = 0;
    while (right && (c = getopt_long(argc, argv, "+h", table, NULL)) != -1) {
        switch (c) {
        case 'T':
            tcp = true;
            right = set("--tcp", "RAILSOCK_MODE", "tcp");
            break;
        case 'R':
            rail = rail_demanded = true;
            right = set("--rail", "RAILSOCK_MODE", "rail");
            break;
        case 'w':
            right = set("--wire", "RAILSOCK_WIRE", optarg);
            break;
        case 'b':
            right = set("--board", "RAILSOCK_BOARD", optarg);
            break;
        case 's':
            right = set("--spin", "RAILSOCK_SPIN", optarg);
            break;
        case 'r':
            right = set("--ring", "RAILSOCK_RING", optarg);
            break;
        case 'l':
            right = set_log(optarg);
            break;
        case 'p':
            right = profile_add(optarg);
            break;
        case 'o':
            right = set_report(optarg);
            break;
        case 'h':
            exit(command_help("railsock run", usage));
        default:
            return false;
        }
    }
    if (right && tcp && rail) {
        fprintf(stderr, "railsock run: --tcp and --rail exclude each other\n");
        return false;
    }
    /* After the options: what they set is set. */
    return right && profile_apply();
}

/* Of another installation, or build: two of them in one process would each take the other's
 * io_uring for the program's. */
static void drop_other(const char *library, char *list)
{
    const char *name = strrchr(library, '/') + 1;
    char *to = list;

    for (char *p = list; *p;) {
        size_t n = strcspn(p, ": "), whole = n + (p[n] != '\0');
        const char *slash = memrchr(p, '/', n);
        const char *base = slash ? slash + 1 : p;
        size_t len = (size_t)(p + n - base);

        if (len != strlen(name) || memcmp(base, name, len) != 0 ||
            (n == strlen(library) && memcmp(p, library, n) == 0)) {
            memmove(to, p, whole);
            to += whole;
        }
        p += whole;
    }
    *to = '\0';
}

/* Puts a library first and keeps what is there; `anywhere`: unless it is there already. False
 * after saying why. */
static bool preload(const char *library, bool anywhere)
{
    const char *old = getenv("LD_PRELOAD");
    size_t n = strlen(library);
    char *value;
    bool ok;

    for (const char *p = old; p && *p; p += strcspn(p, ": ")) {
        p += strspn(p, ": ");
        if (strcspn(p, ": ") == n && strncmp(p, library, n) == 0)
            return true;
        if (!anywhere)
            break;
    }
    if (asprintf(&value, "%s%s%s", library, old && *old ? ":" : "", old ? old : "") < 0) {
        perror("railsock run");
        return false;
    }
    ok = setenv("LD_PRELOAD", value, 1) == 0;
    if (!ok)
        perror("railsock run");
    free(value);
    return ok;
}

/* The library itself, which is there once. */
static bool preload_ours(const char *library)
{
    const char *old = getenv("LD_PRELOAD");
    char *list = strdup(old ? old : "");
    bool ok = list != NULL;

    if (ok) {
        drop_other(library, list);
        ok = !old || setenv("LD_PRELOAD", list, 1) == 0;
    }
    if (!ok)
        perror("railsock run");
    free(list);
    return ok && preload(library, true);
}

/* Then it has been said why. */
static bool is_out_of_reach(const char *command)
{
    char path[PATH_MAX], runs[PATH_MAX], by[PATH_MAX + 32] = "";
    const char *then, *why = elf_look(command, runs, &then);

    if (!why)
        return false;
    if (elf_search(command, path) && strcmp(path, runs) != 0)
        snprintf(by, sizeof(by), "run by %s, which is ", runs);
    fprintf(stderr, "railsock run: %s%s is %s%s; %s\n", rail_demanded ? "" : "warning: ", command,
            by, why, rail_demanded ? "--rail is not possible" : then);
    return true;
}

int cmd_run(int argc, char **argv)
{
    char library[PATH_MAX], path[PATH_MAX], said[2 * PATH_MAX], sanitizer[NAME_MAX + 1];
    char **command;
    int status;

    if (!parse_options(argc, argv))
        return command_wrong("railsock run");
    command = argv + optind;
    if (!*command) {
        fputs("railsock run: expected a command\n", stderr);
        return command_wrong("railsock run");
    }
    if (!library_find(library, said, sizeof(said))) {
        fprintf(stderr, "railsock run: %s\n", said);
        return EXIT_FAILED;
    }
    if (!preload_ours(library))
        return EXIT_FAILED;
    /* Its run-time library ends a program that has another one before it. */
    if (elf_needs(*command, "libasan.so", sanitizer) && !preload(sanitizer, false))
        return EXIT_FAILED;
    if (is_out_of_reach(*command) && rail_demanded)
        return EXIT_FAILED;
    if (!elf_search(*command, path))
        return run_failed(*command, NULL);
    status = report_when ? run_child(path, command, report_when, report_file) : -1;
    if (status >= 0)
        return status;
    /* Not execvp: it gives a file that the kernel refuses to a shell, which takes a foreign
     * machine's program for a script and writes to whatever its bytes name. */
    execv(path, command);
    return run_failed(*command, path);
}
