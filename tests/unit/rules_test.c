/*
 * rules_test.c - the rules' normal form and their errors against what is kept in tests/config,
 * which rule decides for whom, and which level has the say.
 */
#include "tests/unit/rules_part.h"

#include "config/log.h"
#include "config/parse.h"
#include "config/print.h"
#include "config/reason.h"
#include "config/script.h"

#include <arpa/inet.h>

static void read_rules(struct cfg_rules *r, const char *path)
{
    ASSERT(cfg_rules_begin(r));
    cfg_rules_read(r, path, false, false);
    cfg_rules_settle(r);
}

/* What fn prints, to be freed. */
static char *printed(void (*fn)(FILE *, const struct cfg_rules *), const struct cfg_rules *r)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    ASSERT(f);
    fn(f, r);
    fclose(f);
    return text;
}

/* The normal form is what is kept, and reads as itself. */
static void golden(const char *name)
{
    char path[100], want[100], *text, *kept;
    struct cfg_rules r;

    clear();
    snprintf(path, sizeof(path), FOLDER "%s.conf", name);
    snprintf(want, sizeof(want), FOLDER "%s.want", name);
    kept = file_text(want);
    for (int i = 0; i < 2; i++) {
        read_rules(&r, i ? want : path);
        EXPECT_EQ_INT(r.n_errors, 0);
        text = printed(cfg_print, &r);
        EXPECT_STREQ(text, kept);
        free(text);
        cfg_rules_end(&r);
    }
    free(kept);
}

TEST_CASE(rules, libsdp)
{
    golden("libsdp");
}

TEST_CASE(rules, native)
{
    golden("native");
}

TEST_CASE(rules, folders)
{
    golden("folder");
}

/* Of two files the first has the say over defaults, in one file the last. */
TEST_CASE(rules, two_files_read_as_one)
{
    static const char wanted[] =
        "defaults mode tcp reach 10.0.0.0/8 at 11.0.0.0/8\ndefaults mode auto\nlog min-level info\n"
        "client to *:1 spin 5\ndefaults idle 9\nlog destination stderr\nserver\n";
    struct cfg_rules both, one;
    char system[40], *users, *text;

    clear();
    strcpy(system, temporary());
    fill(system,
         "defaults mode rail idle 9 reach 10.0.0.0/8 at 12.0.0.0/8\ndefaults mode rail\n"
         "log min-level 9 destination stderr\nserver\n",
         1);
    users = temporary();
    fill(users,
         "defaults mode tcp reach 10.0.0.0/8 at 11.0.0.0/8\ndefaults mode auto\n"
         "log min-level 7\nclient to *:1 spin 5\n",
         1);
    ASSERT(cfg_rules_begin(&both));
    cfg_rules_read(&both, system, false, false);
    cfg_rules_read(&both, users, false, false);
    cfg_rules_settle(&both);
    text = printed(cfg_print, &both);
    EXPECT_STREQ(text, wanted);
    fill(users, text, 1);
    free(text);
    read_rules(&one, users);
    text = printed(cfg_print, &one);
    EXPECT_STREQ(text, wanted);
    free(text);
    EXPECT_EQ_INT(one.base.mode, both.base.mode);
    EXPECT_EQ_INT(one.base.idle_ns, both.base.idle_ns);
    EXPECT_EQ_INT(one.log_level, both.log_level);
    cfg_rules_end(&one);
    cfg_rules_end(&both);
    unlink(users);
    unlink(system);
}

