/*
 * stat_test.c - what `railsock stat` reads: good files, and every way in which one can be broken.
 */
#include "tests/unit/stat_part.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

TEST_CASE(stat, reads_connections)
{
    struct stat_list list;
    const struct stat_process *p;

    begin(SLOTS);
    use_slot(0, 7);
    use_slot(SLOTS - 1, 9);
    head()->slot[3].gen = 4; /* not in use */
    head()->closed = 3;
    head()->closed_rail_rx = 77;
    head()->closed_switches = 78;
    put_whole();
    ASSERT_EQ_INT(stat_read(base, 0, complain, &list), 0);
    EXPECT_EQ_INT(complaints, 0);
    ASSERT_EQ_INT(list.n, 1);
    p = &list.processes[0];
    EXPECT_EQ_INT(p->pid, getpid());
    EXPECT_STREQ(p->program, "prog");
    EXPECT_EQ_U64(p->closed.connections, 3);
    EXPECT_EQ_U64(p->closed.rail_rx, 77);
    EXPECT_EQ_U64(p->closed.switches, 78);
    ASSERT_EQ_INT(p->nconns, 2);
    EXPECT_EQ_INT(p->conns[0].fd, 7);
    EXPECT_EQ_INT(p->conns[1].fd, 9);
    EXPECT_EQ_U64(p->conns[1].rail_rx, UINT64_MAX);
    EXPECT(p->conns[1].accepted);
    stat_free(&list);
    ASSERT_EQ_INT(stat_read(base, (uint32_t)getpid(), complain, &list), 0);
    EXPECT_EQ_INT(list.n, 1);
    stat_free(&list);
    ASSERT_EQ_INT(stat_read(base, (uint32_t)getpid() + 1, complain, &list), 0);
    EXPECT_EQ_INT(list.n, 0);
    stat_free(&list);
    end();
}

TEST_CASE(stat, a_name_that_fills_its_place)
{
    struct stat_list list;

    begin(0);
    memset(head()->program, 'x', sizeof(head()->program));
    put_whole();
    ASSERT_EQ_INT(stat_read(base, 0, complain, &list), 0);
    ASSERT_EQ_INT(list.n, 1);
    EXPECT_EQ_INT(strlen(list.processes[0].program), sizeof(head()->program));
    stat_free(&list);
    end();
}

TEST_CASE(stat, broken_files)
{
    begin(2);
    put(file, 0);
    nothing("");
    put(file, 40);
    nothing("too short");
    put(file, sizeof(struct fb_pub_file) - 1);
    nothing("too short");
    put(file, sizeof(struct fb_pub_file) + sizeof(struct fb_pub));
    nothing("shorter than it says");
    head()->nslots = UINT32_MAX;
    put(file, sizeof(image.bytes));
    nothing("shorter than it says");
    head()->nslots = 2;
    head()->magic = 0;
    put_whole();
    nothing("");
    head()->magic = 0x6b636f736c696172ull ^ 1;
    put_whole();
    nothing("not railsock's");
    head()->magic = FB_PUB_MAGIC;
    head()->version++;
    put_whole();
    nothing("written by another version of railsock");
    head()->version--;
    head()->pid++;
    put_whole();
    nothing("names another process inside");
    head()->pid--;
    head()->start_time--;
    put_whole();
    nothing("");
    EXPECT(access(file, F_OK) == 0);
    end();
}

/* The size is checked before anything is read, or a sparse file would take all memory. */
TEST_CASE(stat, a_huge_file)
{
    begin(UINT32_MAX);
    put(file, sizeof(struct fb_pub_file));
    ASSERT(truncate(file, (off_t)1 << 40) == 0);
    nothing("shorter than it says");
    end();
}

TEST_CASE(stat, things_that_are_no_files)
{
    char other[96];

    begin(0);
    snprintf(other, sizeof(other), "%s/target", base);
    put(other, sizeof(struct fb_pub_file));
    ASSERT(symlink(other, file) == 0);
    nothing("");
    unlink(file);
    unlink(other);
    ASSERT(mkfifo(file, 0600) == 0);
    nothing("not a file of the user that the folder names");
    unlink(file);
    ASSERT(mkdir(file, 0700) == 0);
    nothing("not a file of the user that the folder names");
    rmdir(file);
    /* Names that are no process number. */
    snprintf(other, sizeof(other), "%s/0%d", folder, (int)getpid());
    put(other, sizeof(struct fb_pub_file));
    nothing("");
    unlink(other);
    snprintf(other, sizeof(other), "%s/4294967296", folder);
    put(other, sizeof(struct fb_pub_file));
    nothing("");
    unlink(other);
    end();
}

