/*
 * attack_peer.c - a peer that shares the TCP stream, proves it, boards, and then lies.
 *
 *   attack peer ADDRESS PORT LIE     LIE "none": an honest one
 *   attack echo PORT                 a victim, for a build with a sanitizer
 *
 * Prints what came of it, in one word:
 *   left    the victim went back to TCP, and the stream goes on there, every byte right
 *   stays   nothing happened: the stream goes on on its rail, every byte right
 *   ended   the victim ended the connection
 *   wrong   a byte was wrong          hang   nothing came for 20 s
 * What the victim says and whether it lives is the script's to see.
 */
#include "tests/attack/attack.h"
#include "tests/calls.h"

#include "config/env.h"
#include "rsock/sys.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

struct fb_conn *_Atomic attacked;
bool careless;
const char *victim_address;
uint16_t victim_port;

int round_trip(struct victim *v, size_t n)
{
    static unsigned char out[1 << 17], in[1 << 17];
    size_t sent = 0, have = 0;

    for (size_t i = 0; i < n; i++)
        out[i] = byte_at(v->pos + i);
    while (sent < n) {
        ssize_t r = call_send(v->s, v->fd, out + sent, n - sent);

        if (r <= 0)
            return r ? (int)r : -EPIPE;
        sent += (size_t)r;
    }
    while (have < n) {
        ssize_t r = call_recv(v->s, v->fd, in + have, n - have);

        if (r <= 0)
            return r ? (int)r : -EPIPE;
        if (!careless && memcmp(in + have, out + have, (size_t)r) != 0)
            return -EBADMSG;
        have += (size_t)r;
    }
    v->pos += n;
    return 0;
}

static void track(struct victim *v, int fd, enum fb_role role)
{
    struct timeval patience = {.tv_sec = careless ? 2 : PATIENCE_S};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    *v = (struct victim){.fd = fd, .s = fb_track(fd, role, 0)};
    if (!v->s)
        DIE("the connection is not tracked");
}

void victim_connect(struct victim *v, const char *address, uint16_t port)
{
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    inet_pton(AF_INET, address, &sin.sin_addr);
    if (connect(fd, (struct sockaddr *)&sin, sizeof sin))
        DIE("connect: %s", strerror(errno));
    track(v, fd, FB_CONNECTED);
    attacked = conn(v);
}

static bool on_rail(const struct victim *v)
{
    return v->s->pub->path_tx != FB_PATH_TCP && v->s->pub->path_rx != FB_PATH_TCP;
}

bool board(struct victim *v, unsigned seconds)
{
    uint64_t until = sys_now() + seconds * 1000000000ull;

    while (!on_rail(v) && sys_now() < until)
        if (round_trip(v, 100) < 0)
            return false;
    /* Not before the victim has read from its ring, and it knows that we have read from ours. */
    return on_rail(v) && round_trip(v, 100) == 0;
}

void victim_close(struct victim *v)
{
    fb_close(v->s, v->fd);
    close(v->fd);
    fb_put(v->s);
}

/* ---- one lie */

struct scribbler {
    const struct lie *lie;
    struct victim *v;
    _Atomic bool stop;
    _Atomic unsigned times; /* so often it has written */
};

/* On a busy machine the round trips may be over before it has had a turn. */
enum { TIMES = 1000 };
#define LEAVES_NS 20000000000u /* so long is a turn waited for */

static void *scribble(void *arg)
{
    struct scribbler *s = arg;

    /* Our own library may give the rail back: its memory stays as long as this reference. */
    while (!s->stop) {
        s->lie->scribble(s->v);
        s->times++;
        sched_yield();
    }
    return NULL;
}

static const char *word_of(int err, bool left)
{
    switch (err) {
    case 0:
        return left ? "left" : "stays";
    case -EAGAIN:
        return "hang";
    case -EBADMSG:
        return "wrong";
    default:
        return "ended";
    }
}

static const struct lie *find_lie(const char *name)
{
    static const struct lie none = {.name = "none"};
    const struct lie *all[] = {shm_lies, frame_lies, verbs_lies, NULL};

    for (size_t i = 0; all[i]; i++)
        for (const struct lie *l = all[i]; l->name; l++)
            if (strcmp(l->name, name) == 0)
                return l;
    return strcmp(name, "none") == 0 ? &none : NULL;
}

