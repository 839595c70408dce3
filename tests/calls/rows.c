/*
 * rows.c - runs the rows one after the other; see rows.h.
 *
 *   rows              all, in the order of their names
 *   rows SYMBOL...    some
 *   rows --list       their names
 */
#define _GNU_SOURCE
#include "rows.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>

int c = -1, s = -1;
char rows_c[16], rows_s[16];

static struct row *rows;
static int listening = -1, library_log = -1, notes = -1;
static struct sockaddr_in at;
static off_t pair_since, row_since;
/* The end of the log when the row was done with its streams, which may be in a
 * child; 0: not yet. */
static off_t *row_until;

void rows_add(struct row *r)
{
    struct row **p = &rows;
    int order;

    while (*p && ((order = strcmp((*p)->symbol, r->symbol)) < 0 ||
                  (order == 0 && strcmp((*p)->tag, r->tag) < 0)))
        p = &(*p)->next;
    r->next = *p;
    *p = r;
}

void *rows_symbol(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);

    if (!found) {
        printf("%s is not here\n", name);
        exit(3);
    }
    return found;
}

/* ---- the library's log ---- */

static off_t log_end(void)
{
    return library_log < 0 ? 0 : lseek(library_log, 0, SEEK_END);
}

/* How often the log says it, from there on. */
static int said(off_t since, const char *what)
{
    static char text[1 << 16];
    ssize_t n = library_log < 0 ? 0 : pread(library_log, text, sizeof(text) - 1, since);
    int count = 0;

    must(n >= 0 && n < (ssize_t)sizeof(text) - 1, "log");
    text[*row_until && *row_until >= since && n > *row_until - since ? *row_until - since : n] = 0;
    for (const char *t = text; (t = strstr(t, what)); t++)
        count++;
    return count;
}

static int boarded(void)
{
    return said(pair_since, ": sending on");
}

static bool left(void)
{
    return said(row_since, " leaves the rail") > 0;
}

/* ---- pairs ---- */

static void close_pair(void)
{
    if (c >= 0)
        close(c);
    if (s >= 0)
        close(s);
    c = s = -1;
}

void rows_over(void)
{
    *row_until = log_end();
    close_pair();
}

static void give(int fd)
{
    char bytes[64] = "some bytes that both ends of the stream have seen";

    must(write(fd, bytes, sizeof(bytes)) == sizeof(bytes), "give");
}

static void take(int fd)
{
    char bytes[64];

    must(recv(fd, bytes, sizeof(bytes), MSG_WAITALL) == sizeof(bytes), "take");
}

/* Without the library a few rounds do. */
#define ROUNDS (library_log < 0 ? 20 : 2000)
#define PAUSE  usleep(500)

bool rows_board(void)
{
    for (int i = 0; i < ROUNDS && boarded() < 2; i++) {
        give(c), take(s);
        give(s), take(c);
        if (library_log >= 0)
            PAUSE;
    }
    return boarded() >= 2;
}

bool rows_board_end(int fd)
{
    bool last = false;
    char go;

    /* c's end says with each round whether it is the last. */
    for (int i = 0; !last; i++) {
        if (fd == c) {
            last = i + 1 >= ROUNDS || boarded() >= 2;
            give(c), take(c);
            must(write(c, last ? "x" : "y", 1) == 1 && read(c, &go, 1) == 1, "round");
            if (library_log >= 0)
                PAUSE;
        } else {
            take(s), give(s);
            must(read(s, &go, 1) == 1 && write(s, &go, 1) == 1, "round");
            last = go == 'x';
        }
    }
    return boarded() >= 2;
}

void rows_pair(void)
{
    int p[2];

    close_pair();
    pair_since = log_end();
    pair_at(listening, &at, p);
    c = p[0], s = p[1];
    (void)rows_board();
    row_since = log_end();
}

void rows_fresh(void)
{
    pair_since = row_since = log_end();
    *row_until = 0;
    (void)rows_board();
}

void rows_hear(int fd, size_t n)
{
    char text[256] = "";

    must(n < sizeof(text) && recv(fd, text, n, MSG_WAITALL) == (ssize_t)n, "hear");
    printf("  heard [%s]\n", text);
}

/* ---- rows with processes of their own ---- */

static void flush(void)
{
    fflush(stdout);
}

