/*
 * shm_processes_test.c - the shm rendezvous with other processes, of this user and another one,
 * that live, hang, have died or fork.
 */
#include "tests/shim/shim.h"
#include "tests/unit/forked.h"
#include "tests/unit/shm_rdv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "config/reason.h"
#include "rsock/loop.h"
#include "rsock/shm_wire.h"
#include "rsock/sys.h"

/* ---- other processes */

/* What the progress thread had before it has been done: jobs come before timers. */
static void two_rounds(void)
{
    for (int i = 0; i < 2; i++)
        on_thread(do_destroy, &(struct job){.rail = NULL});
}

struct child {
    pid_t pid;
    int ready; /* readable when it listens */
};

/* A child that answers requests for this connection: with a reason, or with a rail that sends
 * back what it receives. It listens once it has read a byte from gate, if that is not -1; a
 * poor one listens at once, and has no descriptor left for who asks until it has read that. */
static bool poor;

static struct child gated_child(const struct tcp *c, int reason, uid_t uid, int gate)
{
    struct rlimit limit;
    struct child ch;
    char x;
    int p[2];

    ASSERT_EQ_INT(pipe2(p, O_CLOEXEC), 0);
    ch.ready = p[0];
    ch.pid = own_fork();
    ASSERT(ch.pid >= 0);
    if (ch.pid == 0) {
        struct job j = {.t = &c->t};

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (uid && (setresgid(uid, uid, uid) || setresuid(uid, uid, uid)))
            _exit(77);
        begin();
        /* A connection whose accepting end belongs to this user. */
        if (uid && accept4(c->listener, NULL, NULL, SOCK_CLOEXEC) < 0)
            _exit(5);
        find_reason = reason;
        if (gate >= 0 && !poor && read(gate, &x, 1) != 1)
            _exit(6);
        on_thread(do_listen, &j);
        getrlimit(RLIMIT_NOFILE, &limit);
        if (poor && setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, limit.rlim_max}))
            _exit(7);
        if (write(p[1], "x", 1) != 1)
            _exit(3);
        if (poor) { /* until it has been asked, and could not accept */
            if (read(gate, &x, 1) != 1)
                _exit(8);
            two_rounds();
        }
        setrlimit(RLIMIT_NOFILE, &limit);
        if (!soon(&asked.heard) || !asked.rail)
            _exit(3);
        receive_all(asked.rail, "hello");
        send_all(asked.rail, "HELLO");
        pause();
        _exit(4);
    }
    close(p[1]);
    return ch;
}

static struct child child_new(const struct tcp *c, int reason, uid_t uid)
{
    return gated_child(c, reason, uid, -1);
}

static bool child_ready(struct child *c)
{
    char x;

    return read(c->ready, &x, 1) == 1;
}

static int child_end(struct child *c)
{
    int status = -1;

    close(c->ready);
    kill(c->pid, SIGKILL);
    waitpid(c->pid, &status, 0);
    return status;
}

/* Processes are forked before this one has threads: the thread sanitizer wants it so. */
static void with_children(int n, const int *reasons, int expected)
{
    struct child ch[3];
    struct tcp c;

    rsk_loop_stop();
    ASSERT(tcp_new(&c, AF_INET));
    for (int i = 0; i < n; i++)
        ch[i] = child_new(&c, reasons[i], 0);
    for (int i = 0; i < n; i++)
        ASSERT(child_ready(&ch[i]));
    begin();
    if (EXPECT_EQ_INT(try_connect(&c.t, NULL), expected) && !expected) {
        EXPECT_EQ_INT(asker.rail->peer_pid, ch[n - 1].pid);
        send_all(asker.rail, "hello");
        receive_all(asker.rail, "HELLO");
        /* The peer dies: what it wrote is there, nothing else happens. */
        child_end(&ch[n - 1]);
        EXPECT_EQ_INT(asker.rail->failed, 0);
        n--;
    }
    destroy(&asker);
    for (int i = 0; i < n; i++)
        child_end(&ch[i]);
    tcp_free(&c);
}