static int peer(const char *address, const char *port, const char *name)
{
    const struct lie *lie = find_lie(name);
    const char *most = getenv("ATTACK_ROUNDS"), *board_s = getenv("ATTACK_BOARD_S");
    int rounds = most ? atoi(most) : 2000;
    unsigned few = board_s ? (unsigned)atoi(board_s) : 2;
    struct rsk_rail *rail;
    struct victim v = {.fd = -1};
    struct scribbler s = {.lie = lie, .v = &v};
    bool left = false;
    pthread_t t = 0;
    uint64_t late;
    int err = 0;

    if (!lie)
        DIE("no such lie: %s", name);
    careless = lie->careless;
    if (lie->before)
        lie->before();
    victim_address = address;
    victim_port = (uint16_t)atoi(port);
    victim_connect(&v, victim_address, victim_port);
    if (!board(&v, lie->before && !lie->once ? few : PATIENCE_S)) {
        if (!lie->before || lie->once)
            DIE("does not board");
        err = round_trip(&v, 100);
        /* One whose lie prevents the boarding is told apart by what the victim says. */
        puts(word_of(err, true));
        return 0;
    }
    rail = conn(&v)->x->rail;
    if (!rail && lie->before) { /* the victim was quicker to leave than we are to look */
        puts(word_of(round_trip(&v, 100), true));
        return 0;
    }
    if (!rail)
        DIE("the rail has gone already");
    rsk_rail_get(rail);
    if (lie->once)
        lie->once(&v);
    if (lie->scribble && pthread_create(&t, NULL, scribble, &s))
        DIE("no thread");
    /* Large ones, so that both rings are more than half full at times and credit is looked at. */
    late = sys_now() + LEAVES_NS;
    for (int i = 0;
         (i < rounds || (lie->scribble && s.times < TIMES) || (lie->leaves && sys_now() < late)) &&
         err == 0 && !left;
         i++) {
        if (lie->each && conn(&v)->x->rail && !rail->failed)
            lie->each(&v);
        err = round_trip(&v, i % 2 ? 65000 : 100);
        left = v.s->pub->path_rx == FB_PATH_TCP;
    }
    s.stop = true;
    if (lie->scribble)
        pthread_join(t, NULL);
    for (int i = 0; i < 50 && err == 0; i++)
        err = round_trip(&v, 1000);
    rsk_rail_put(rail);
    puts(word_of(err, left));
    victim_close(&v);
    fb_exit();
    return 0;
}

/* ---- a victim */

static void *echo_one(void *arg)
{
    struct victim *v = arg;
    static __thread char buf[65536];
    ssize_t n;

    while ((n = call_recv(v->s, v->fd, buf, sizeof buf)) > 0)
        for (ssize_t m = 0, r; m < n; m += r)
            if ((r = call_send(v->s, v->fd, buf + m, (size_t)(n - m))) <= 0)
                goto out;
out:
    victim_close(v);
    free(v);
    return NULL;
}

static int echo(const char *port)
{
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(l, (struct sockaddr *)&sin, sizeof sin) || listen(l, 8))
        DIE("listen: %s", strerror(errno));
    for (;;) {
        int fd = accept4(l, NULL, NULL, SOCK_CLOEXEC);
        struct victim *v = malloc(sizeof *v);
        pthread_t t;

        track(v, fd, FB_ACCEPTED);
        if (pthread_create(&t, NULL, echo_one, v) == 0)
            pthread_detach(t);
    }
}

/* Goes on in a child that cannot see who is outside, as in another container. */
static void in_pid_namespace(void)
{
    int status = 0;
    pid_t child;

    if (unshare(CLONE_NEWPID) || (child = fork()) < 0)
        DIE("no PID namespace: %s", strerror(errno));
    if (child == 0)
        return;
    while (waitpid(child, &status, 0) < 0)
        ;
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

int main(int argc, char **argv)
{
    const char *uid = getenv("ATTACK_UID"); /* some lies are another user's */

    signal(SIGPIPE, SIG_IGN);
    if (getenv("ATTACK_PIDNS"))
        in_pid_namespace();
    if (uid && setresuid((uid_t)atoi(uid), (uid_t)atoi(uid), (uid_t)atoi(uid)))
        DIE("setresuid: %s", strerror(errno));
    setvbuf(stdout, NULL, _IOLBF, 0);
    setenv("RAILSOCK_BOARD", "eager", 1);
    cfg_init();
    if (argc == 5 && strcmp(argv[1], "peer") == 0)
        return peer(argv[2], argv[3], argv[4]);
    if (argc == 3 && strcmp(argv[1], "echo") == 0)
        return echo(argv[2]);
    if (argc >= 3 && strcmp(argv[1], "listen") == 0)
        return rogue_listen(argv[2], argv[3]);
    if (argc == 3 && strcmp(argv[1], "early") == 0) {
        ask_early();
        return rogue_listen(argv[2], NULL);
    }
    if (argc >= 6 && strcmp(argv[1], "ask") == 0)
        return rogue_ask(argv + 2, argv[6]);
    if (argc == 5 && strcmp(argv[1], "squat") == 0)
        return squat(argv[2], argv[3], argv[4]);
    if (argc == 4 && strcmp(argv[1], "fds") == 0)
        return bad_fds(argv[2], argv[3]);
    if (argc == 5 && strcmp(argv[1], "knock") == 0)
        return linger_knock(argv + 2);
    DIE("usage: attack peer|echo|listen|early|ask|squat|fds|knock ...");
}
