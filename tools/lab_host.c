/*
 * lab_host.c - the QEMU process of one lab host.
 *
 * All channels and the cable are socket pairs that QEMU inherits by number, so a lab
 * leaves no sockets in the file system and nobody else can connect. QEMU gets no user
 * network and no tap: a host reaches its peers and nothing else.
 *
 * Does not know what the guest does with the channels; that is lab_run.c's.
 * Called on the main thread only, because PR_SET_PDEATHSIG follows the thread.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "lab_host.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ARGS_MAX 96

static const char *const channel_names[LAB_CHANNELS] = {
    [LAB_CONSOLE] = "console", [LAB_CTL] = "ctl", [LAB_OUT] = "out",
    [LAB_ERR] = "err",         [LAB_TTY] = "tty",
};

struct args {
    char *v[ARGS_MAX];
    unsigned n;
    bool failed;
};

static void __attribute__((format(printf, 2, 3))) add(struct args *a, const char *format, ...)
{
    va_list ap;
    char *text;
    int r;

    va_start(ap, format);
    r = vasprintf(&text, format, ap);
    va_end(ap);
    if (r < 0 || a->n + 1 >= ARGS_MAX) {
        if (r >= 0)
            free(text);
        a->failed = true;
        return;
    }
    a->v[a->n++] = text;
    a->v[a->n] = NULL;
}

static void args_free(struct args *a)
{
    for (unsigned i = 0; i < a->n; i++)
        free(a->v[i]);
}

/* QEMU ends a value at a comma unless it is doubled. */
static char *escape_commas(const char *text)
{
    char *out = malloc(2 * strlen(text) + 1);
    char *p = out;

    if (!out)
        return NULL;
    for (; *text; text++) {
        *p++ = *text;
        if (*text == ',')
            *p++ = ',';
    }
    *p = 0;
    return out;
}

bool lab_have_kvm(void)
{
    char *line = NULL;
    size_t size = 0;
    bool flag = false;
    FILE *f = fopen("/proc/cpuinfo", "re");
    int fd;

    /* /dev/kvm may exist where it cannot work; QEMU then hangs before the first byte. */
    while (f && !flag && getline(&line, &size, f) > 0) {
        if (strncmp(line, "flags", 5) != 0)
            continue;
        for (char *word = strtok(line, " \t\n"); word; word = strtok(NULL, " \t\n"))
            flag = flag || strcmp(word, "vmx") == 0 || strcmp(word, "svm") == 0;
        break;
    }
    free(line);
    if (f)
        fclose(f);
    if (!flag)
        return false;
    fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return false;
    close(fd);
    return true;
}

#ifdef __x86_64__
static uint64_t ns_and_ticks(uint64_t *ticks)
{
    struct timespec ts;
    uint64_t least = UINT64_MAX, ns = 0;

    *ticks = 0;
    /* Read close together: of several tries the one that was interrupted least. */
    for (int i = 0; i < 20; i++) {
        uint64_t before = __builtin_ia32_rdtsc(), after;

        clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
        after = __builtin_ia32_rdtsc();
        if (after - before < least) {
            least = after - before;
            *ticks = before + least / 2;
            ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
        }
    }
    return ns;
}
#endif

/* In kHz, 0 when it cannot be known. A host would measure it while it boots, against an emulated
 * timer, and on a busy machine below it then got a clock that is many times too fast. Translated
 * code reads our counter. */
static unsigned tick_rate(void)
{
#ifdef __x86_64__
    const struct timespec wait = {0, 20000000};
    uint64_t t0, t1, n0 = ns_and_ticks(&t0), n1;

    nanosleep(&wait, NULL);
    n1 = ns_and_ticks(&t1);
    return lab_have_kvm() ? 0 : (unsigned)((t1 - t0) * 1000000 / (n1 - n0));
#else
    return 0;
#endif
}