TEST_CASE(shm_rdv_processes, another_process)
{
    with_children(1, (int[]){0}, 0);
}

TEST_CASE(shm_rdv_processes, the_right_one_of_several)
{
    with_children(3, (int[]){RSN_NOT_MINE, RSN_NOT_MINE, 0}, 0);
}

TEST_CASE(shm_rdv_processes, nobody_owns_it)
{
    with_children(2, (int[]){RSN_NOT_MINE, RSN_NOT_MINE}, RSN_NOT_MINE);
}

/* Who answers for a port is remembered for a second, in which another process may come. */
TEST_CASE(shm_rdv_processes, one_that_has_come_since)
{
    struct child other, right;
    struct tcp c;
    int gate[2];

    rsk_loop_stop();
    ASSERT(tcp_new(&c, AF_INET));
    ASSERT_EQ_INT(pipe2(gate, O_CLOEXEC), 0);
    other = child_new(&c, RSN_NOT_MINE, 0);
    right = gated_child(&c, 0, 0, gate[0]);
    ASSERT(child_ready(&other));
    begin();
    EXPECT_EQ_INT(try_connect(&c.t, NULL), RSN_NOT_MINE);
    ASSERT(write(gate[1], "x", 1) == 1);
    ASSERT(child_ready(&right));
    if (EXPECT_EQ_INT(try_connect(&c.t, NULL), 0))
        EXPECT_EQ_INT(asker.rail->peer_pid, right.pid);
    destroy(&asker);
    child_end(&right);
    child_end(&other);
    close(gate[0]);
    close(gate[1]);
    tcp_free(&c);
}

/* As a process of its own for each connection does. Both would take it. */
TEST_CASE(shm_rdv_processes, the_one_that_says_so_is_asked_first)
{
    struct child others[2], right;
    struct tcp c;

    rsk_loop_stop();
    ASSERT(tcp_new(&c, AF_INET));
    others[0] = child_new(&c, 0, 0);
    known_by = c.t.src_port;
    right = child_new(&c, 0, 0);
    known_by = 0;
    others[1] = child_new(&c, 0, 0);
    ASSERT(child_ready(&others[0]) && child_ready(&right) && child_ready(&others[1]));
    begin();
    if (EXPECT_EQ_INT(try_connect(&c.t, NULL), 0))
        EXPECT_EQ_INT(asker.rail->peer_pid, right.pid);
    destroy(&asker);
    child_end(&right);
    child_end(&others[0]);
    child_end(&others[1]);
    tcp_free(&c);
}

/* It is asked first, as it says that it has the connection. */
TEST_CASE(shm_rdv_processes, one_that_is_stopped_is_passed_over)
{
    struct child other, right;
    struct tcp c;
    int stopped;

    rsk_loop_stop();
    ASSERT(tcp_new(&c, AF_INET));
    known_by = c.t.src_port;
    other = child_new(&c, 0, 0);
    known_by = 0;
    right = child_new(&c, 0, 0);
    ASSERT(child_ready(&other) && child_ready(&right));
    kill(other.pid, SIGSTOP);
    ASSERT(waitpid(other.pid, &stopped, WUNTRACED) == other.pid && WIFSTOPPED(stopped));
    begin();
    if (EXPECT_EQ_INT(try_connect(&c.t, NULL), 0))
        EXPECT_EQ_INT(asker.rail->peer_pid, right.pid);
    destroy(&asker);
    child_end(&right);
    child_end(&other);
    tcp_free(&c);
}

