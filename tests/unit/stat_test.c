/*
 * stat_test.c - `railsock stat` on files made here: good ones, and every way in which one can
 * be broken. The folder is a temporary one, the process is this one.
 */
#include "config/reason.h"
#include "tests/shim/shim.h"
#include "tools/stat_filter.h"
#include "tools/stat_print.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOTS 600 /* more than are read at once */

static char base[] = "/tmp/stat_test.XXXXXX", folder[64], file[96];
static char complaint[256];
static size_t complaints;

static void complain(const char *path, const char *why)
{
    EXPECT_STREQ(path, file);
    snprintf(complaint, sizeof(complaint), "%s", why);
    complaints++;
}

static uint64_t own_start_time(void)
{
    char text[1024], *p;
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, sizeof(text) - 1);

    close(fd);
    text[n > 0 ? n : 0] = '\0';
    p = strrchr(text, ')');
    ASSERT(p);
    for (int field = 2; field < 22; field++)
        p = strchr(p + 1, ' ');
    return strtoull(p, NULL, 10);
}

/* What the case writes, wholly or in part. */
static struct image {
    _Alignas(64) char bytes[sizeof(struct fb_pub_file) + SLOTS * sizeof(struct fb_pub)];
} image;

static struct fb_pub_file *head(void)
{
    return (struct fb_pub_file *)image.bytes;
}

/* A folder with a good file's image of this process, with nslots slots, none in use. */
static void begin(uint32_t nslots)
{
    strcpy(base + strlen(base) - 6, "XXXXXX");
    ASSERT(mkdtemp(base));
    snprintf(folder, sizeof(folder), "%s/railsock-%u", base, (unsigned)geteuid());
    ASSERT(mkdir(folder, 0700) == 0);
    snprintf(file, sizeof(file), "%s/%d", folder, (int)getpid());
    memset(&image, 0, sizeof(image));
    *head() = (struct fb_pub_file){
        .magic = FB_PUB_MAGIC,
        .version = FB_PUB_VERSION,
        .pid = (uint32_t)getpid(),
        .start_time = own_start_time(),
        .program = "prog",
        .nslots = nslots,
    };
    complaints = 0;
    complaint[0] = '\0';
}

static void put(const char *path, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    ASSERT(fd >= 0);
    ASSERT(write(fd, image.bytes, size) == (ssize_t)size);
    close(fd);
}

static void put_whole(void)
{
    put(file, sizeof(struct fb_pub_file) + head()->nslots * sizeof(struct fb_pub));
}

static void end(void)
{
    unlink(file);
    EXPECT(rmdir(folder) == 0);
    EXPECT(rmdir(base) == 0);
}

static void use_slot(unsigned i, int fd)
{
    struct fb_pub *s = &head()->slot[i];

    s->gen = 5;
    s->fd = fd;
    s->local = (struct fb_pub_addr){.family = AF_INET, .port = 80};
    inet_pton(AF_INET, "127.0.0.1", s->local.addr);
    s->peer = (struct fb_pub_addr){.family = AF_INET6, .port = 40000};
    inet_pton(AF_INET6, "fd00::7", s->peer.addr);
    s->path_tx = s->path_rx = FB_PATH_SHM;
    s->role = 1;
    s->tx = 100;
    s->rx = 200;
    s->rail_tx = 90;
    s->rail_rx = UINT64_MAX;
    s->boarded_at = 1700000000123456789u;
    s->switches = 2;
}

/* Reads the folder and expects that nothing of it is shown. */
static void nothing(const char *why)
{
    struct stat_list list;

    complaints = 0;
    complaint[0] = '\0';
    EXPECT_EQ_INT(stat_read(base, 0, complain, &list), 0);
    EXPECT_EQ_INT(list.n, 0);
    EXPECT_STREQ(complaint, why);
    EXPECT_EQ_INT(complaints, *why ? 1 : 0);
    stat_free(&list);
}

static char *json(const struct stat_list *list)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    ASSERT(f);
    stat_print_json(f, list);
    fclose(f);
    return text;
}

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