static void add_machine(struct args *a, const struct lab_options *options,
                        const struct lab_image *image)
{
    unsigned khz = tick_rate();
    char rate[40] = "";

    add(a, "qemu-system-x86_64");
    add(a, "-nodefaults");
    add(a, "-no-user-config");
    add(a, "-no-reboot");
    add(a, "-display");
    add(a, "none");
    add(a, "-sandbox");
    add(a, "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
    add(a, "-accel");
    add(a, "%s", lab_have_kvm() ? "kvm" : "tcg,thread=multi");
    add(a, "-cpu");
    /* Translated code moves one byte at a time for `rep movsb`, which libc and kernel take for the
     * fastest way of copying where the processor says so (erms): 2.3 ns for a byte instead of 0.4.
     * No adapter's host is like that. And each look-up of a page that QEMU does not remember goes
     * through every level of the page tables: four, not five (la57). */
    add(a, "%s", lab_have_kvm() ? "max" : "max,-erms,-la57");
    add(a, "-smp");
    add(a, "2");
    add(a, "-m");
    add(a, "%uM", options->memory_mb);
    add(a, "-kernel");
    add(a, "%s", image->kernel);
    add(a, "-initrd");
    add(a, "%s", image->initrd);
    if (khz)
        snprintf(rate, sizeof(rate), " tsc_early_khz=%u", khz);
    add(a, "-append");
    /*
     * tsc=reliable: else reading the clock is a slow device access. oops=panic: a kernel that
     * stumbled gives no result to trust, so the lab shall fail with what it said. softlockup_panic:
     * nor does one of which a processor is stuck for twice watchdog_thresh seconds, and everybody
     * would wait for it for ever. This machine may be busy, too: not for less. norandmaps: what
     * QEMU has translated it finds again by its address, so a program that is always at the same
     * one starts in half the time from the second start on.
     */
    add(a,
        "console=ttyS0 panic=-1 oops=panic softlockup_panic=1 watchdog_thresh=60 mitigations=off "
        "no_timer_check tsc=reliable%s%s%s",
        lab_have_kvm() ? "" : " norandmaps", rate, options->verbose ? "" : " quiet");
}

static void add_channels(struct args *a, const int *far)
{
    add(a, "-device");
    add(a, "virtio-serial-pci");
    for (int c = 0; c < LAB_CHANNELS; c++) {
        if (far[c] < 0)
            continue;
        add(a, "-chardev");
        add(a, "socket,id=%s,fd=%d", channel_names[c], far[c]);
        if (c == LAB_CONSOLE) {
            add(a, "-serial");
            add(a, "chardev:%s", channel_names[c]);
            continue;
        }
        add(a, "-device");
        add(a, "%s,chardev=%s,name=%s", c == LAB_TTY ? "virtconsole" : "virtserialport",
            channel_names[c], channel_names[c]);
    }
}

static void add_files(struct args *a, const char *scratch)
{
    char *path = escape_commas(scratch);

    if (!path) {
        a->failed = true;
        return;
    }
    add(a, "-fsdev");
    add(a, "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap");
    add(a, "-device");
    add(a, "virtio-9p-pci,fsdev=root,mount_tag=hostroot");
    add(a, "-fsdev");
    add(a, "local,id=scratch,path=%s,security_model=none,multidevs=remap", path);
    add(a, "-device");
    add(a, "virtio-9p-pci,fsdev=scratch,mount_tag=scratch");
    free(path);
}

static void add_net(struct args *a, unsigned number, int net_fd)
{
    add(a, "-netdev");
    if (net_fd >= 0)
        add(a, "stream,id=net,server=off,addr.type=fd,addr.str=%d", net_fd);
    else
        add(a, "hubport,id=net,hubid=0");
    add(a, "-device");
    add(a, "virtio-net-pci,netdev=net,mac=52:54:00:00:00:%02x,host_mtu=9000,romfile=", number);
}

static void __attribute__((noreturn))
run_qemu(char *const *argv, const int *far, int net_fd, pid_t parent)
{
    sigset_t none;
    int null = open("/dev/null", O_RDWR);

    /* Not in the terminal's foreground group: Ctrl-C must reach us, who end it in order. */
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    for (int c = 0; c < LAB_CHANNELS; c++)
        if (far[c] >= 0)
            fcntl(far[c], F_SETFD, 0);
    if (net_fd >= 0)
        fcntl(net_fd, F_SETFD, 0);
    if (null >= 0) {
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
    }
    dup2(far[LAB_CONSOLE], STDERR_FILENO);
    execvp(argv[0], argv);
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

int lab_host_start(struct lab_qemu *qemu, unsigned number, const struct lab_options *options,
                   const struct lab_image *image, const char *scratch, int net_fd)
{
    struct args args = {0};
    int far[LAB_CHANNELS];
    pid_t parent = getpid();
    int r = 0;

    qemu->pid = 0;
    for (int c = 0; c < LAB_CHANNELS; c++)
        qemu->fd[c] = far[c] = -1;
    for (int c = 0; c < LAB_CHANNELS && r == 0; c++) {
        int pair[2];

        if (c == LAB_TTY && !(options->shell && number == 1))
            continue;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
            r = -errno;
            break;
        }
        qemu->fd[c] = pair[0];
        far[c] = pair[1];
        if (fcntl(pair[0], F_SETFL, O_NONBLOCK) < 0)
            r = -errno;
    }
    if (r < 0)
        goto out;
    add_machine(&args, options, image);
    add_channels(&args, far);
    add_files(&args, scratch);
    add_net(&args, number, net_fd);
    if (args.failed) {
        r = -ENOMEM;
        goto out;
    }
    qemu->pid = fork();
    if (qemu->pid == 0)
        run_qemu(args.v, far, net_fd, parent);
    if (qemu->pid < 0) {
        r = -errno;
        qemu->pid = 0;
    }
out:
    args_free(&args);
    for (int c = 0; c < LAB_CHANNELS; c++)
        if (far[c] >= 0)
            close(far[c]);
    if (r < 0)
        lab_host_stop(qemu);
    return r;
}

void lab_host_stop(struct lab_qemu *qemu)
{
    if (qemu->pid > 0) {
        kill(qemu->pid, SIGKILL);
        while (waitpid(qemu->pid, NULL, 0) < 0 && errno == EINTR)
            ;
        qemu->pid = 0;
    }
    for (int c = 0; c < LAB_CHANNELS; c++) {
        if (qemu->fd[c] >= 0)
            close(qemu->fd[c]);
        qemu->fd[c] = -1;
    }
}
