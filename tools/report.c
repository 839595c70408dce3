/*
 * report.c - see report.h. Files are added up and removed as their processes end, so that a server
 * which forks for each connection does not fill /dev/shm.
 */
#include "tools/report.h"

#include "config/reason.h"
#include "tools/json.h"
#include "tools/room.h"
#include "tools/stat_read.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "railsock-keep."

static int held = -1;

/* Makes the outer folder and locks it. 0: somebody has removed it in between. */
static int make(char folder[REPORT_FOLDER_SIZE])
{
    struct stat st;
    int err;

    strcpy(folder, STAT_BASE "/" PREFIX "XXXXXX");
    if (!mkdtemp(folder))
        return -errno;
    held = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (held < 0) {
        err = errno == ENOENT ? 0 : -errno;
        rmdir(folder);
        return err;
    }
    if (flock(held, LOCK_EX | LOCK_NB) == 0 && fstat(held, &st) == 0 && st.st_nlink > 0)
        return 1;
    close(held);
    return 0;
}

/* The inner one. A server of root's may serve as another user, so that anybody may put a file there
 * who knows its name: who may not read our programs' environment cannot find it. */
static int make_inner(char folder[REPORT_FOLDER_SIZE])
{
    size_t outer = strlen(folder);
    uint64_t name;

    if (getrandom(&name, sizeof(name), 0) != sizeof(name))
        return -errno;
    snprintf(folder + outer, REPORT_FOLDER_SIZE - outer, "/%016" PRIx64, name);
    if (mkdirat(held, folder + outer + 1, 0700) < 0)
        return -errno;
    if (geteuid() == 0 && (chmod(folder, 01733) < 0 || fchmod(held, 0711) < 0))
        return -errno;
    return 0;
}

int report_begin(char folder[REPORT_FOLDER_SIZE])
{
    int r = 0, err;

    report_sweep();
    for (int tries = 0; tries < 10 && r == 0; tries++)
        r = make(folder);
    if (r <= 0)
        return r < 0 ? r : -EBUSY;
    err = make_inner(folder);
    if (err < 0)
        report_end(folder);
    return err;
}

static void add(struct report *r, const struct stat_process *p)
{
    const struct stat_closed *c = &p->closed;

    r->processes++;
    r->connections += c->connections + p->nconns;
    r->boarded += c->boarded;
    r->bytes += c->tx + c->rx;
    r->rail_bytes += c->rail_tx + c->rail_rx;
    r->switches += c->switches;
    for (size_t i = 0; i < sizeof(r->by_reason) / sizeof(r->by_reason[0]); i++)
        r->by_reason[i] += c->by_reason[i];
    for (size_t i = 0; i < p->nconns; i++) {
        const struct stat_conn *s = &p->conns[i];

        r->bytes += s->tx + s->rx;
        r->rail_bytes += s->rail_tx + s->rail_rx;
        r->switches += s->switches;
        if (s->boarded_at) {
            r->boarded++;
            r->failed += s->reason == RSN_RAIL_FAILED || s->reason == RSN_DEVICE_GONE ||
                         s->reason == RSN_PEER_PROTOCOL;
        } else if (s->reason < sizeof(r->by_reason) / sizeof(r->by_reason[0])) {
            r->by_reason[s->reason]++;
        }
    }
}

/* Of whatever kind; a folder only if it is empty. */
static void drop(int dir, const char *name)
{
    if (unlinkat(dir, name, 0) < 0 && errno == EISDIR)
        unlinkat(dir, name, AT_REMOVEDIR);
}

/* NULL: fd, which may be < 0, is closed. */
static DIR *folder_of(int fd)
{
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d && fd >= 0)
        close(fd);
    return d;
}

/* Closes fd. */
static void collect(int fd, bool all, struct report *r)
{
    struct stat_process p;
    struct dirent *e;
    DIR *d = folder_of(fd);

    if (!d)
        return;
    while ((e = readdir(d))) {
        if (e->d_name[0] == '.')
            continue;
        memset(&p, 0, sizeof(p));
        if (stat_read_kept(fd, e->d_name, all, &p) == 0)
            add(r, &p);
        else if (!all && errno == EBUSY) /* still runs */
            continue;
        else
            r->others += errno == EPROTO;
        drop(fd, e->d_name);
        free(p.conns);
    }
    closedir(d);
}

void report_look(struct report *r)
{
    if (!r->lacking)
        r->lacking = room_lacking();
}

void report_collect(const char *folder, bool all, struct report *r)
{
    collect(open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), all, r);
}

void report_end(const char *folder)
{
    const char *inner = strchr(folder + strlen(STAT_BASE "/"), '/');
    char outer[REPORT_FOLDER_SIZE] = "";

    if (inner) {
        rmdir(folder);
        folder = memcpy(outer, folder, (size_t)(inner - folder));
    }
    rmdir(folder);
    close(held);
    held = -1;
}

