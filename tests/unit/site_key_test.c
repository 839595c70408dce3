/*
 * site_key_test.c - the file of a site key: what it may hold and whose it may be; which streams
 * have it; and that nothing boards without one that is asked for.
 */
#include "tests/unit/rules_part.h"

#include "config/reason.h"
#include "config/rules.h"
#include "config/site_key.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define DIGITS "00112233445566778899aAbBcCdDeEfF"
#define NOBODY 65534

static const uint8_t digits[16] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
                                   0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};

/* What is said of a file that holds text. */
static int of_text(const char *text)
{
    char *name = temporary();
    uint8_t key[16];
    int err;

    fill(name, text, 1);
    err = cfg_site_key_read(name, key);
    if (!err)
        EXPECT_MEMEQ(key, digits, 16);
    unlink(name);
    return err;
}

TEST_CASE(site_key, is_32_digits)
{
    EXPECT_EQ_INT(of_text(DIGITS), 0);
    EXPECT_EQ_INT(of_text(DIGITS "\n"), 0);
    EXPECT_EQ_INT(of_text(DIGITS "\r\n"), 0);
    EXPECT_EQ_INT(of_text(""), -EBADMSG);
    EXPECT_EQ_INT(of_text("\n"), -EBADMSG);
    EXPECT_EQ_INT(of_text("0011223344556677889900112233445"), -EBADMSG);
    EXPECT_EQ_INT(of_text(DIGITS "0"), -EBADMSG);
    EXPECT_EQ_INT(of_text(DIGITS "\n\n"), -EBADMSG);
    EXPECT_EQ_INT(of_text(DIGITS "\r"), -EBADMSG);
    EXPECT_EQ_INT(of_text(DIGITS "\n" DIGITS "\n"), -EBADMSG);
    EXPECT_EQ_INT(of_text(" 0112233445566778899aabbccddeeff"), -EBADMSG);
    EXPECT_EQ_INT(of_text("0x112233445566778899aabbccddeeff"), -EBADMSG);
    EXPECT_EQ_INT(of_text("g0112233445566778899aabbccddeeff"), -EBADMSG);
    EXPECT_EQ_INT(of_text("00112233445566778899aabbccddee:f"), -EBADMSG);
}

TEST_CASE(site_key, is_a_secret)
{
    static const struct {
        int mode, err;
    } modes[] = {{0600, 0},       {0400, 0},       {0640, 0},       {0644, -EMLINK},
                 {0604, -EMLINK}, {0601, -EMLINK}, {0660, -EMLINK}, {0602, -EMLINK}};
    char *name = temporary();
    uint8_t key[16];

    fill(name, DIGITS, 1);
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        ASSERT(chmod(name, (mode_t)modes[i].mode) == 0);
        EXPECT_EQ_INT(cfg_site_key_read(name, key), modes[i].err);
    }
    unlink(name);
    EXPECT_EQ_INT(cfg_site_key_read(name, key), -ENOENT);
    EXPECT_EQ_INT(cfg_site_key_read("/tmp", key), -EINVAL);
    EXPECT_EQ_INT(cfg_site_key_read("/dev/null", key), -EINVAL);
    ASSERT(mkfifo(name, 0600) == 0); /* and nobody is waited for */
    EXPECT_EQ_INT(cfg_site_key_read(name, key), -EINVAL);
    unlink(name);
}

