/*
 * stat_life_test.c - of which processes `railsock stat` shows files, and which it removes.
 */
#include "tests/unit/stat_part.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

TEST_CASE(stat_life, files_of_the_dead_are_removed)
{
    char dead[96], zombie[96];
    pid_t gone, waits;

    begin(0);
    gone = fork();
    if (gone == 0)
        _exit(0);
    ASSERT(waitpid(gone, NULL, 0) == gone);
    waits = fork();
    if (waits == 0)
        _exit(0);
    /* Dead but not collected. */
    ASSERT(waitid(P_PID, (id_t)waits, &(siginfo_t){0}, WEXITED | WNOWAIT) == 0);
    snprintf(dead, sizeof(dead), "%s/%d", folder, (int)gone);
    snprintf(zombie, sizeof(zombie), "%s/%d", folder, (int)waits);
    put(dead, sizeof(struct fb_pub_file));
    put(zombie, sizeof(struct fb_pub_file));
    nothing("");
    EXPECT(access(dead, F_OK) < 0);
    EXPECT(access(zombie, F_OK) < 0);
    waitpid(waits, NULL, 0);
    /* In another namespace that number may be a process, of whatever version; one that does not say
     * may be of one. */
    for (uint32_t version = FB_PUB_VERSION - 1; version <= FB_PUB_VERSION + 1; version++) {
        head()->version = version;
        head()->pid_namespace++;
        put(dead, sizeof(struct fb_pub_file));
        nothing("");
        EXPECT(unlink(dead) == 0);
    }
    put(dead, 3);
    nothing("");
    EXPECT(unlink(dead) == 0);
    /* A later version's here is known for what it is. */
    head()->pid_namespace = fb_pub_own_namespace();
    head()->version = FB_PUB_VERSION + 1;
    put(dead, sizeof(struct fb_pub_file));
    nothing("");
    EXPECT(access(dead, F_OK) < 0);
    end();
}

/* Ends its main thread, and stays. */
static void *stay(void *p)
{
    ASSERT(write(*(int *)p, "", 1) == 1);
    pause();
    return NULL;
}

/* A process whose main thread has called pthread_exit: its state is Z, as a dead one's is. */
TEST_CASE(stat_life, a_process_without_its_main_thread)
{
    struct stat_process kept = {0};
    struct stat_list list;
    char name[96], state = 0;
    int p[2], sock, dir;
    pid_t pid;

    begin(1);
    ASSERT(pipe2(p, O_CLOEXEC) == 0);
    sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT(sock >= 0);
    pid = fork();
    if (pid == 0) {
        pthread_t thread;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        /* As pthread_exit(), but no C++ above us is to hear of it. */
        if (pthread_create(&thread, NULL, stay, &p[1]) == 0)
            syscall(SYS_exit, 0);
        _exit(1);
    }
    ASSERT(pid > 0 && read(p[0], name, 1) == 1);
    while (state != 'Z') {
        char text[512] = "";
        int fd;

        snprintf(name, sizeof(name), "/proc/%d/stat", (int)pid);
        fd = open(name, O_RDONLY | O_CLOEXEC);
        ASSERT(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
        close(fd);
        state = strrchr(text, ')')[2];
    }
    head()->pid = (uint32_t)pid;
    head()->start_time = start_time_of(pid);
    use_slot(0, sock);
    head()->slot[0].local.family = 0;
    snprintf(name, sizeof(name), "%s/%d", folder, (int)pid);
    put(name, sizeof(struct fb_pub_file) + sizeof(struct fb_pub));
    EXPECT_EQ_INT(stat_read(base, 0, NULL, &list), 0);
    ASSERT_EQ_INT(list.n, 1);
    /* Its files are those of the thread that lives. */
    ASSERT_EQ_INT(list.processes[0].nconns, 1);
    EXPECT(list.processes[0].conns[0].inode != 0);
    stat_free(&list);
    EXPECT(access(name, F_OK) == 0);

    dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(name, sizeof(name), "%d.0", (int)pid);
    EXPECT_EQ_INT(stat_read_kept(dir, name, false, &kept), -1);
    EXPECT_EQ_INT(errno, EBUSY);
    close(dir);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    nothing("");
    close(sock);
    close(p[0]);
    close(p[1]);
    end();
}