TEST_CASE(rules, scripts_of_env)
{
    static const struct {
        const char *text;
        enum cfg_script kind;
        const char *name;
    } t[] = {
        {"#!/usr/bin/env python3\nimport os\n", CFG_SCRIPT_ENV, "python3"},
        {"#! \t/bin/env   /opt/x/ruby \t\n", CFG_SCRIPT_ENV, "/opt/x/ruby"},
        {"#!/usr/bin/env -S python3 -u -X\n", CFG_SCRIPT_ENV, "python3"},
        {"#!/usr/bin/env -S python3 -X dev\n", CFG_SCRIPT_STRANGE, ""},
        {"#!/usr/bin/env -S A=b python3\n", CFG_SCRIPT_STRANGE, ""},
        {"#!/usr/bin/env -i python3\n", CFG_SCRIPT_STRANGE, ""},
        {"#!/usr/bin/env -S \"python3\"\n", CFG_SCRIPT_STRANGE, ""},
        {"#!/usr/bin/env\n", CFG_SCRIPT_STRANGE, ""},
        {"#!/usr/bin/python3\n", CFG_SCRIPT_NONE, ""},
        {"#!/usr/bin/environ python3\n", CFG_SCRIPT_NONE, ""},
        {"#!/usr/bin/env python3", CFG_SCRIPT_NONE, ""}, /* no line */
        {"/usr/bin/env python3\n", CFG_SCRIPT_NONE, ""},
        {"#!\n", CFG_SCRIPT_NONE, ""},
        {"", CFG_SCRIPT_NONE, ""},
    };
    char name[CFG_SCRIPT_LINE], most[CFG_SCRIPT_LINE + 8];

    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        name[0] = '\0';
        EXPECT_EQ_INT(cfg_script_of(t[i].text, strlen(t[i].text), name), t[i].kind);
        if (t[i].kind == CFG_SCRIPT_ENV)
            EXPECT_STREQ(name, t[i].name);
    }
    memset(most, 'x', sizeof(most));
    memcpy(most, "#!env ", 6);
    EXPECT_EQ_INT(cfg_script_of(most, sizeof(most), name), CFG_SCRIPT_NONE);
    most[CFG_SCRIPT_LINE - 1] = '\n';
    EXPECT_EQ_INT(cfg_script_of(most, sizeof(most), name), CFG_SCRIPT_ENV);
    EXPECT_EQ_INT(strlen(name), CFG_SCRIPT_LINE - 7);
}

static void golden_errors(const char *name)
{
    char path[100], want[100], *text, *kept;
    struct cfg_rules r;

    clear();
    snprintf(path, sizeof(path), FOLDER "%s.conf", name);
    snprintf(want, sizeof(want), FOLDER "%s.want", name);
    kept = file_text(want);
    read_rules(&r, path);
    text = printed(cfg_print_errors, &r);
    EXPECT_STREQ(text, kept);
    free(text);
    free(kept);
    cfg_rules_end(&r);
}

TEST_CASE(rules, errors)
{
    golden_errors("broken");
}

TEST_CASE(rules, errors_of_a_line_in_the_order_of_their_places)
{
    golden_errors("order");
}

TEST_CASE(rules, errors_of_what_is_no_text)
{
    golden_errors("binary");
    golden_errors("escaped");
    golden_errors("mark");
}

/* The line of the rule in match.conf that decides; 0: none. */
static unsigned decides(const struct cfg_rules *r, unsigned role, const char *program, uint32_t uid,
                        const char *addr, uint16_t port)
{
    const char *slash = strrchr(program, '/');
    struct cfg_who who = {slash ? slash + 1 : program, program, uid, NULL, NULL};
    struct cfg_prefix a;
    const struct cfg_node *n;

    ASSERT(cfg_word_prefix(addr, false, &a));
    n = cfg_rules_find(r, role, &who, a.family, a.addr, port);
    return n ? n->at.line : 0;
}