/* What fn says in a child that is that user's. */
static int as_user(uid_t uid, int (*fn)(const char *), const char *name)
{
    pid_t pid = fork();
    int status;

    ASSERT(pid >= 0);
    if (pid == 0)
        _exit(uid != geteuid() && (setgid(uid) || setuid(uid)) ? 99 : fn(name));
    ASSERT(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int errno_of(const char *name)
{
    uint8_t key[16];

    return -cfg_site_key_read(name, key);
}

TEST_CASE(site_key, belongs_to_root_or_its_user)
{
    char *name = temporary();

    if (geteuid() != 0) {
        unlink(name);
        SKIP("only root can give files away");
    }
    fill(name, DIGITS, 1);
    ASSERT(chmod(name, 0640) == 0);
    EXPECT_EQ_INT(as_user(NOBODY, errno_of, name), EACCES);
    ASSERT(chown(name, 0, NOBODY) == 0); /* root's, for a group */
    EXPECT_EQ_INT(as_user(NOBODY, errno_of, name), 0);
    ASSERT(chown(name, 1, NOBODY) == 0);
    EXPECT_EQ_INT(as_user(NOBODY, errno_of, name), EPERM);
    EXPECT_EQ_INT(errno_of(name), EPERM); /* not root's own, either */
    ASSERT(chown(name, NOBODY, NOBODY) == 0);
    EXPECT_EQ_INT(as_user(NOBODY, errno_of, name), 0);
    unlink(name);
}

/* ---- which streams have it */

static char folder[] = "/tmp/site_key_test.XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[2][PATH_MAX];
    static unsigned which;

    which = !which;
    snprintf(path[which], sizeof(path[which]), "%s/%s", folder, name);
    return path[which];
}

static void put(const char *name, const char *text)
{
    fill(in_folder(name), text, 1);
    ASSERT(chmod(in_folder(name), 0600) == 0);
}

static void begin(void)
{
    strcpy(folder + sizeof(folder) - 7, "XXXXXX");
    ASSERT(mkdtemp(folder));
    put("a.key", DIGITS);
    put("b.key", "ffffffffffffffffffffffffffffffff\n");
    clear();
}

static void end(void)
{
    static const char *const names[] = {"a.key", "b.key", "c.key", "conf"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unlink(in_folder(names[i]));
    EXPECT_EQ_INT(rmdir(folder), 0);
    clear();
}

static struct cfg_rules rules;

static void read_conf(const char *text)
{
    put("conf", text);
    ASSERT(cfg_rules_begin(&rules));
    cfg_rules_read(&rules, in_folder("conf"), false, false);
    cfg_rules_settle(&rules);
}

/* Of a client at that port. */
static const struct cfg_stream *at_port(uint16_t port)
{
    static const struct cfg_who who = {"x", "x", 1, NULL, NULL};
    const struct cfg_node *n =
        cfg_rules_find(&rules, CFG_CLIENT, &who, AF_INET, (uint8_t[4]){0}, port);

    return n ? &n->stream : &rules.base;
}

TEST_CASE(site_key, of_rules_and_defaults)
{
    begin();
    read_conf("any to *:1 key b.key\nany to *:2 key none\nany to *:3 spin 7\ndefaults key a.key\n");
    EXPECT_EQ_INT(rules.n_errors, 0);
    ASSERT(at_port(1)->site_key && at_port(3)->site_key && at_port(4)->site_key);
    EXPECT_EQ_INT(at_port(1)->site_key[0], 0xff);
    EXPECT(!at_port(2)->site_key && at_port(2)->reason == 0);
    EXPECT_MEMEQ(at_port(3)->site_key, digits, 16);
    EXPECT_MEMEQ(at_port(4)->site_key, digits, 16);
    cfg_rules_end(&rules);
    setenv("RAILSOCK_KEY", in_folder("b.key"), 1); /* has the say over all of them */
    cfg_init();
    unsetenv("RAILSOCK_KEY");
    read_conf("any to *:1 key a.key\n");
    ASSERT(at_port(1)->site_key && at_port(2)->site_key);
    EXPECT_EQ_INT(at_port(1)->site_key[0], 0xff);
    EXPECT_EQ_INT(at_port(2)->site_key[0], 0xff);
    cfg_rules_end(&rules);
    setenv("RAILSOCK_KEY", "none", 1);
    cfg_init();
    read_conf("any to *:1 key a.key\n");
    EXPECT(!at_port(1)->site_key && at_port(1)->reason == 0);
    cfg_rules_end(&rules);
    end();
}

/* Whether the kernel leaves what lies there out of a core file. */
static bool not_dumped(const void *p)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[400];
    bool here = false, left_out = false;
    uintptr_t from, to;

    ASSERT(f);
    while (fgets(line, sizeof(line), f)) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
            here = (uintptr_t)p >= from && (uintptr_t)p < to;
        else if (here && strncmp(line, "VmFlags:", 8) == 0)
            left_out = strstr(line, " dd") != NULL;
    }
    fclose(f);
    return left_out;
}

TEST_CASE(site_key, is_in_no_core_file)
{
    begin();
    read_conf("any to *:1 spin 7\n");
    EXPECT(!not_dumped(at_port(1)));
    cfg_rules_end(&rules);
    read_conf("any to *:1 key a.key\n");
    ASSERT(at_port(1)->site_key);
    EXPECT(not_dumped(at_port(1)->site_key));
    cfg_rules_end(&rules);
    end();
}

