/*
 * stat_read.c - finds, checks and copies the files that processes show. They belong to other
 * processes, which write while we read and may be hostile to whoever reads as root: nothing
 * is mapped (truncation would be SIGBUS), every number is bounded, links are not followed.
 */
#include "tools/stat_read.h"

#include "tools/stat_life.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DIR_PREFIX "railsock-"
#define MAX_SLOTS  FB_MAX_STREAMS
#define CHUNK      256u /* slots read at once */
#define TRIES      8
/* Slots of all files together, counted each time that they are read. Of what is left of it each
 * folder gets half, so that no user's files keep those of others away. */
#define MOST_SLOTS (8u * FB_MAX_STREAMS)

static const char other_version[] = "written by another version of railsock";

/* ---- one file */

static enum fb_path path_of(uint8_t value)
{
    return value <= FB_PATH_VERBS ? (enum fb_path)value : FB_PATH_TCP;
}

static void take_slot(struct stat_conn *c, const struct fb_pub *s, const struct fb_pub_rail *r,
                      uint32_t slot)
{
    *c = (struct stat_conn){
        .fd = s->fd,
        .local = s->local,
        .peer = s->peer,
        .reason = s->reason,
        .peer_reason = s->peer_reason,
        .path_tx = path_of(s->path_tx),
        .path_rx = path_of(s->path_rx),
        .accepted = s->role & FB_PUB_ACCEPTED,
        .tx = s->tx,
        .rx = s->rx,
        .rail_tx = r->rail_tx,
        .rail_rx = r->rail_rx,
        .boarded_at = r->boarded_at,
        .switches = r->switches,
        .retries = r->retries,
        .tx_ring = r->tx_ring,
        .rx_ring = r->rx_ring,
        .pause_last = r->pause_last,
        .pause_most = r->pause_most,
        .slot = slot,
        .gen = s->gen,
    };
    for (size_t i = 0; i < sizeof(r->where) && r->where[i]; i++)
        c->where[i] = r->where[i] > ' ' && r->where[i] < 0x7f ? r->where[i] : '?';
}

/* Slots [first, first + n) of the file. What is being added to the sums is left out, and *closing
 * is set. False: out of memory, or the file has become shorter. */
static bool read_slots(int fd, struct stat_process *p, uint32_t first, uint32_t n, bool *closing)
{
    static struct fb_pub before[CHUNK], after[CHUNK];
    static struct fb_pub_rail rails[CHUNK];
    off_t at = (off_t)(sizeof(struct fb_pub_file) + first * sizeof(struct fb_pub));
    size_t size = n * sizeof(struct fb_pub);
    off_t rails_at = (off_t)(FB_PUB_RAILS + first * sizeof(struct fb_pub_rail));
    struct stat_conn *more;

    /* A file that ends before them shows no rails. */
    memset(rails, 0, sizeof(rails));
    /* A slot whose gen is odd, and equal in both readings, was one connection's all the time, and
     * so was its part of `rails`, which is read in between. */
    if (pread(fd, before, size, at) != (ssize_t)size ||
        pread(fd, rails, n * sizeof(rails[0]), rails_at) < 0 ||
        pread(fd, after, size, at) != (ssize_t)size)
        return false;
    more = reallocarray(p->conns, p->nconns + n, sizeof(*more));
    if (!more)
        return false;
    p->conns = more;
    for (uint32_t i = 0; i < n; i++) {
        if (!(before[i].gen & 1) || before[i].gen != after[i].gen)
            continue;
        if (after[i].role & FB_PUB_CLOSING) {
            *closing = true;
            continue;
        }
        take_slot(&p->conns[p->nconns++], &after[i], &rails[i], first + i);
    }
    return true;
}

/* Of connections whose addresses their process does not know. Once all is read, as each is a
 * call of its own. */
static void find_inodes(int fd, struct stat_process *p)
{
    for (size_t i = 0; i < p->nconns; i++) {
        struct stat_conn *c = &p->conns[i];
        off_t at = (off_t)(sizeof(struct fb_pub_file) + c->slot * sizeof(struct fb_pub));
        uint64_t inode;
        uint32_t gen;

        if (c->local.family && c->peer.family)
            continue;
        inode = stat_inode(p, c->fd);
        /* It was this connection's as long as the slot is. */
        if (pread(fd, &gen, sizeof(gen), at) == sizeof(gen) && gen == c->gen)
            c->inode = inode;
    }
}