TEST_CASE(stat, json)
{
    struct stat_list list;
    char *text, want[4096];

    begin(2);
    strcpy(head()->program, "a\"b\\c\n\xc3\xa4\xff\xed\xa0\x80");
    use_slot(0, 7);
    use_slot(1, 8);
    strcpy(head()->slot[0].where, "s\033m");
    head()->slot[0].tx_ring = 4096;
    head()->slot[0].rx_ring = 8192;
    head()->slot[0].pause_last = 1500;
    head()->slot[0].pause_most = 2500;
    head()->slot[1].path_tx = head()->slot[1].path_rx = 99; /* a value from nowhere */
    head()->slot[1].reason = 11;
    head()->slot[1].peer_reason = 60000;
    head()->slot[1].boarded_at = 0;
    head()->slot[1].peer.family = 0;
    head()->closed_switches = 12;
    head()->closed_by_reason[1] = 4;
    head()->closed_by_reason[63] = 5;
    put_whole();
    ASSERT_EQ_INT(stat_read(base, 0, complain, &list), 0);
    text = json(&list);
    snprintf(
        want, sizeof(want),
        "{\"processes\":[{\"pid\":%d,\"program\":\"a\\\"b\\\\c\\u000a\xc3\xa4\\ufffd\\ufffd"
        "\\ufffd\\ufffd\",\"uid\":%u,\"closed\":{\"connections\":0,\"boarded\":0,\"tx\":0,"
        "\"rx\":0,\"rail_tx\":0,\"rail_rx\":0,\"switches\":12,\"reasons\":{\"new\":4,\"63\":5}},"
        "\"connections\":["
        "{\"fd\":7,\"local\":\"127.0.0.1:80\",\"peer\":\"[fd00::7]:40000\","
        "\"role\":\"accepted\",\"path\":\"shm\",\"path_tx\":\"shm\",\"path_rx\":\"shm\","
        "\"reason\":\"none\",\"reason_number\":0,\"peer_reason\":\"none\",\"tx\":100,"
        "\"rx\":200,\"rail_tx\":90,\"rail_rx\":18446744073709551615,"
        "\"boarded_at\":\"2023-11-14T22:13:20.123Z\",\"switches\":2,\"retries\":0,"
        "\"where\":\"s?m\",\"tx_rate\":null,\"rx_rate\":null,\"tx_ring\":4096,"
        "\"tx_ring_used\":null,\"tx_credit\":null,\"rx_ring\":8192,\"rx_ring_used\":null,"
        "\"pause_last_ns\":1500,\"pause_longest_ns\":2500},"
        "{\"fd\":8,\"local\":\"127.0.0.1:80\",\"peer\":\"?\","
        "\"role\":\"accepted\",\"path\":\"tcp\",\"path_tx\":\"tcp\",\"path_rx\":\"tcp\","
        "\"reason\":\"rendezvous-timeout\",\"reason_number\":11,\"peer_reason\":\"unknown\","
        "\"tx\":100,\"rx\":200,\"rail_tx\":90,\"rail_rx\":18446744073709551615,"
        "\"boarded_at\":null,\"switches\":2,\"retries\":0,"
        "\"where\":\"\",\"tx_rate\":null,\"rx_rate\":null,\"tx_ring\":null,"
        "\"tx_ring_used\":null,\"tx_credit\":null,\"rx_ring\":null,\"rx_ring_used\":null,"
        "\"pause_last_ns\":null,\"pause_longest_ns\":null}]}],"
        "\"totals\":{\"connections\":2,\"tcp\":1,\"shm\":1,\"verbs\":0,\"closed\":0,"
        "\"reasons\":[{\"reason_number\":1,\"reason\":\"new\",\"open\":0,\"closed\":4,"
        "\"means\":\"%s\",\"advice\":\"%s\"},"
        "{\"reason_number\":11,\"reason\":\"rendezvous-timeout\",\"open\":1,\"closed\":0,"
        "\"means\":\"%s\",\"advice\":\"%s\"},"
        "{\"reason_number\":63,\"reason\":\"unknown\",\"open\":0,\"closed\":5,"
        "\"means\":\"%s\",\"advice\":\"\"}]}}\n",
        (int)getpid(), (unsigned)geteuid(), cfg_reason_sentence(1), cfg_reason_advice(1),
        cfg_reason_sentence(11), cfg_reason_advice(11), cfg_reason_sentence(63));
    EXPECT_STREQ(text, want);
    free(text);
    stat_free(&list);
    text = json(&list);
    EXPECT_STREQ(text, "{\"processes\":[],\"totals\":{\"connections\":0,\"tcp\":0,\"shm\":0,"
                       "\"verbs\":0,\"closed\":0,\"reasons\":[]}}\n");
    free(text);
    end();
}