/* Nothing is read: these are others' folders. Closes fd. */
static void empty(int fd, bool outer)
{
    struct dirent *e;
    DIR *d = folder_of(fd);

    if (!d)
        return;
    while ((e = readdir(d))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (outer)
            empty(openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), false);
        drop(fd, e->d_name);
    }
    closedir(d);
}

void report_sweep(void)
{
    DIR *d = opendir(STAT_BASE);
    struct dirent *e;
    struct stat st;

    while (d && (e = readdir(d))) {
        int fd = strncmp(e->d_name, PREFIX, strlen(PREFIX)) == 0
                     ? openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                     : -1;

        if (fd < 0)
            continue;
        if (fstat(fd, &st) == 0 && (st.st_uid == geteuid() || geteuid() == 0) &&
            flock(fd, LOCK_EX | LOCK_NB) == 0) {
            empty(fcntl(fd, F_DUPFD_CLOEXEC, 0), true);
            unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
        }
        close(fd);
    }
    if (d)
        closedir(d);
}

/* What its user asked for, or what every short connection passes through. */
static bool expected(size_t reason)
{
    switch (reason) {
    case RSN_NONE:
    case RSN_NEW:
    case RSN_MODE_TCP:
    case RSN_BOARD_NEVER:
    case RSN_NOT_YET:
    case RSN_SELF_CONNECT:
    case RSN_ENDING:
    case RSN_NOT_ESTABLISHED:
    case RSN_RULE:
        return true;
    default:
        return false;
    }
}

bool report_off(const struct report *r)
{
    for (size_t i = 0; i < sizeof(r->by_reason) / sizeof(r->by_reason[0]); i++)
        if (r->by_reason[i] && !expected(i))
            return true;
    return r->failed > 0;
}

/* In tenths of a per cent, rounded down: only all is 1000, and only nothing is 0. */
static unsigned share(const struct report *r)
{
    uint64_t tenths = r->bytes ? (uint64_t)((double)r->rail_bytes / (double)r->bytes * 1000) : 0;

    if (tenths == 0 && r->rail_bytes)
        return 1;
    return tenths >= 1000 && r->rail_bytes < r->bytes ? 999 : (unsigned)tenths;
}

void report_print(FILE *f, const char *program, const struct report *r)
{
    unsigned tenths = share(r);
    char text[ROOM_MISSING];
    const char *missing = room_missing(r->lacking, r->others, text);

    if (!r->connections) {
        fprintf(f, "railsock: %s made no TCP connection that the library saw%s%s\n", program,
                missing ? ", or none could be shown: " : "", missing ? missing : "");
        return;
    }
    fprintf(f,
            "railsock: %s: %" PRIu64 " connection%s, %" PRIu64
            " boarded a rail; %u.%u %% of %" PRIu64 " bytes went over it\n",
            program, r->connections, r->connections == 1 ? "" : "s", r->boarded, tenths / 10,
            tenths % 10, r->bytes);
    if (r->failed)
        fprintf(f, "railsock:   %" PRIu64 " lost the rail: it failed, and they went on over TCP\n",
                r->failed);
    for (size_t i = 0; i < sizeof(r->by_reason) / sizeof(r->by_reason[0]); i++) {
        const char *advice = cfg_reason_advice((int)i);

        if (r->by_reason[i])
            fprintf(f, "railsock:   %" PRIu64 " on TCP, %s: %s%s%s\n", r->by_reason[i],
                    cfg_reason_name((int)i), cfg_reason_ended((int)i), *advice ? "; " : "", advice);
    }
    if (missing)
        fprintf(f, "railsock:   processes may be missing that could not be shown: %s\n", missing);
}

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

void report_json(FILE *f, const struct report *r, int64_t wall_ns, const struct rusage *usage)
{
    const char *comma = "", *missing;
    char text[ROOM_MISSING];

    missing = room_missing(r->lacking, r->others, text);
    fprintf(f,
            "{\"wall_s\":%.9f,\"cpu_s\":%.6f,\"peak_bytes\":%lld,\"processes\":%" PRIu64
            ",\"connections\":%" PRIu64 ",\"boarded\":%" PRIu64 ",\"bytes\":%" PRIu64
            ",\"rail_bytes\":%" PRIu64 ",\"switches\":%" PRIu64 ",\"failed\":%" PRIu64
            ",\"reasons\":{",
            (double)wall_ns / 1e9, seconds(usage->ru_utime) + seconds(usage->ru_stime),
            (long long)usage->ru_maxrss * 1024, r->processes, r->connections, r->boarded, r->bytes,
            r->rail_bytes, r->switches, r->failed);
    for (size_t i = 0; i < sizeof(r->by_reason) / sizeof(r->by_reason[0]); i++)
        if (r->by_reason[i]) {
            fprintf(f, "%s\"%s\":%" PRIu64, comma, cfg_reason_name((int)i), r->by_reason[i]);
            comma = ",";
        }
    fputs("},\"not_shown\":", f);
    if (missing)
        json_string(f, missing);
    else
        fputs("null", f);
    fputs("}\n", f);
}