static void take_head(struct stat_process *p, const struct fb_pub_file *f)
{
    p->pid = f->pid;
    p->start_time = f->start_time;
    memcpy(p->program, f->program, sizeof(f->program));
    p->closed = (struct stat_closed){
        .connections = f->closed,
        .boarded = f->closed_boarded,
        .tx = f->closed_tx,
        .rx = f->closed_rx,
        .rail_tx = f->closed_rail_tx,
        .rail_rx = f->closed_rail_rx,
        .switches = f->closed_switches,
    };
    for (size_t i = 0; i < sizeof(p->closed.by_reason) / sizeof(p->closed.by_reason[0]); i++)
        p->closed.by_reason[i] = f->closed_by_reason[i];
}

/* Whether a process of this namespace, and of that user, may have written a file of whatever
 * version. Else why not, as below. */
static const char *not_here(const struct fb_pub_file *f, uint32_t pid, uid_t uid)
{
    uint64_t space = fb_pub_namespace(f);

    if (space && space != fb_pub_own_namespace())
        /* of another namespace's, where the number is another's, begun in the same moment */
        return "";
    return stat_is_users(pid, uid) ? NULL : "names a process that is not this user's";
}

/* Reads one open file, of a process that runs unless it is kept, if it has no more than *room
 * slots, which become fewer. NULL: *p is filled. Else why not, in words; "" needs no words. */
static const char *read_file(int fd, uint32_t pid, uid_t uid, bool kept, uint32_t *room,
                             struct stat_process *p)
{
    static struct fb_pub_file f, again;
    struct stat st;
    uint64_t start = 0, closed;
    enum stat_life life;
    const char *why;
    uint32_t slots;
    ssize_t n;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != uid)
        return "not a file of the user that the folder names";
    memset(&f, 0, sizeof(f));
    n = pread(fd, &f, sizeof(f), 0);
    why = kept ? NULL : not_here(&f, pid, uid);
    if (f.magic == FB_PUB_MAGIC && f.version && f.version != FB_PUB_VERSION)
        return why ? why : other_version;
    if (n != sizeof(f))
        return st.st_size ? "too short" : ""; /* 0: is just being made */
    if (f.magic != FB_PUB_MAGIC)
        return f.magic ? "not railsock's" : "";
    if (f.pid != pid)
        return "names another process inside";
    life = stat_life(pid, &start);
    if (!kept && ((life != STAT_RUNS && life != STAT_HEADLESS) || start != f.start_time))
        return ""; /* a file of an earlier process with this pid */
    if (why)
        return why;
    if (f.nslots > MAX_SLOTS || (uint64_t)st.st_size < sizeof(f) + f.nslots * sizeof(struct fb_pub))
        return "shorter than it says";
    if (f.nslots > *room)
        return "there are too many connections";
    *room -= f.nslots;
    p->uid = uid;
    p->pid = pid;
    p->thread = life == STAT_HEADLESS ? stat_thread(pid) : pid;
    /* A connection that closes while we read must not be missing from both, nor be in both:
     * counters that go back look like a program that has begun anew. */
    for (int tries = 0; tries < TRIES; tries++) {
        bool closing = false;

        closed = f.closed;
        p->nconns = 0;
        for (uint32_t at = 0; at < f.nslots; at += slots) {
            slots = f.nslots - at < CHUNK ? f.nslots - at : CHUNK;
            if (!read_slots(fd, p, at, slots, &closing))
                return "could not be read";
        }
        take_head(p, &f);
        if (pread(fd, &again, sizeof(again), 0) != sizeof(again) ||
            (again.closed == closed && !closing) || again.nslots != f.nslots || f.nslots > *room)
            break;
        *room -= f.nslots;
        if (closing)
            sched_yield(); /* it has been interrupted there, or killed */
        f = again;
    }
    if (!kept)
        find_inodes(fd, p);
    return NULL;
}

/* ---- one user's folder */