/* One error, at that place of the rules. */
static void broken(const char *text, unsigned column, const char *said)
{
    read_conf(text);
    EXPECT_EQ_INT(rules.n_errors, 1);
    ASSERT(rules.errors);
    EXPECT(strstr(rules.errors->text, said));
    EXPECT_EQ_INT(rules.errors->at.line, 1);
    EXPECT_EQ_INT(rules.errors->at.column, column);
    cfg_rules_end(&rules);
}

TEST_CASE(site_key, errors_have_a_place)
{
    begin();
    broken("any to *:1 key no-such.key\n", 16, "/no-such.key: it is not there");
    broken("defaults key .\n", 14, "it is not a regular file");
    broken("defaults key \"\"\n", 14, "expected a file with 32 hexadecimal digits, or none, not");
    put("c.key", "secret");
    broken("defaults idle 3 key c.key\n", 21, "/c.key: it is not 32 hexadecimal digits");
    put("c.key", DIGITS);
    ASSERT(chmod(in_folder("c.key"), 0644) == 0);
    broken("defaults key c.key\n", 14, "/c.key: others may read or change it");
    end();
}

/* What a process has whose key is named by its environment: after the words that it has
 * said, or none. */
static int reason_of_own(const char *name)
{
    const struct cfg_stream *s;

    setenv("RAILSOCK_KEY", name, 1);
    setenv("RAILSOCK_CONFIG", "/dev/null", 1);
    cfg_init();
    cfg_rules_load();
    s = cfg_rules_stream(CFG_CLIENT, AF_INET, (uint8_t[4]){0}, 1);
    return s->reason ? s->reason : s->site_key ? 0 : 98;
}

TEST_CASE(site_key, of_the_environment_alone)
{
    char name[2000];

    begin();
    EXPECT_EQ_INT(as_user(geteuid(), reason_of_own, in_folder("a.key")), 0);
    EXPECT_EQ_INT(as_user(geteuid(), reason_of_own, in_folder("no-such.key")), RSN_CONFIG);
    memset(name, 'x', sizeof(name));
    name[0] = '/';
    name[sizeof(name) - 1] = '\0';
    EXPECT_EQ_INT(as_user(geteuid(), reason_of_own, name), RSN_CONFIG);
    if (geteuid() == 0) {
        ASSERT(chmod(folder, 0755) == 0);
        EXPECT_EQ_INT(as_user(NOBODY, reason_of_own, in_folder("a.key")), RSN_CONFIG);
    }
    end();
}

/* Rules are for all users, keys are not. */
static int reason_of_rules(const char *conf)
{
    setenv("RAILSOCK_CONFIG", conf, 1);
    cfg_init();
    cfg_rules_load();
    return cfg_rules_stream(CFG_CLIENT, AF_INET, (uint8_t[4]){0}, 1)->reason;
}

TEST_CASE(site_key, that_others_may_not_read)
{
    char user[40];

    begin();
    if (geteuid() != 0) {
        end();
        SKIP("only root is kept from nothing");
    }
    ASSERT(chmod(folder, 0755) == 0);
    put("conf", "any to *:1 key a.key\n");
    ASSERT(chmod(in_folder("conf"), 0644) == 0);
    EXPECT_EQ_INT(as_user(NOBODY, reason_of_rules, in_folder("conf")), RSN_NO_KEY);
    put("conf", "any to *:2 key a.key\n");
    ASSERT(chmod(in_folder("conf"), 0644) == 0);
    EXPECT_EQ_INT(as_user(NOBODY, reason_of_rules, in_folder("conf")), 0);
    /* A user's own: what root thinks of it does not matter to root's programs. */
    ASSERT(chown(in_folder("a.key"), NOBODY, NOBODY) == 0);
    snprintf(user, sizeof(user), "any user %d key a.key\n", NOBODY);
    read_conf(user);
    EXPECT_EQ_INT(rules.n_errors, 0);
    EXPECT(!at_port(1)->site_key && at_port(1)->reason == 0);
    cfg_rules_end(&rules);
    put("conf", user);
    ASSERT(chmod(in_folder("conf"), 0644) == 0);
    EXPECT_EQ_INT(as_user(NOBODY, reason_of_rules, in_folder("conf")), 0);
    end();
}