TEST_CASE(stat, table)
{
    struct stat_list list;
    char *text = NULL, want[64];
    size_t n;
    FILE *f;

    begin(1);
    strcpy(head()->program, "a\033[31mb");
    use_slot(0, 7);
    head()->slot[0].path_rx = FB_PATH_TCP;
    head()->slot[0].reason = 27;
    put_whole();
    ASSERT_EQ_INT(stat_read(base, 0, complain, &list), 0);
    f = open_memstream(&text, &n);
    ASSERT(f);
    stat_print_table(f, &list, &(struct stat_view){0});
    fclose(f);
    EXPECT(strstr(text, "PID") && strstr(text, "SWITCHES\n"));
    snprintf(want, sizeof(want), "\n%*d  a?[31mb  127.0.0.1:80  [fd00::7]:40000  shm/tcp  no-ack ",
             3, (int)getpid());
    EXPECT(strstr(text, want));
    free(text);
    stat_free(&list);
    end();
}

/* Two ends of one connection, of this one process; the first has sent more than the second has read. */
static void use_both_ends(void)
{
    struct fb_pub *s;

    use_slot(0, 7);
    use_slot(1, 8);
    s = &head()->slot[1];
    s->local = head()->slot[0].peer;
    s->peer = head()->slot[0].local;
    for (int i = 0; i < 2; i++) {
        head()->slot[i].tx_ring = head()->slot[i].rx_ring = 4096;
        head()->slot[i].tx = 10000;
        head()->slot[i].rx = 10000;
    }
    s->rx = 9000;
    s->tx = 99999; /* more than the ring holds: it was read later */
}

TEST_CASE(stat, rings)
{
    struct stat_list list;
    const struct stat_conn *c;

    begin(3);
    use_both_ends();
    use_slot(2, 9); /* nothing is known of its other end */
    head()->slot[2].peer.port = 1;
    put_whole();
    ASSERT_EQ_INT(stat_read(base, 0, complain, &list), 0);
    stat_rings(&list);
    c = list.processes[0].conns;
    EXPECT(c[0].tx_used_known && c[0].rx_used_known && c[1].tx_used_known && c[1].rx_used_known);
    EXPECT_EQ_U64(c[0].tx_used, 1000);
    EXPECT_EQ_U64(c[1].rx_used, 1000);
    EXPECT_EQ_U64(c[0].rx_used, 4096);
    EXPECT_EQ_U64(c[1].tx_used, 4096);
    EXPECT(!c[2].tx_used_known && !c[2].rx_used_known);
    stat_free(&list);
    /* Nobody has a ring where the bytes go over TCP. */
    head()->slot[0].path_tx = FB_PATH_TCP;
    put_whole();
    ASSERT_EQ_INT(stat_read(base, 0, complain, &list), 0);
    stat_rings(&list);
    c = list.processes[0].conns;
    EXPECT(!c[0].tx_used_known && c[0].rx_used_known);
    stat_free(&list);
    end();
}

TEST_CASE(stat, rates)
{
    struct stat_list before, now;
    const struct stat_conn *c;

    begin(4);
    use_slot(0, 7);
    use_slot(1, 8);
    use_slot(3, 10);
    put_whole();
    ASSERT_EQ_INT(stat_read(base, 0, complain, &before), 0);
    head()->slot[0].gen = 6; /* closed */
    head()->slot[1].tx += 1000;
    use_slot(2, 9);          /* new: 100 and 200 bytes */
    head()->slot[3].gen = 9; /* another one in the same place, which has received 50 */
    head()->slot[3].rx = 50;
    put_whole();
    ASSERT_EQ_INT(stat_read(base, 0, complain, &now), 0);
    stat_rates(&before, &now, 500000000);
    ASSERT_EQ_INT(now.processes[0].nconns, 3);
    c = now.processes[0].conns;
    EXPECT_EQ_U64(c[0].tx_rate, 2000);
    EXPECT_EQ_U64(c[0].rx_rate, 0);
    EXPECT_EQ_U64(c[1].tx_rate, 200);
    EXPECT_EQ_U64(c[1].rx_rate, 400);
    EXPECT_EQ_U64(c[2].rx_rate, 100);
    EXPECT(c[0].rated && c[1].rated && c[2].rated);
    stat_free(&now);
    /* A process that was not there before, if only its number was. */
    before.processes[0].start_time++;
    ASSERT_EQ_INT(stat_read(base, 0, complain, &now), 0);
    stat_rates(&before, &now, 500000000);
    EXPECT(!now.processes[0].conns[0].rated);
    stat_free(&before);
    stat_free(&now);
    end();
}

