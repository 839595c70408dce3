/*
 * lab.c - `railsock lab`: boots small virtual hosts with a software RDMA device and runs
 * a command on them. This file reads the options and owns the scratch directory; the
 * rest is in lab_*.c, and tools/README.md says where to start.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "lab.h"

#include <errno.h>
#include <ftw.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"
#include "lab_image.h"
#include "lab_run.h"

static const struct lab_device devices[] = {
    {"rxe", "rxe", NULL},
    {"siw", "siw", "not built yet: Debian's kernel package has no siw module"},
    {"none", "", NULL},
};

static void usage(FILE *f)
{
    fputs("usage: railsock lab run [OPTIONS] -- COMMAND [ARGUMENT...]\n"
          "       railsock lab shell [OPTIONS]\n"
          "       railsock lab image\n"
          "\n"
          "  run     boot hosts, run COMMAND on each of them, end with the worst status\n"
          "  shell   boot hosts, give a shell on host 1; there, `on 2 COMMAND`\n"
          "  image   only make or refresh the image that the hosts boot\n"
          "\n"
          "  --hosts N          1 to 4 (2)\n"
          "  --device NAME      rxe, siw or none (rxe)\n"
          "  --timeout SECONDS  for COMMAND, not counting the boot; 0: none (run: 300)\n"
          "  --memory MB        of each host (1024)\n"
          "  --scratch DIR      what $LAB_SCRATCH is in the hosts (temporary)\n"
          "  --verbose          show the hosts' consoles\n",
          f);
}

/* Returns false, after saying so, when text is no number of that range. */
static bool parse_number(const char *option, const char *text, unsigned min, unsigned max,
                         unsigned *value)
{
    char *end;
    unsigned long v;

    errno = 0;
    v = strtoul(text, &end, 10);
    if (errno || *text < '0' || *text > '9' || *end || v < min || v > max) {
        fprintf(stderr, "railsock lab: %s %s: expected a number from %u to %u\n", option, text, min,
                max);
        return false;
    }
    *value = (unsigned)v;
    return true;
}

static const struct lab_device *parse_device(const char *name)
{
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (strcmp(devices[i].name, name) == 0)
            return &devices[i];
    fprintf(stderr, "railsock lab: --device %s: expected rxe, siw or none\n", name);
    return NULL;
}