TEST_CASE(rules, the_first_that_matches_decides)
{
    static const struct {
        unsigned line, role;
        const char *program;
        uint32_t uid;
        const char *addr;
        uint16_t port;
    } t[] = {
        {1, CFG_SERVER, "/usr/sbin/sshd", 0, "10.1.2.3", 80},
        {0, CFG_CLIENT, "/usr/sbin/sshd", 0, "10.1.2.3", 80}, /* client rules are others */
        {2, CFG_SERVER, "httpd", 0, "10.1.2.3", 80},
        {2, CFG_SERVER, "httpd", 0, "10.1.255.255", 90},
        {0, CFG_SERVER, "httpd", 0, "10.2.0.0", 90},
        {0, CFG_SERVER, "httpd", 0, "10.1.2.3", 79},
        {0, CFG_SERVER, "httpd", 0, "10.1.2.3", 91},
        {3, CFG_SERVER, "httpd", 0, "fdff::1", 80},
        {0, CFG_SERVER, "httpd", 0, "fe00::1", 80},
        {2, CFG_SERVER, "httpd", 0, "::ffff:10.1.2.3", 80}, /* a mapped address is what it maps */
        {4, CFG_CLIENT, "/opt/redis-cli", 0, "10.200.0.1", 6379},
        {0, CFG_CLIENT, "xredis-cli", 0, "10.200.0.1", 6379},
        {5, CFG_CLIENT, "/usr/bin/curl", 0, "1.2.3.4", 1},
        {0, CFG_CLIENT, "/usr/local/bin/curl", 0, "1.2.3.4", 1},
        {6, CFG_CLIENT, "/usr/local/bin/curl", 1000, "1.2.3.4", 1},
        {0, CFG_CLIENT, "x", CFG_NO_UID - 1, "1.2.3.4", 1},
        {8, CFG_CLIENT, "x", 1, "::1", 7000},
        {8, CFG_SERVER, "x", 1, "127.0.0.1", 7000},
        {9, CFG_CLIENT, "x", 1, "127.0.0.1", 9000},
    };
    struct cfg_rules r;

    clear();
    read_rules(&r, FOLDER "match.conf");
    ASSERT_EQ_INT(r.n_errors, 0);
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
        if (decides(&r, t[i].role, t[i].program, t[i].uid, t[i].addr, t[i].port) != t[i].line)
            FAILF("%s %s %u: not line %u", t[i].program, t[i].addr, t[i].port, t[i].line);
    cfg_rules_end(&r);
}

TEST_CASE(rules, patterns)
{
    static const struct {
        const char *pattern, *text;
        bool matches;
    } t[] = {
        {"", "", true},           {"", "a", false},
        {"*", "", true},          {"*", "abc", true},
        {"a*c", "abbc", true},    {"a*c", "abcd", false},
        {"*b*b*", "abab", true},  {"*b*b*", "ab", false},
        {"?", "a", true},         {"?", "", false},
        {"[ab]c", "bc", true},    {"[ab]c", "cc", false},
        {"[!ab]", "c", true},     {"[!ab]", "a", false},
        {"[a-c]x", "bx", true},   {"[]]", "]", true},
        {"[a-]", "-", true},      {"[", "[", true},
        {"[a", "[a", true},       {"\\*", "*", true},
        {"\\*", "a", false},      {"\\", "\\", true},
        {"/a/*", "/a/b/c", true}, {"*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaa", false},
    };

    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
        if (cfg_glob(t[i].pattern, t[i].text) != t[i].matches)
            FAILF("%s %s %s", t[i].pattern, t[i].matches ? "matches" : "does not match", t[i].text);
}

TEST_CASE(rules, maps)
{
    struct cfg_map m[2] = {{.next = &m[1]}, {.next = NULL}};
    uint8_t a[16] = {10, 1, 2, 3}, b[16] = {10, 2, 2, 3}, c[16] = {0xfd, 1, [15] = 7};

    ASSERT(cfg_word_prefix("10.1.0.0/15", false, &m[0].tcp));
    ASSERT(cfg_word_prefix("192.168.0.0/15", false, &m[0].rdma));
    ASSERT(cfg_word_prefix("fd01::/16", false, &m[1].tcp));
    ASSERT(cfg_word_prefix("fd02::/16", false, &m[1].rdma));
    EXPECT(cfg_map_apply(m, AF_INET, a));
    EXPECT_MEMEQ(a, ((uint8_t[]){192, 169, 2, 3}), 4);
    EXPECT(!cfg_map_apply(m, AF_INET, b));
    EXPECT_MEMEQ(b, ((uint8_t[]){10, 2, 2, 3}), 4);
    EXPECT(cfg_map_apply(m, AF_INET6, c));
    EXPECT_EQ_INT(c[1], 2);
    EXPECT_EQ_INT(c[15], 7);
}

/* match.conf's settings for a client at that port, with one variable set. */
static struct cfg_stream with(const char *name, const char *value, uint16_t port)
{
    struct cfg_who who = {"x", "x", 1, NULL, NULL};
    uint8_t addr[4] = {127, 0, 0, 1};
    const struct cfg_node *n;
    struct cfg_stream s;
    struct cfg_rules r;