/* Anybody may make a folder in /dev/shm, with anybody's number in its name. */
TEST_CASE(stat, a_folder_of_another_user)
{
    char false_folder[80], other[128];

    begin(0);
    snprintf(false_folder, sizeof(false_folder), "%s/railsock-%u", base, (unsigned)geteuid() + 1);
    ASSERT(mkdir(false_folder, 0700) == 0);
    snprintf(other, sizeof(other), "%s/%d", false_folder, (int)getpid());
    put(other, sizeof(struct fb_pub_file));
    nothing("");
    unlink(other);
    rmdir(false_folder);
    ASSERT(symlink(folder, false_folder) == 0);
    put_whole();
    unlink(file);
    nothing("");
    unlink(false_folder);
    end();
}

/* Nor may a name that only looks like one of ours be shown, or be read at all. */
TEST_CASE(stat, names_that_look_like_a_folder)
{
    static const struct {
        const char *before, *after;
    } strange[] = {{"", "\033[31m"}, {"0", ""}, {"+", ""}, {" ", ""}, {"", "a"}, {"", "."}};
    char second[96], other[128];

    begin(0);
    for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++) {
        snprintf(second, sizeof(second), "%s.%s%llu%s", folder, strange[i].before,
                 (unsigned long long)fb_pub_own_namespace(), strange[i].after);
        ASSERT(mkdir(second, 0700) == 0);
        snprintf(other, sizeof(other), "%s/%d", second, (int)getpid());
        put(other, 40);
        nothing("");
        put(other, sizeof(struct fb_pub_file));
        nothing("");
        unlink(other);
        rmdir(second);
    }
    end();
}

/* A process in two folders is one process. */
TEST_CASE(stat, a_file_with_two_names)
{
    char second[96], other[128];
    struct stat_list list;

    begin(2);
    use_slot(0, 7);
    put_whole();
    snprintf(second, sizeof(second), "%s.%llu", folder, (unsigned long long)fb_pub_own_namespace());
    snprintf(other, sizeof(other), "%s/%d", second, (int)getpid());
    ASSERT(mkdir(second, 0700) == 0 && link(file, other) == 0);
    EXPECT_EQ_INT(stat_read(base, 0, complain, &list), 0);
    EXPECT_EQ_INT(list.n, 1);
    EXPECT_EQ_INT(list.processes[0].nconns, 1);
    stat_free(&list);
    unlink(other);
    rmdir(second);
    end();
}

/* One that has begun as root, and shows itself as another user since. */
TEST_CASE(stat, files_of_two_users)
{
    const uid_t user = 65432;
    char second[96], other[128];
    struct stat_list list;
    pid_t pid = 0;
    int p[2];

    if (geteuid() != 0)
        SKIP("needs root");
    begin(0);
    ASSERT(pipe2(p, O_CLOEXEC) == 0);
    for (int i = 0; i < 2; i++) {
        pid = fork();
        if (pid == 0) {
            if ((i == 0 || setresuid((uid_t)-1, user, 0) == 0) && write(p[1], "", 1) == 1)
                pause();
            _exit(1);
        }
        ASSERT(pid > 0 && read(p[0], other, 1) == 1);
        head()->pid = (uint32_t)pid;
        head()->start_time = start_time_of(pid);
        snprintf(second, sizeof(second), "%s/railsock-%u", base, (unsigned)user);
        snprintf(other, sizeof(other), "%s/%d", second, (int)pid);
        ASSERT(mkdir(second, 0700) == 0);
        put(other, sizeof(struct fb_pub_file));
        ASSERT(chown(second, user, 0) == 0 && chown(other, user, 0) == 0);
        snprintf(second, sizeof(second), "%s/%d", folder, (int)pid);
        put(second, sizeof(struct fb_pub_file));
        complaints = 0;
        EXPECT_EQ_INT(stat_read(base, 0, i == 0 ? NULL : complain, &list), 0);
        EXPECT_EQ_INT(list.n, 1);
        EXPECT_EQ_INT(list.processes[0].uid, i == 0 ? 0 : user);
        EXPECT_EQ_INT(complaints, 0);
        stat_free(&list);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        unlink(other);
        *strrchr(other, '/') = '\0';
        rmdir(other);
        unlink(second);
    }
    close(p[0]);
    close(p[1]);
    end();
}

static size_t too_many;

static void complain_of_many(const char *path, const char *why)
{
    EXPECT(strncmp(path, folder, strlen(folder)) == 0);
    EXPECT_STREQ(why, "there are too many connections");
    too_many++;
}

