/*
 * loads_a_plugin.c - a program that loads libraries of which one uses TCP in a thread before it is
 * loaded, and one itself, while another thread of the program begins to: what the library starts
 * for the first of them cannot wait for who loads.
 */
#include "plugin/echoes.h"
#include "say.h"

#include <dlfcn.h>

static int go[2];
static _Atomic int tid;

static void load(const char *name)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);

    must(n > 0, "readlink");
    path[n] = 0;
    snprintf(strrchr(path, '/'), 64, "/plugin/%s.so", name);
    if (!dlopen(path, RTLD_NOW | RTLD_LOCAL))
        printf("%s\n", dlerror());
}

static void has_a_thread(void)
{
    load("has_a_thread");
}

static void *beside(void *unused)
{
    char byte;

    tid = gettid();
    must(read(go[0], &byte, 1) == 1, "go");
    return echoes(unused);
}

static void joins_in(void)
{
    char told[32];
    pthread_t t;

    must(pipe(go) == 0 && pthread_create(&t, NULL, beside, NULL) == 0, "thread");
    until_it_sleeps(&tid);
    snprintf(told, sizeof(told), "%d %d", tid, go[1]);
    must(setenv("PLUGIN_BESIDE", told, 1) == 0, "setenv");
    load("joins_in");
    must(pthread_join(t, NULL) == 0, "join");
}

static void in_a_child(void (*what)(void), const char *how)
{
    pid_t pid;

    printf("-- %s\n", how);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        alarm(20);
        what();
        fflush(stdout);
        _exit(0);
    }
    ended(pid);
}

int main(void)
{
    in_a_child(has_a_thread, "a thread of the plugin's");
    in_a_child(joins_in, "the plugin, and a thread of the program's");
    return 0;
}