TEST_CASE(shm_rdv_processes, one_without_descriptors_answers_when_it_has_some)
{
    struct child ch;
    struct tcp c;
    struct job j;
    int gate[2];

    rsk_loop_stop();
    ASSERT(tcp_new(&c, AF_INET));
    ASSERT_EQ_INT(pipe2(gate, O_CLOEXEC), 0);
    poor = true;
    ch = gated_child(&c, 0, 0, gate[0]);
    poor = false;
    ASSERT(child_ready(&ch));
    begin();
    j = (struct job){.t = &c.t};
    ASSERT_EQ_INT(on_thread(do_connect, &j), 0);
    two_rounds();
    ASSERT(write(gate[1], "x", 1) == 1);
    ASSERT(soon(&asker.heard));
    EXPECT_EQ_INT(asker.reason, 0);
    destroy(&asker);
    child_end(&ch);
    close(gate[0]);
    close(gate[1]);
    tcp_free(&c);
}

TEST_CASE(shm_rdv_processes, one_that_died_is_nobody)
{
    struct child ch;
    struct tcp c;

    rsk_loop_stop();
    ASSERT(tcp_new(&c, AF_INET));
    ch = child_new(&c, 0, 0);
    ASSERT(child_ready(&ch));
    child_end(&ch);
    begin();
    EXPECT_EQ_INT(try_connect(&c.t, NULL), RSN_NO_PEER_LIB);
    tcp_free(&c);
}

TEST_CASE(shm_rdv_processes, one_that_hangs_costs_the_deadline)
{
    struct child ch;
    struct tcp c;
    uint64_t t0;
    int stopped;

    rsk_loop_stop();
    ASSERT(tcp_new(&c, AF_INET));
    ch = child_new(&c, 0, 0);
    ASSERT(child_ready(&ch));
    kill(ch.pid, SIGSTOP);
    ASSERT(waitpid(ch.pid, &stopped, WUNTRACED) == ch.pid && WIFSTOPPED(stopped));
    begin();
    t0 = sys_now();
    EXPECT_EQ_INT(try_connect(&c.t, NULL), RSN_RDV_TIMEOUT);
    EXPECT(sys_now() - t0 < 30000000000u);
    child_end(&ch);
    tcp_free(&c);
}

TEST_CASE(shm_rdv_processes, across_users)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}},
                       local = {0};
    socklen_t len = sizeof local;
    struct child ch;
    struct tcp c;
    int fd;

    if (geteuid() != 0)
        SKIP("only root can be another user");
    rsk_loop_stop();
    ASSERT(tcp_new(&c, AF_INET));
    a.sin_port = htons(c.t.dst_port);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ch = child_new(&c, 0, 33);
    ASSERT_EQ_INT(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    getsockname(fd, (struct sockaddr *)&local, &len);
    ASSERT(child_ready(&ch));
    begin();
    /* Its rendezvous has the other user's name, and this connection's end is ours. */
    EXPECT_EQ_INT(try_connect(&c.t, NULL), RSN_NO_PEER_LIB);
    c.t.src_port = ntohs(local.sin_port);
    if (EXPECT_EQ_INT(try_connect(&c.t, NULL), 0)) {
        EXPECT_EQ_INT(asker.rail->peer_pid, ch.pid);
        send_all(asker.rail, "hello");
        receive_all(asker.rail, "HELLO");
    }
    destroy(&asker);
    child_end(&ch);
    close(fd);
    tcp_free(&c);
}

