/*
 * main.c - runs cases, each in a process of its own, several at a time.
 *
 *   conform list                                  names
 *   conform run DIR JOBS LIMIT [FILTER...]        into DIR/NAME what each printed and how it ended
 *   conform case NAME                             one, in this process, on standard output
 *
 * A filter is a part of a name, or =NAME. A case that runs longer than LIMIT seconds is killed,
 * with everything that it has started.
 */
#include "tests/conform/kit.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#define MOST 2000

static struct conf_case {
    char name[80];
    void (*fn)(const void *);
    const void *arg;
} cases[MOST];
static size_t ncases;

void case_add(const char *file, const char *name, const char *variant, void (*fn)(const void *),
              const void *arg)
{
    const char *base = strrchr(file, '/');
    struct conf_case *c = &cases[ncases];

    must(ncases < MOST, "room for the case");
    base = base ? base + 1 : file;
    snprintf(c->name, sizeof(c->name), "%.*s.%s%s%s", (int)strcspn(base, "."), base, name,
             variant ? "." : "", variant ? variant : "");
    c->fn = fn;
    c->arg = arg;
    ncases++;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct conf_case *)a)->name, ((const struct conf_case *)b)->name);
}

static bool wanted(const char *name, char **filters)
{
    bool any = !*filters;

    for (; *filters; filters++)
        any = any ||
              (**filters == '=' ? !strcmp(name, *filters + 1) : strstr(name, *filters) != NULL);
    return any;
}

struct job {
    pid_t pid;
    const struct conf_case *what;
    struct timespec begun;
    int out;
    bool killed;
};

static void begin(struct job *j, const struct conf_case *c, const char *dir, const sigset_t *mask)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s", dir, c->name);
    j->out = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    must(j->out >= 0, path);
    j->what = c;
    j->killed = false;
    clock_gettime(CLOCK_MONOTONIC, &j->begun);
    fflush(stdout);
    j->pid = fork();
    must(j->pid >= 0, "fork");
    if (j->pid == 0) {
        int null = open("/dev/null", O_RDONLY);

        setpgid(0, 0);
        dup2(null, 0);
        dup2(j->out, 1);
        dup2(j->out, 2);
        /* The lowest numbers are free, as in a program that has just begun. */
        closefrom(3);
        setvbuf(stdout, NULL, _IOLBF, 0);
        sigprocmask(SIG_SETMASK, mask, NULL);
        c->fn(c->arg);
        exit(0);
    }
    setpgid(j->pid, j->pid);
}

static void end(struct job *j, int status)
{
    kill(-j->pid, SIGKILL);
    if (j->killed)
        dprintf(j->out, "HANGS\n");
    else if (WIFSIGNALED(status))
        dprintf(j->out, "killed by %s\n", strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status))
        dprintf(j->out, "exit status %d\n", WEXITSTATUS(status));
    close(j->out);
    j->pid = 0;
}

static long seconds_since(const struct timespec *t)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec - t->tv_sec;
}

static void run(const char *dir, int njobs, long limit, char **filters)
{
    struct job jobs[64] = {{0}};
    struct timespec tick = {0, 200000000};
    sigset_t child, old;
    size_t next = 0;
    int live = 0;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &old);
    while (next < ncases || live) {
        for (int i = 0; i < njobs; i++) {
            struct job *j = &jobs[i];
            int status;

            if (j->pid && waitpid(j->pid, &status, WNOHANG) == j->pid) {
                end(j, status);
                live--;
            }
            if (j->pid && !j->killed && seconds_since(&j->begun) > limit) {
                j->killed = true;
                kill(-j->pid, SIGKILL);
            }
            while (!j->pid && next < ncases) {
                const struct conf_case *c = &cases[next++];

                if (wanted(c->name, filters)) {
                    begin(j, c, dir, &old);
                    live++;
                }
            }
        }
        if (live)
            sigtimedwait(&child, NULL, &tick);
    }
}

int main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";

    qsort(cases, ncases, sizeof(cases[0]), by_name);
    for (size_t i = 1; i < ncases; i++)
        must(strcmp(cases[i - 1].name, cases[i].name) != 0, cases[i].name);
    if (strcmp(verb, "list") == 0) {
        for (size_t i = 0; i < ncases; i++)
            puts(cases[i].name);
        return 0;
    }
    if (strcmp(verb, "run") == 0 && argc >= 5) {
        int jobs = atoi(argv[3]);

        run(argv[2], jobs < 1 ? 1 : jobs > 64 ? 64 : jobs, atol(argv[4]), argv + 5);
        return 0;
    }
    for (size_t i = 0; strcmp(verb, "case") == 0 && argc == 3 && i < ncases; i++) {
        if (strcmp(cases[i].name, argv[2]) == 0) {
            setvbuf(stdout, NULL, _IOLBF, 0);
            cases[i].fn(cases[i].arg);
            return 0;
        }
    }
    fprintf(stderr, "usage: conform list | run DIR JOBS LIMIT [FILTER...] | case NAME\n");
    return 2;
}