    clear();
    if (name)
        setenv(name, value, 1);
    cfg_init();
    read_rules(&r, FOLDER "match.conf");
    n = cfg_rules_find(&r, CFG_CLIENT, &who, AF_INET, addr, port);
    s = n ? n->stream : r.base;
    cfg_rules_end(&r);
    clear();
    return s;
}

TEST_CASE(rules, environment_rule_defaults)
{
    struct cfg_stream s = with(NULL, NULL, 7000);

    EXPECT_EQ_INT(s.spin_ns, 0); /* the rule's */
    EXPECT(!s.spin_auto);
    EXPECT_EQ_INT(s.ring, 8192);         /* the file's */
    EXPECT_EQ_U64(s.stall_ns, 50000000); /* the program's */
    EXPECT_EQ_U64(s.max_rails, 3);       /* a rule's budget is its streams' */
    EXPECT_EQ_U64(s.max_memory, UINT64_MAX);
    EXPECT(s.use);
    s = with(NULL, NULL, 1);
    EXPECT_EQ_U64(s.max_rails, 10);
    EXPECT(!s.use);
    EXPECT_EQ_INT(s.reason, 0);
    s = with("RAILSOCK_SPIN", "7", 7000);
    EXPECT_EQ_INT(s.spin_ns, 7000);
    s = with("RAILSOCK_SPIN", "auto", 7000);
    EXPECT(s.spin_auto);
    s = with("RAILSOCK_RAILS", "9", 7000);
    EXPECT_EQ_U64(s.max_rails, UINT64_MAX);
    s = with("RAILSOCK_RING", "64k", 7000);
    EXPECT_EQ_INT(s.ring, 65536);
    s = with("RAILSOCK_TOS", "8", 7000);
    EXPECT_EQ_INT(s.tos, 8);

    s = with(NULL, NULL, 9000);
    EXPECT_EQ_INT(s.mode, CFG_TCP);
    EXPECT_EQ_INT(s.reason, RSN_RULE);
    s = with("RAILSOCK_MODE", "auto", 9000);
    EXPECT_EQ_INT(s.mode, CFG_AUTO);
    EXPECT_EQ_INT(s.reason, 0);
    EXPECT_EQ_INT(s.board_calls, 1); /* the rule's own */
    s = with("RAILSOCK_BOARD", "never", 7000);
    EXPECT_EQ_INT(s.reason, RSN_BOARD_NEVER);
    s = with("RAILSOCK_MODE", "tcp", 7000);
    EXPECT_EQ_INT(s.reason, RSN_MODE_TCP);
    s = with("RAILSOCK_MODE", "rail", 7000);
    EXPECT_EQ_INT(s.board_calls, 1);
}

TEST_CASE(rules, the_users_file_comes_first)
{
    struct cfg_who who = {"x", "x", 1, NULL, NULL};
    uint8_t addr[4] = {127, 0, 0, 1};
    struct cfg_rules r;

    clear();
    ASSERT(cfg_rules_begin(&r));
    cfg_rules_read(&r, FOLDER "libsdp.conf", true, false);
    cfg_rules_read(&r, FOLDER "match.conf", true, false);
    cfg_rules_read(&r, FOLDER "no-such-file", true, false);
    cfg_rules_settle(&r);
    EXPECT_EQ_INT(r.n_errors, 0);
    EXPECT_EQ_INT(cfg_rules_find(&r, CFG_CLIENT, &who, AF_INET, addr, 7000)->at.line, 8);
    EXPECT_EQ_INT(cfg_rules_find(&r, CFG_CLIENT, &who, AF_INET, addr, 7001)->at.line, 20);
    EXPECT(r.log_file == CFG_LOG_SYSLOG); /* the last one of a file */
    EXPECT_EQ_INT(r.log_level, CFG_LOG_DEBUG);
    cfg_rules_end(&r);
}

TEST_CASE(rules, users)
{
    struct cfg_rules r;

    ASSERT(cfg_rules_begin(&r));
    EXPECT_EQ_U64(cfg_word_uid(&r, "root"), 0);
    EXPECT_EQ_U64(cfg_word_uid(&r, "roo"), CFG_NO_UID);
    EXPECT_EQ_U64(cfg_word_uid(&r, "root:x"), CFG_NO_UID);
    EXPECT_EQ_U64(cfg_word_uid(&r, "12"), 12);
    EXPECT_EQ_U64(cfg_word_uid(&r, "4294967295"), CFG_NO_UID);
    EXPECT_EQ_U64(r.arena.used, 0);
    cfg_rules_end(&r);
}

