/*
 * numbered.c - while streams board, for which the library takes numbers and gives them back,
 * whatever gives the program a descriptor gives it the lowest number that is free, and one that it
 * has closed is closed. And a program that puts something at every number of the library's does not
 * come between it and its streams.
 *
 * On a machine that lets a thread stand still for longer than the others wait for it, a number can
 * be wrong, and for some calls after it, while they wait less: those do not count, until that many
 * in a row were right.
 */
#include "pair.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

enum { STREAMS = 100, ROUNDS = 4, WAYS = 40, AFTER = 64 };

#define NONE "/dev/null"

/* Exported without a prototype, or for fortified programs alone. */
int __open(const char *path, int flags, ...);
int __open64(const char *path, int flags, ...);
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int at, const char *path, int flags);
int __openat64_2(int at, const char *path, int flags);
int __pipe(int pair[2]);
int __dup2(int fd, int to);
int __fcntl(int fd, int cmd, ...);

static int lowest, next_one, wrong[WAYS], counted;
static const char *names[WAYS];
static struct timespec began;

static void begins(void)
{
    clock_gettime(CLOCK_MONOTONIC, &began);
}

static void ended(int way, const char *name, bool right)
{
    static int left_out;
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    names[way] = name;
    /* Half of what they wait at least. */
    if ((now.tv_sec - began.tv_sec) * 1000000000 + now.tv_nsec - began.tv_nsec > 100000)
        left_out = AFTER;
    if (left_out) {
        left_out = right ? left_out - 1 : AFTER;
        return;
    }
    counted++;
    wrong[way] += !right;
}

/* The call has given fd, which is closed again. */
static void gave(int way, const char *name, int fd)
{
    bool right = close(fd) == 0 && fcntl(fd, F_GETFD) == -1;

    ended(way, name, right && fd == lowest);
}

#define ONE(call)                 \
    do {                          \
        begins();                 \
        gave(way++, #call, call); \
    } while (0)
#define TWO(call)                                                  \
    do {                                                           \
        int two[2];                                                \
        bool right;                                                \
                                                                   \
        begins();                                                  \
        must((call) == 0, #call);                                  \
        right = two[0] == lowest && two[1] == next_one;            \
        right &= close(two[1]) == 0 && close(two[0]) == 0;         \
        ended(way++, #call, right &&fcntl(two[0], F_GETFD) == -1); \
    } while (0)
#define A_FILE(call)                                             \
    do {                                                         \
        FILE *f = (begins(), call);                              \
        bool right = fileno(f) == lowest;                        \
                                                                 \
        right &= fclose(f) == 0 && fcntl(lowest, F_GETFD) == -1; \
        ended(way++, #call, right);                              \
    } while (0)

static int all_ways(void)
{
    int way = 0;
    sigset_t none;

    sigemptyset(&none);
    ONE(open(NONE, O_RDONLY));
    ONE(open64(NONE, O_RDONLY));
    ONE(__open(NONE, O_RDONLY));
    ONE(__open64(NONE, O_RDONLY));
    ONE(__open_2(NONE, O_RDONLY));
    ONE(__open64_2(NONE, O_RDONLY));
    ONE(openat(AT_FDCWD, NONE, O_RDONLY));
    ONE(openat64(AT_FDCWD, NONE, O_RDONLY));
    ONE(__openat_2(AT_FDCWD, NONE, O_RDONLY));
    ONE(__openat64_2(AT_FDCWD, NONE, O_RDONLY));
    ONE(creat(NONE, 0600));
    ONE(creat64(NONE, 0600));
    A_FILE(fopen(NONE, "r"));
    A_FILE(fopen64(NONE, "r"));
    TWO(pipe(two));
    TWO(__pipe(two));
    TWO(pipe2(two, O_CLOEXEC));
    TWO(socketpair(AF_UNIX, SOCK_STREAM, 0, two));
    ONE(socket(AF_UNIX, SOCK_STREAM, 0));
    ONE(eventfd(0, 0));
    ONE(timerfd_create(CLOCK_MONOTONIC, 0));
    ONE(signalfd(-1, &none, 0));
    ONE(inotify_init());
    ONE(inotify_init1(0));
    ONE(memfd_create("numbered", 0));
    ONE(epoll_create(1));
    ONE(epoll_create1(0));
    ONE(dup(0));
    ONE(fcntl(0, F_DUPFD, 0));
    ONE(fcntl64(0, F_DUPFD_CLOEXEC, 0));
    ONE(__fcntl(0, F_DUPFD, 0));
    /* What stands there for a moment may not be replaced either: the library would close it. */
    ONE(dup2(0, lowest));
    ONE(__dup2(0, lowest));
    ONE(dup3(0, lowest, O_CLOEXEC));
    must(way <= WAYS, "WAYS");
    return way;
}

int main(void)
{
    struct sockaddr_in at;
    int p[STREAMS][2], ways = 0, l;

    closefrom(3); /* what the program was given */
    l = listener(&at);
    for (int i = 0; i < STREAMS; i++) {
        pair_at(l, &at, p[i]);
        /* Not what accept gave, and one more: that takes its number before it sleeps, and may
         * have met another. */
        lowest = dup(0);
        next_one = dup(0);
        close(lowest);
        close(next_one);
        for (int round = 0; round < ROUNDS; round++) {
            pass(p[i], 0);
            pass(p[i], 1);
            ways = all_ways();
        }
    }
    on_rail(p[0]);
    for (int n = 512; n < 1000; n++)
        if (dup2(0, n) == n)
            close(n);
    tcp_pair(p[1]); /* boards, for which all of the library's are needed */
    for (int round = 0; round < 100; round++)
        for (int i = 0; i < 2; i++)
            pass(p[i], round % 2);
    for (int way = 0; way < ways; way++)
        printf("%s: %d of %d not right\n", names[way], wrong[way], STREAMS * ROUNDS);
    if (counted < ways * STREAMS * ROUNDS / 20)
        puts("nearly nothing has counted");
    return 0;
}