/* Until nobody holds what is written to it. */
static void wait_all(int fd, pid_t pid)
{
    char byte;
    int status;

    while (read(fd, &byte, 1) > 0)
        ;
    close(fd);
    must(waitpid(pid, &status, 0) == pid, "waitpid");
    printf("  child: %s %d\n", WIFEXITED(status) ? "exited" : "signal",
           WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

void rows_apart(void (*run)(void))
{
    int ends[2];
    pid_t pid;

    close_pair();
    flush();
    must(pipe(ends) == 0, "pipe");
    pair_since = row_since = log_end();
    pid = fork();
    if (pid == 0) {
        close(ends[0]);
        rows_pair();
        snprintf(rows_c, sizeof(rows_c), "%d", c);
        snprintf(rows_s, sizeof(rows_s), "%d", s);
        run();
        *row_until = log_end();
        flush();
        _exit(0);
    }
    close(ends[1]);
    wait_all(ends[0], pid);
}

void rows_last_words(void (*run)(void))
{
    char text[64];
    size_t have = 0;
    ssize_t n;
    int status;
    pid_t pid;

    close_pair();
    flush();
    pair_since = row_since = log_end();
    pid = fork();
    if (pid == 0) {
        c = socket(AF_INET, SOCK_STREAM, 0);
        must(connect(c, (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
        rows_board_end(c);
        must(write(c, "last words", 10) == 10, "write");
        run();
        abort();
    }
    s = accept(listening, NULL, NULL);
    must(s >= 0, "accept");
    rows_board_end(s);
    do
        n = read(s, text + have, sizeof(text) - have);
    while (n > 0 && (have += (size_t)n) < sizeof(text));
    printf("  [%.*s]\n", (int)have, text);
    printf("  then %s\n", n == 0 ? "the end" : strerrorname_np(errno));
    must(waitpid(pid, &status, 0) == pid, "waitpid");
    printf("  child: %d %d\n", WIFEXITED(status), WEXITSTATUS(status));
    close_pair();
}

static int after(char **argv)
{
    int out = atoi(argv[2]), in = atoi(argv[3]);
    char text[64];
    ssize_t n;

    must(write(out, "a new program", 13) == 13, "write");
    n = recv(in, text, 13, MSG_WAITALL);
    printf("  [%.*s]\n", (int)n, text);
    return 7;
}

/* ---- all of them ---- */

static void note(const struct row *r)
{
    Dl_info where;
    const char *what = left() ? "left" : boarded() < 2 ? "unboarded" : "stayed";

    if (notes >= 0 && dladdr(rows_symbol(r->symbol), &where))
        must(dprintf(notes, "%s %s %s\n", r->symbol, what,
                     strstr(where.dli_fname, "librailsock") ? "ours" : "libc") > 0,
             "notes");
}

/* Not if the library alone has it: a name of newer ones, or one of liburing's where that is
 * not installed. */
static bool in_libc(const char *symbol)
{
    if (strncmp(symbol, "io_uring_", 9) == 0) {
        void *liburing = dlopen("liburing.so.2", RTLD_NOW | RTLD_GLOBAL);

        return liburing && dlsym(liburing, symbol);
    }
    return dlsym(strncmp(symbol, "pidfd_spawn", 11) ? RTLD_DEFAULT
                                                    : dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD),
                 symbol);
}

static void run(const struct row *r)
{
    if (!in_libc(r->symbol)) {
        printf("== %s %s: not in this libc\n", r->symbol, r->tag);
        return;
    }
    printf("== %s %s\n", r->symbol, r->tag);
    if (c < 0 || s < 0 || left() || boarded() < 2)
        rows_pair();
    row_since = log_end();
    *row_until = 0;
    r->run();
    note(r);
    *row_until = 0;
    /* The stream goes on, wherever it is. */
    if (c >= 0 && s >= 0) {
        give(c), take(s);
        give(s), take(c);
    }
}

int main(int argc, char **argv)
{
    const char *name;

    setvbuf(stdout, NULL, _IOLBF, 0);
    row_until = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(row_until != MAP_FAILED, "mmap");
    if (argc == 4 && strcmp(argv[1], ROWS_AFTER) == 0)
        return after(argv);
    /* High, and not for children: 9 to 99 are for the rows. */
    if ((name = getenv("ROWS_LOG"))) {
        int fd = open(name, O_RDONLY | O_CREAT, 0600);

        library_log = fcntl(fd, F_DUPFD_CLOEXEC, 100);
        close(fd);
    }
    if ((name = getenv("ROWS_NOTES"))) {
        int fd = open(name, O_WRONLY | O_CREAT | O_APPEND, 0600);

        notes = fcntl(fd, F_DUPFD_CLOEXEC, 100);
        close(fd);
    }
    listening = fcntl(listener(&at), F_DUPFD_CLOEXEC, 100);
    for (const struct row *r = rows; r; r = r->next) {
        bool wanted = argc == 1;

        for (int i = 1; i < argc; i++)
            wanted |= strcmp(argv[i], r->symbol) == 0;
        if (argc == 2 && strcmp(argv[1], "--list") == 0)
            printf("%s\n", r->symbol);
        else if (wanted)
            run(r);
    }
    return 0;
}