/* Returns whether the options are right; says what is wrong. */
static bool parse_options(int argc, char **argv, struct lab_options *o)
{
    static const struct option table[] = {
        {"hosts", required_argument, NULL, 'n'},   {"device", required_argument, NULL, 'd'},
        {"timeout", required_argument, NULL, 't'}, {"memory", required_argument, NULL, 'm'},
        {"scratch", required_argument, NULL, 's'}, {"verbose", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
    };
    bool right = true;
    int c;

    optind = 0;
    while (right && (c = getopt_long(argc, argv, "+h", table, NULL)) != -1) {
        switch (c) {
        case 'n':
            right = parse_number("--hosts", optarg, 1, LAB_MAX_HOSTS, &o->hosts);
            break;
        case 'd':
            o->device = parse_device(optarg);
            right = o->device != NULL;
            break;
        case 't':
            right = parse_number("--timeout", optarg, 0, 1000000, &o->timeout_s);
            break;
        case 'm':
            right = parse_number("--memory", optarg, 256, 65536, &o->memory_mb);
            break;
        case 's':
            o->scratch = optarg;
            break;
        case 'v':
            o->verbose = true;
            break;
        case 'h':
            exit(command_help("railsock lab", usage));
        default:
            return false;
        }
    }
    if (!right)
        return false;
    o->command = argv + optind;
    if (o->shell && *o->command) {
        fprintf(stderr, "railsock lab: shell takes no command\n");
        return false;
    }
    if (!o->shell && !*o->command) {
        fprintf(stderr, "railsock lab: expected a command\n");
        return false;
    }
    return true;
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    remove(path);
    return 0;
}

/* False, with errno: it is none. */
static bool is_folder(const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return false;
    errno = ENOTDIR;
    return S_ISDIR(st.st_mode);
}

/* The scratch directory's absolute path, to be freed; NULL after saying why. */
static char *scratch_open(const char *wanted)
{
    const char *tmp = getenv("TMPDIR");
    char *made = NULL;
    char *path;

    if (wanted) {
        if (mkdir(wanted, 0777) < 0 && errno != EEXIST) {
            fprintf(stderr, "railsock lab: %s: %s\n", wanted, strerror(errno));
            return NULL;
        }
    } else {
        if (asprintf(&made, "%s/railsock-lab.XXXXXX", tmp && *tmp ? tmp : "/tmp") < 0)
            return NULL;
        if (!mkdtemp(made)) {
            fprintf(stderr, "railsock lab: %s: %s\n", made, strerror(errno));
            free(made);
            return NULL;
        }
        wanted = made;
    }
    path = realpath(wanted, NULL);
    if (path && !is_folder(path)) {
        free(path);
        path = NULL;
    }
    if (!path)
        fprintf(stderr, "railsock lab: %s: %s\n", wanted, strerror(errno));
    free(made);
    return path;
}

static int run(int argc, char **argv)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    struct lab_options o = {.hosts = 2, .memory_mb = 1024, .device = &devices[0]};
    struct lab_image image = {0};
    char *scratch = NULL;
    int status = LAB_EXIT_FAILED;
    sigset_t caught, blocked, before;
    int signo = 0;

    o.shell = strcmp(argv[0], "shell") == 0;
    argv[0] = (char *)(o.shell ? "railsock lab shell" : "railsock lab run");
    o.timeout_s = o.shell ? 0 : 300;
    if (!parse_options(argc, argv, &o))
        return command_wrong("railsock lab");
    if (o.device->refused) {
        fprintf(stderr, "railsock lab: device %s: %s\n", o.device->name, o.device->refused);
        return LAB_EXIT_USAGE;
    }
    if (!lab_image_have_qemu() || lab_image_get(&image) < 0)
        return LAB_EXIT_FAILED;
    sigemptyset(&caught);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct sigaction now;

        /* Not one that we were started to ignore, as by nohup. */
        if (sigaction(ends[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(&caught, ends[i]);
    }
    blocked = caught;
    if (o.shell)
        sigaddset(&blocked, SIGWINCH);
    /* Until the directory is removed: whoever ends us may send a second signal. */
    sigprocmask(SIG_BLOCK, &blocked, &before);
    scratch = scratch_open(o.scratch);
    if (scratch) {
        status = lab_run(&o, &image, scratch, &caught, &signo);
        if (!o.scratch)
            nftw(scratch, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    }
    free(scratch);
    lab_image_free(&image);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (signo) {
        /* Whoever started us shall see how we ended. */
        signal(signo, SIG_DFL);
        raise(signo);
    }
    return status;
}

static int image_only(void)
{
    struct lab_image image = {0};

    if (lab_image_get(&image) < 0)
        return LAB_EXIT_FAILED;
    printf("%s\n%s\n%s\n", image.kernel, image.initrd, image.modules);
    lab_image_free(&image);
    return 0;
}

int cmd_lab(int argc, char **argv)
{
    const char *action = argc > 1 ? argv[1] : "", *last = argv[argc - 1];
    bool help = strcmp(last, "--help") == 0 || strcmp(last, "-h") == 0;

    if (strcmp(action, "run") == 0 || strcmp(action, "shell") == 0)
        return run(argc - 1, argv + 1);
    if (strcmp(action, "image") == 0 && argc == 2)
        return image_only();
    if (help && (argc == 2 || (argc == 3 && strcmp(action, "image") == 0)))
        return command_help("railsock lab", usage);
    if (strcmp(action, "image") == 0)
        fprintf(stderr, "railsock lab: image takes no argument\n");
    else
        fprintf(stderr, "railsock lab: expected run, shell or image%s%s\n", *action ? ", not " : "",
                action);
    return command_wrong("railsock lab");
}