/* Each may be as large as there can be, and there may be a process for each. */
TEST_CASE(stat, more_than_can_be_read)
{
    enum { FILES = 6, SHOWN = 4 };
    struct stat_list list;
    pid_t pid[FILES];
    char name[96];

    begin(FB_MAX_STREAMS);
    for (size_t i = 0; i < FILES; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            pause();
            _exit(1);
        }
        ASSERT(pid[i] > 0);
        head()->pid = (uint32_t)pid[i];
        head()->start_time = start_time_of(pid[i]);
        snprintf(name, sizeof(name), "%s/%d", folder, (int)pid[i]);
        put(name, sizeof(struct fb_pub_file));
        ASSERT(truncate(name, (off_t)FB_PUB_RAILS) == 0);
    }
    too_many = 0;
    EXPECT_EQ_INT(stat_read(base, 0, complain_of_many, &list), 0);
    EXPECT_EQ_INT(list.n, SHOWN);
    EXPECT_EQ_INT(too_many, FILES - SHOWN);
    stat_free(&list);
    for (size_t i = 0; i < FILES; i++) {
        kill(pid[i], SIGKILL);
        waitpid(pid[i], NULL, 0);
        snprintf(name, sizeof(name), "%s/%d", folder, (int)pid[i]);
        unlink(name);
    }
    end();
}

/* What `railsock run --report` reads. */
TEST_CASE(stat, kept_files)
{
    static const char *const strange[] = {
        "1", "x.0", "-1.0", "01.0", ".0", "99999999999999999999.0", "1.0"};
    struct stat_process p = {0};
    char name[32], path[128];
    pid_t pid;
    int dir;

    begin(2);
    use_slot(1, 9);
    head()->closed = 4;
    put_whole();
    dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ASSERT(dir >= 0);
    snprintf(name, sizeof(name), "%d.3", (int)getpid());
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    ASSERT(rename(file, path) == 0);

    /* This process runs. */
    EXPECT_EQ_INT(stat_read_kept(dir, name, false, &p), -1);
    EXPECT_EQ_INT(errno, EBUSY);
    ASSERT_EQ_INT(stat_read_kept(dir, name, true, &p), 0);
    EXPECT_EQ_INT(p.nconns, 1);
    EXPECT_EQ_U64(p.closed.connections, 4);
    free(p.conns);
    unlink(path);

    pid = fork();
    if (pid == 0)
        _exit(0);
    ASSERT(pid > 0 && waitpid(pid, NULL, 0) == pid);
    head()->pid = (uint32_t)pid;
    snprintf(name, sizeof(name), "%d.0", (int)pid);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    put(path, sizeof(struct fb_pub_file) + 2 * sizeof(struct fb_pub));
    p = (struct stat_process){0};
    ASSERT_EQ_INT(stat_read_kept(dir, name, false, &p), 0);
    EXPECT_EQ_INT(p.conns[0].fd, 9);
    free(p.conns);
    /* One of another namespace's may run, whatever that number is here. */
    head()->pid_namespace ^= 1;
    put(path, sizeof(struct fb_pub_file) + 2 * sizeof(struct fb_pub));
    p = (struct stat_process){0};
    EXPECT_EQ_INT(stat_read_kept(dir, name, false, &p), -1);
    EXPECT_EQ_INT(errno, EBUSY);
    free(p.conns);
    p = (struct stat_process){0};
    EXPECT_EQ_INT(stat_read_kept(dir, name, true, &p), 0);
    EXPECT_EQ_INT(p.nconns, 1);
    free(p.conns);
    head()->pid_namespace ^= 1;
    put(path, sizeof(struct fb_pub_file) + 2 * sizeof(struct fb_pub));
    /* Cut off, and a link to it. */
    p = (struct stat_process){0};
    ASSERT(truncate(path, sizeof(struct fb_pub_file) + 8) == 0);
    EXPECT_EQ_INT(stat_read_kept(dir, name, false, &p), -1);
    free(p.conns);
    unlink(path);
    ASSERT(symlink("/etc/passwd", path) == 0);
    p = (struct stat_process){0};
    EXPECT_EQ_INT(stat_read_kept(dir, name, false, &p), -1);
    unlink(path);

    for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++) {
        p = (struct stat_process){0};
        EXPECT_EQ_INT(stat_read_kept(dir, strange[i], true, &p), -1);
        EXPECT_EQ_INT(errno, i == 6 ? ENOENT : EINVAL);
    }
    close(dir);
    end();
}

/* A connection that is being added to the sums is not there a second time. */
TEST_CASE(stat, a_connection_that_is_being_closed)
{
    struct stat_list list;

    begin(2);
    use_slot(0, 7);
    use_slot(1, 8);
    head()->slot[1].role |= FB_PUB_CLOSING;
    head()->closed = 1;
    head()->closed_tx = 100;
    put_whole();
    ASSERT_EQ_INT(stat_read(base, 0, complain, &list), 0);
    ASSERT_EQ_INT(list.n, 1);
    ASSERT_EQ_INT(list.processes[0].nconns, 1);
    EXPECT_EQ_INT(list.processes[0].conns[0].fd, 7);
    stat_free(&list);
    end();
}

TEST_CASE(stat, no_folder_at_all)
{
    struct stat_list list;

    EXPECT_EQ_INT(stat_read("/nonexistent", 0, complain, &list), -ENOENT);
    stat_free(&list);
}