/* One that says nothing yet is just being made, perhaps by a process of another namespace; after so
 * many seconds whoever made it has been killed over it. */
enum { BEING_MADE = 60 };

static bool is_abandoned(int fd, const struct fb_pub_file *f)
{
    struct timespec now;
    struct stat st;

    clock_gettime(CLOCK_REALTIME, &now);
    return !f->magic && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
           now.tv_sec - st.st_mtim.tv_sec > BEING_MADE;
}

/* Removes the file of a dead process. Not one that has been made meanwhile by a new process of
 * the same number: the file must still be the one that we looked at. */
static void remove_stale(int dir, const char *name, int fd, uint32_t pid)
{
    struct stat seen, now;
    struct fb_pub_file f = {0};
    uint64_t start, space;
    ssize_t n = pread(fd, &f, sizeof(f), 0);

    /* In another namespace there may be a process of that number: it must say, in whatever version,
     * that it is of ours. */
    space = n > 0 ? fb_pub_namespace(&f) : 0;
    if ((!space || space != fb_pub_own_namespace()) && !(n >= 0 && is_abandoned(fd, &f)))
        return;
    if (fstat(fd, &seen) == 0 && (seen.st_uid == geteuid() || geteuid() == 0) &&
        fstatat(dir, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_ino == seen.st_ino &&
        stat_life(pid, &start) == STAT_ENDED)
        unlinkat(dir, name, 0);
}

struct reading {
    uint32_t only; /* this process; 0: all */
    uint32_t room; /* slots, of all folders that are still to be read */
    void (*complain)(const char *path, const char *why);
    struct stat_list *list;
};

static void tell(const struct reading *r, const char *folder, const char *name, const char *why)
{
    char *path;

    if (!*why || !r->complain || asprintf(&path, "%s/%s", folder, name) < 0)
        return;
    for (char *c = path; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c >= 0x7f)
            *c = '?';
    r->complain(path, why);
    free(path);
}

/* False: no memory. */
static bool count_other(struct stat_list *list, uint32_t pid)
{
    uint32_t *more = reallocarray(list->others, list->n_others + 1, sizeof(*more));

    if (!more)
        return false;
    list->others = more;
    more[list->n_others++] = pid;
    return true;
}

static int add_file(const struct reading *r, int dir, const char *name, uint32_t pid, uid_t uid,
                    const char *folder, uint32_t *room)
{
    struct stat_list *list = r->list;
    struct stat_process *p, *more;
    const char *why;
    uint64_t start;
    int fd;

    fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return 0;
    if (stat_life(pid, &start) == STAT_ENDED) {
        remove_stale(dir, name, fd, pid);
        close(fd);
        return 0;
    }
    more = reallocarray(list->processes, list->n + 1, sizeof(*more));
    if (!more) {
        close(fd);
        return -ENOMEM;
    }
    list->processes = more;
    p = &list->processes[list->n];
    memset(p, 0, sizeof(*p));
    why = read_file(fd, pid, uid, false, room, p);
    close(fd);
    if (!why) {
        list->n++;
        return 0;
    }
    free(p->conns);
    tell(r, folder, name, why);
    return why == other_version && !count_other(list, pid) ? -ENOMEM : 0;
}

static int add_folder(struct reading *r, const char *folder, uid_t uid)
{
    uint32_t half = r->room - r->room / 2, room = half;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct dirent *e;
    struct stat st;
    uint32_t pid;
    int err = 0;
    DIR *d;

    if (fd < 0)
        return 0;
    /* Anybody may make a folder of that name in /dev/shm. */
    if (fstat(fd, &st) < 0 || st.st_uid != uid || !(d = fdopendir(fd))) {
        close(fd);
        return 0;
    }
    while (!err && (e = readdir(d)))
        if (stat_number(e->d_name, &pid) && pid && (!r->only || pid == r->only))
            err = add_file(r, fd, e->d_name, pid, uid, folder, &room);
    r->room -= half - room;
    closedir(d);
    return err;
}

/* Whether the process of a kept file has another number here than in the file's name, so that it
 * cannot be told whether it runs. */
static bool is_elsewhere(int fd)
{
    struct fb_pub_file f = {0};
    uint64_t space = pread(fd, &f, sizeof(f), 0) > 0 ? fb_pub_namespace(&f) : 0;

    return space && space != fb_pub_own_namespace();
}

int stat_read_kept(int dir, const char *name, bool living, struct stat_process *p)
{
    const char *dot = strchr(name, '.');
    const char *why = "";
    char digits[16] = "";
    struct stat st;
    uint64_t start;
    uint32_t pid, room = MOST_SLOTS;
    int fd;

    if (!dot || dot - name >= (ptrdiff_t)sizeof(digits)) {
        errno = EINVAL;
        return -1;
    }
    memcpy(digits, name, (size_t)(dot - name));
    if (!stat_number(digits, &pid)) {
        errno = EINVAL;
        return -1;
    }
    if (!living && stat_life(pid, &start) != STAT_ENDED) {
        errno = EBUSY;
        return -1;
    }
    fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -1;
    if (!living && is_elsewhere(fd)) {
        close(fd);
        errno = EBUSY;
        return -1;
    }
    if (fstat(fd, &st) == 0)
        why = read_file(fd, pid, st.st_uid, true, &room, p);
    close(fd);
    errno = why == other_version ? EPROTO : EINVAL;
    return why ? -1 : 0;
}

static int by_pid(const void *a, const void *b)
{
    const struct stat_process *x = a, *y = b;

    return x->pid != y->pid ? (x->pid > y->pid) - (x->pid < y->pid)
                            : (x->uid > y->uid) - (x->uid < y->uid);
}

/* A process has one file. Of several the one counts that is its present user's. */
static void drop_doubles(struct stat_list *list)
{
    size_t kept = 0;

    for (size_t i = 0, next; i < list->n; i = next) {
        struct stat_process *p = list->processes + i;
        unsigned ids[4];
        size_t best = 0;

        for (next = i + 1; next < list->n && list->processes[next].pid == p->pid;)
            next++;
        for (size_t j = 1; j < next - i && stat_users(p->pid, ids) && p[best].uid != ids[1]; j++)
            best = j;
        for (size_t j = 0; j < next - i; j++)
            if (j != best)
                free(p[j].conns);
        list->processes[kept++] = p[best];
    }
    list->n = kept;
}

/* railsock-UID, and railsock-UID.NAMESPACE if that is ours: numbers of another namespace's say
 * nothing here. To the letter, as anybody may make names there that only look like one. */
static bool is_folder(const char *name, uint32_t *uid)
{
    const char *after = name + strlen(DIR_PREFIX), *dot;
    char digits[16], own[24];

    if (strncmp(name, DIR_PREFIX, strlen(DIR_PREFIX)) != 0)
        return false;
    dot = strchrnul(after, '.');
    if (dot - after >= (ptrdiff_t)sizeof(digits))
        return false;
    memcpy(digits, after, (size_t)(dot - after));
    digits[dot - after] = '\0';
    snprintf(own, sizeof(own), ".%" PRIu64, fb_pub_own_namespace());
    return stat_number(digits, uid) && (!*dot || (strcmp(own, ".0") != 0 && strcmp(dot, own) == 0));
}

int stat_read(const char *base, uint32_t pid, void (*complain)(const char *, const char *),
              struct stat_list *list)
{
    struct reading r = {.only = pid, .room = MOST_SLOTS, .complain = complain, .list = list};
    struct dirent *e;
    char folder[PATH_MAX];
    uint32_t uid;
    int err = 0;
    DIR *d;

    *list = (struct stat_list){0};
    d = opendir(base);
    if (!d)
        return -errno;
    while (!err && (e = readdir(d))) {
        if (!is_folder(e->d_name, &uid))
            continue;
        if (snprintf(folder, sizeof(folder), "%s/%s", base, e->d_name) < (int)sizeof(folder))
            err = add_folder(&r, folder, uid);
    }
    closedir(d);
    if (list->n)
        qsort(list->processes, list->n, sizeof(*list->processes), by_pid);
    drop_doubles(list);
    return err;
}

void stat_free(struct stat_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->processes[i].conns);
    free(list->processes);
    free(list->others);
    *list = (struct stat_list){0};
}