/* What a process with these users thinks of one with those: 1 trusted, 2 alike. */
static int judged(const uid_t of[3], bool elsewhere, const uid_t by[3])
{
    int gate[2], status = -1;
    struct shm_cred cred;
    pid_t other, judge;
    char x;

    if (pipe(gate))
        return -1;
    if (elsewhere && unshare(CLONE_NEWPID))
        return -1;
    other = fork();
    if (other == 0) {
        if (setresuid(of[0], of[1], of[2]) || write(gate[1], "x", 1) != 1)
            _exit(1);
        pause();
    }
    if (elsewhere)
        setns(open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC),
              CLONE_NEWPID); /* for the children to come */
    if (read(gate[0], &x, 1) != 1)
        return -1;
    judge = fork();
    if (judge == 0) {
        if (setresuid(by[0], by[1], by[2]))
            _exit(4);
        cred = (struct shm_cred){.uid = of[1], .pid = (uint32_t)other};
        shm_peer_judge(&cred);
        _exit(cred.trusted + 2 * cred.alike);
    }
    waitpid(judge, &status, 0);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    close(gate[0]);
    close(gate[1]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE(shm_rdv_processes, whom_it_trusts)
{
    static const uid_t root[3] = {0}, user[3] = {33, 33, 33}, for_now[3] = {0, 33, 0},
                       not [3] = {34, 34, 34};

    if (geteuid() != 0)
        SKIP("only root can be another user");
    rsk_loop_stop();
    EXPECT_EQ_INT(judged(user, false, user), 3);
    EXPECT_EQ_INT(judged(root, false, root), 3);
    EXPECT_EQ_INT(judged(root, false, user), 1);
    EXPECT_EQ_INT(judged(user, false, root), 0);
    EXPECT_EQ_INT(judged(not, false, user), 0);
    /* It may be root again, and does not trust who is that user alone. */
    EXPECT_EQ_INT(judged(for_now, false, user), 1);
    EXPECT_EQ_INT(judged(user, false, for_now), 0);
    EXPECT_EQ_INT(judged(user, true, user), 0);
    EXPECT_EQ_INT(judged(root, true, root), 0);
}

/* What the progress thread may not do: this call with that first argument. */
static struct refused {
    uint32_t call, first;
} refuses;

static void do_refuse(void *arg)
{
    struct job *j = arg;
    struct sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refuses.call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refuses.first, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof lines / sizeof lines[0], lines};

    j->result = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
                prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
    sem_post(&j->done);
}

/* The reason of who asks then, a process of its own; 77: there are no filters here. */
static int reason_without(struct refused what)
{
    int status = -1;
    pid_t pid = own_fork();

    ASSERT(pid >= 0);
    if (pid == 0) {
        struct tcp c;
        struct job j = {.t = &c.t};

        begin();
        ASSERT(tcp_new(&c, AF_INET));
        ASSERT_EQ_INT(on_thread(do_listen, &j), 0);
        refuses = what;
        _exit(on_thread(do_refuse, &j) ? 77 : try_connect(&c.t, NULL));
    }
    ASSERT_EQ_INT(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Not each failure is a want of descriptors. */
TEST_CASE(shm_rdv_processes, what_it_may_not_make)
{
    int reason;

    rsk_loop_stop();
    reason = reason_without((struct refused){SYS_socket, AF_UNIX});
    if (reason == 77)
        SKIP("no seccomp filters");
    EXPECT_EQ_INT(reason, RSN_NO_PEER_LIB);
    EXPECT_EQ_INT(reason_without((struct refused){SYS_eventfd2, 0}), RSN_NO_MEMORY);
}

TEST_CASE(shm_rdv_processes, a_forked_child_keeps_nothing)
{
    int status = -1;
    struct tcp c;
    struct job j;
    pid_t pid;

    begin();
    ASSERT(tcp_new(&c, AF_INET));
    j.t = &c.t;
    ASSERT_EQ_INT(on_thread(do_listen, &j), 0);
    ASSERT_EQ_INT(try_connect(&c.t, NULL), 0);
    ASSERT(soon(&asked.heard));
    pid = own_fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        EXPECT_EQ_INT(count_maps(), 0);
        EXPECT_EQ_INT(hidden_fds(), 0);
        _exit(0);
    }
    ASSERT_EQ_INT(waitpid(pid, &status, 0), pid);
    EXPECT_EQ_INT(status, 0);
    talk(asker.rail, asked.rail);
    destroy(&asker);
    destroy(&asked);
    tcp_free(&c);
    rsk_loop_stop();
}