/* How many connections are left. */
static size_t filtered(const struct stat_filter *filter)
{
    struct stat_list list;
    size_t n = 0;

    ASSERT_EQ_INT(stat_read(base, 0, complain, &list), 0);
    stat_filter(&list, filter);
    EXPECT_EQ_INT(list.n <= 1, 1);
    for (size_t i = 0; i < list.n; i++)
        n += list.processes[i].nconns;
    stat_free(&list);
    return n;
}

TEST_CASE(stat, filters)
{
    begin(3);
    strcpy(head()->program, "a-name-of-15-by");
    for (unsigned i = 0; i < 3; i++)
        use_slot(i, 7 + (int)i);
    head()->slot[1].path_tx = FB_PATH_VERBS;
    head()->slot[2].local.port = 81;
    put_whole();
    EXPECT_EQ_INT(filtered(&(struct stat_filter){0}), 3);
    EXPECT_EQ_INT(filtered(&(struct stat_filter){.pid = (uint32_t)getpid()}), 3);
    EXPECT_EQ_INT(filtered(&(struct stat_filter){.pid = (uint32_t)getpid() + 1}), 0);
    EXPECT_EQ_INT(filtered(&(struct stat_filter){.program = "a-name*"}), 3);
    EXPECT_EQ_INT(filtered(&(struct stat_filter){.program = "a-name"}), 0);
    EXPECT_EQ_INT(filtered(&(struct stat_filter){.program = "a-name-of-15-bytes"}), 3);
    EXPECT_EQ_INT(filtered(&(struct stat_filter){.program = "a-name-of-15-xytes"}), 0);
    EXPECT_EQ_INT(filtered(&(struct stat_filter){.port = 80}), 2);
    EXPECT_EQ_INT(filtered(&(struct stat_filter){.port = 40000}), 3);
    EXPECT_EQ_INT(filtered(&(struct stat_filter){.port = 82}), 0);
    EXPECT_EQ_INT(filtered(&(struct stat_filter){.path = "verbs"}), 1);
    EXPECT_EQ_INT(filtered(&(struct stat_filter){.path = "shm"}), 3);
    EXPECT_EQ_INT(filtered(&(struct stat_filter){.path = "tcp"}), 0);
    EXPECT_EQ_INT(filtered(&(struct stat_filter){.path = "shm", .port = 81}), 1);
    end();
}

TEST_CASE(stat, prometheus)
{
    struct stat_list list;
    char *text = NULL, want[256];
    size_t n;
    FILE *f;

    begin(1);
    strcpy(head()->program, "a\"b\n\xff");
    use_slot(0, 7);
    head()->slot[0].rail_rx = 50;
    head()->slot[0].pause_most = 1500000;
    head()->closed_rail_tx = 1000;
    head()->closed_tx = 1001;
    head()->closed_by_reason[5] = 3;
    put_whole();
    ASSERT_EQ_INT(stat_read(base, 0, complain, &list), 0);
    f = open_memstream(&text, &n);
    ASSERT(f);
    stat_print_prometheus(f, &list);
    fclose(f);
    static const struct {
        const char *name, *labels, *value;
    } lines[] = {
        {"railsock_connections", ",path=\"shm\"", "1"},
        {"railsock_connections", ",path=\"tcp\"", "0"},
        {"railsock_bytes_total", ",direction=\"tx\",track=\"tcp\"", "11"},
        {"railsock_bytes_total", ",direction=\"tx\",track=\"rail\"", "1090"},
        {"railsock_bytes_total", ",direction=\"rx\",track=\"tcp\"", "150"},
        {"railsock_never_boarded_total", ",reason=\"no-peer-library\"", "3"},
        {"railsock_switches_total", "", "2"},
        {"railsock_pause_seconds", "", "0.001500000"},
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        snprintf(want, sizeof(want), "\n%s{pid=\"%d\",program=\"a\\\"b??\"%s} %s\n", lines[i].name,
                 (int)getpid(), lines[i].labels, lines[i].value);
        if (!EXPECT(strstr(text, want)))
            fprintf(stderr, "%s", want);
    }
    free(text);
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

TEST_CASE(stat, files_of_the_dead_are_removed)
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
    put(dead, 3);
    put(zombie, sizeof(struct fb_pub_file));
    nothing("");
    EXPECT(access(dead, F_OK) < 0);
    EXPECT(access(zombie, F_OK) < 0);
    waitpid(waits, NULL, 0);
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

TEST_CASE(stat, no_folder_at_all)
{
    struct stat_list list;

    EXPECT_EQ_INT(stat_read("/nonexistent", 0, complain, &list), -ENOENT);
    stat_free(&list);
}
