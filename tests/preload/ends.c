/*
 * ends.c - how processes end, and what the other end of their connection gets: everything that was
 * written, then the end that TCP would show.
 *
 *   ends [WAY]         prints a line for each way to end, or this one, with little and much that
 *                      the peer has not read yet, and with bytes that the ending process has not
 *                      read
 *   ends WAY PORT N U  such a process: connects, writes N bytes, leaves U unread, ends
 */
#include "pair.h"

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;

enum { MUCH = 200000, EXCHANGES = 20 };

static const char *const ways[] = {"return",       "exit",    "_exit",  "quick_exit",
                                   "pthread_exit", "execve",  "close",  "abort",
                                   "SIGTERM",      "SIGSEGV", "SIGKILL"};
enum { WAYS = sizeof(ways) / sizeof(ways[0]), KILLED_FROM = 7 };

/* Bytes of ours for the other end, which begin with whether what we sent before has
 * gone over a rail. */
static char say(int fd, char mine)
{
    char bytes[64] = "?ytes that both ends of the stream have seen";
    unsigned long long before = tcp_sent(fd);

    bytes[0] = mine;
    must(write(fd, bytes, sizeof(bytes)) == sizeof(bytes), "say");
    return tcp_sent(fd) == before ? 'r' : 't';
}

static char hear(int fd)
{
    char bytes[64];
    ssize_t n = 0, r;

    /* Without MSG_WAITALL, since no direction boards under one that sleeps. */
    for (; n < (ssize_t)sizeof(bytes); n += r)
        must((r = recv(fd, bytes + n, sizeof(bytes) - (size_t)n, 0)) > 0, "hear");
    return bytes[0];
}

/* Both ends' warm(): they go on until both directions are on a rail, where they have to be. */
static void exchange(int fd, bool first)
{
    bool waits = getenv("PAIR_WARM") && mode_rail(), over = false;
    char mine = 't', next = 't', theirs;

    for (int i = 0; i < EXCHANGES || (waits && !over); i++, mine = next) {
        must(i < 10000, "boarding");
        if (first)
            next = say(fd, mine);
        theirs = hear(fd);
        if (!first)
            next = say(fd, mine);
        over = mine == 'r' && theirs == 'r';
        if (first && getenv("PAIR_WARM"))
            usleep(2000);
    }
}

static void *nothing(void *arg)
{
    return arg;
}

static int end(const char *way)
{
    char *const none[] = {(char *)"true", NULL};
    pthread_t t;

    if (strcmp(way, "exit") == 0)
        exit(0);
    if (strcmp(way, "_exit") == 0)
        _exit(0);
    if (strcmp(way, "quick_exit") == 0)
        quick_exit(0);
    if (strcmp(way, "pthread_exit") == 0) {
        must(pthread_create(&t, NULL, nothing, NULL) == 0, "pthread_create");
        pthread_exit(NULL);
    }
    if (strcmp(way, "execve") == 0) {
        execv("/bin/true", none);
        give_up("execv");
    }
    if (strcmp(way, "abort") == 0)
        abort();
    if (strcmp(way, "SIGTERM") == 0)
        raise(SIGTERM);
    if (strcmp(way, "SIGSEGV") == 0)
        raise(SIGSEGV);
    if (strcmp(way, "SIGKILL") == 0)
        raise(SIGKILL);
    return 0;
}

static int client(const char *way, int port, size_t n, size_t unread)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct rlimit no_core = {0, 0};
    char *bytes = malloc(n + 1), look[256];
    size_t i;

    setrlimit(RLIMIT_CORE, &no_core);
    must(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
    exchange(fd, true);
    for (i = 0; i < n; i++)
        bytes[i] = (char)(i * 7 + i / 251);
    if (unread)
        must(recv(fd, look, sizeof(look), MSG_PEEK) > 0, "what is not to be read");
    must(write(fd, bytes, n) == (ssize_t)n, "write");
    free(bytes);
    if (strcmp(way, "close") == 0)
        close(fd);
    return end(way);
}

/* Reads until the end; NULL if a byte is wrong. */
static const char *read_all(int fd, size_t *n)
{
    static char buf[65536];
    ssize_t r;

    for (*n = 0; (r = read(fd, buf, sizeof(buf))) > 0; *n += (size_t)r)
        for (ssize_t i = 0; i < r; i++)
            if (buf[i] != (char)((*n + (size_t)i) * 7 + (*n + (size_t)i) / 251))
                return "a wrong byte";
    return r == 0 ? "end of stream" : strerrorname_np(errno);
}

static void one(const char *way, size_t n, size_t unread, const char *self)
{
    struct sockaddr_in at;
    int l = listener(&at), fd, status;
    char port[16], bytes[16], left[16];
    char *const argv[] = {(char *)"ends", (char *)way, port, bytes, left, NULL};
    struct timeval patience = {20, 0};
    const char *last;
    time_t begin;
    size_t got;
    pid_t pid;

    snprintf(port, sizeof(port), "%u", ntohs(at.sin_port));
    snprintf(bytes, sizeof(bytes), "%zu", n);
    snprintf(left, sizeof(left), "%zu", unread);
    must(posix_spawn(&pid, self, NULL, NULL, argv, environ) == 0, "posix_spawn");
    fd = accept(l, NULL, NULL);
    must(fd >= 0, "accept");
    close(l);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    exchange(fd, false);
    if (unread)
        must(write(fd, bytes, unread) == (ssize_t)unread, "write");
    must(waitpid(pid, &status, 0) == pid, "waitpid");
    last = read_all(fd, &got);
    printf("%s, %zu bytes written, %zu left unread: %zu bytes, then %s; ", way, n, unread, got,
           last);
    /* The first may still be accepted, which is how TCP finds out. */
    begin = time(NULL);
    while (write(fd, "x", 1) == 1 && others_run(begin))
        ;
    printf("a write then says %s\n", strerrorname_np(errno));
    close(fd);
}

int main(int argc, char **argv)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    signal(SIGPIPE, SIG_IGN);
    if (argc == 5)
        return client(argv[1], atoi(argv[2]), strtoul(argv[3], NULL, 10),
                      strtoul(argv[4], NULL, 10));
    must(n > 0, "readlink");
    self[n] = 0;
    for (int i = 0; i < WAYS; i++) {
        if (argc == 2 && strcmp(argv[1], ways[i]) != 0)
            continue;
        one(ways[i], 1, 0, self);
        one(ways[i], MUCH, 0, self);
        /* One that is killed cannot say that it had not read everything
         * (ipoib_fallback/README.md). */
        if (i < KILLED_FROM)
            one(ways[i], 100, 10, self);
    }
    return 0;
}