/* ---- limits */

static void first_error(const char *path, const char *part)
{
    struct cfg_rules r;

    read_rules(&r, path);
    ASSERT(r.n_errors > 0 && r.errors);
    if (!strstr(r.errors->text, part))
        FAILF("%s: not %s", r.errors->text, part);
    cfg_rules_end(&r);
}

TEST_CASE(rules, limits)
{
    const char *name = temporary();
    struct cfg_rules r;

    clear();
    fill(name, "client\n", CFG_MAX_NODES);
    read_rules(&r, name);
    EXPECT_EQ_INT(r.n_errors, 0);
    cfg_rules_end(&r);
    fill(name, "client\n", CFG_MAX_NODES + 1);
    first_error(name, "expected no more than 4096 statements");
    fill(name, "# a comment of some length\n", 1 << 16);
    first_error(name, "longer than 1 MiB");
    fill(name, "x\n", 1000);
    read_rules(&r, name);
    EXPECT_EQ_INT(r.n_errors, 1000); /* all are counted, the first are kept */
    cfg_rules_end(&r);
    fill(name, "client program ", 1);
    first_error(FOLDER, "it is not a regular file");
    first_error("/no/such/file", "it is not there");
    read_rules(&r, "/dev/null");
    EXPECT_EQ_INT(r.n_errors, 0);
    EXPECT(!r.nodes);
    cfg_rules_end(&r);
    unlink(name);
}

TEST_CASE(rules, limits_of_folders)
{
    char folder[] = "/tmp/rules_test.XXXXXX", top[40], file[60], text[80];
    struct cfg_rules r;

    clear();
    ASSERT(mkdtemp(folder));
    snprintf(top, sizeof(top), "%s/top", folder);
    snprintf(text, sizeof(text), "include %s/*.conf\n", folder);
    fill(top, text, 1);
    for (int i = 0; i < CFG_MAX_FILES + 1; i++) {
        snprintf(file, sizeof(file), "%s/%02d.conf", folder, i);
        fill(file, "client\n", 1);
    }
    first_error(top, "expected no more than 64 files"); /* of one folder */
    unlink(file);
    first_error(top, "expected no more than 64 files"); /* with the one that includes them */
    snprintf(file, sizeof(file), "%s/00.conf", folder);
    unlink(file);
    read_rules(&r, top);
    EXPECT_EQ_INT(r.n_errors, 0);
    EXPECT_EQ_INT(r.n_nodes, CFG_MAX_FILES); /* the include is one */
    cfg_rules_end(&r);
    fill(file, "include *0.conf\n", 1);
    fill(top, "include 0*.conf\n", 1);
    first_error(top, "that does not include this one");
    fill(top, "include 00.conf/*\n", 1);
    first_error(top, "expected a folder");
    fill(file, "any\nwire x\n", 1);
    fill(top, "include 0*.conf\n", 1);
    read_rules(&r, top);
    ASSERT(r.n_errors == 1);
    EXPECT_STREQ(r.errors->at.file->path, file); /* whose it is, and where */
    EXPECT_EQ_INT(r.errors->at.line, 2);
    cfg_rules_end(&r);
    for (int i = 0; i < CFG_MAX_FILES; i++) {
        snprintf(file, sizeof(file), "%s/%02d.conf", folder, i);
        unlink(file);
    }
    unlink(top);
    rmdir(folder);
}

TEST_CASE(rules, a_guarded_file_belongs_to_the_user)
{
    const char *name = temporary();
    struct cfg_rules r;

    clear();
    if (geteuid() != 0)
        SKIP("only root can give a file away");
    fill(name, "client\n", 1);
    ASSERT(chown(name, 65534, 65534) == 0);
    for (int guarded = 0; guarded < 2; guarded++) {
        ASSERT(cfg_rules_begin(&r));
        cfg_rules_read(&r, name, true, guarded);
        EXPECT_EQ_INT(r.n_errors, guarded);
        cfg_rules_end(&r);
    }
    unlink(name);
}
