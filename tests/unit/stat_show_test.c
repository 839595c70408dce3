/*
 * stat_show_test.c - what `railsock stat` makes of what it has read: its forms, rings,
 * rates and filters.
 */
#include "tests/unit/stat_part.h"

#include "config/reason.h"
#include "tools/stat_filter.h"
#include "tools/stat_print.h"

/* What one of the forms prints. */
static char *shown(void (*form)(FILE *, const struct stat_list *), const struct stat_list *list)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    ASSERT(f);
    form(f, list);
    fclose(f);
    return text;
}

static void table(FILE *f, const struct stat_list *list)
{
    stat_print_table(f, list, &(struct stat_view){0});
}

static void rates_table(FILE *f, const struct stat_list *list)
{
    stat_print_table(f, list, &(struct stat_view){.rates = true});
}

TEST_CASE(stat_show, json)
{
    struct stat_list list;
    char *text, want[4096];

    begin(2);
    strcpy(head()->program, "a\"b\\c\n\xc3\xa4\xff\xed\xa0\x80\xc2\x9b");
    use_slot(0, 7);
    use_slot(1, 8);
    strcpy(rails[0].where, "s\033m");
    rails[0].tx_ring = 4096;
    rails[0].rx_ring = 8192;
    rails[0].pause_last = 1500;
    rails[0].pause_most = 2500;
    head()->slot[1].path_tx = head()->slot[1].path_rx = 99; /* a value from nowhere */
    head()->slot[1].reason = 11;
    head()->slot[1].peer_reason = 60000;
    rails[1].boarded_at = 0;
    head()->slot[1].peer.family = 0;
    head()->closed_switches = 12;
    head()->closed_by_reason[1] = 4;
    head()->closed_by_reason[63] = 5;
    put_whole();
    ASSERT_EQ_INT(stat_read(base, 0, complain, &list), 0);
    text = shown(stat_print_json, &list);
    snprintf(
        want, sizeof(want),
        "{\"processes\":[{\"pid\":%d,\"program\":\"a\\\"b\\\\c\\u000a\xc3\xa4\\ufffd\\ufffd"
        "\\ufffd\\ufffd\\u009b\",\"uid\":%u,\"closed\":{\"connections\":0,\"boarded\":0,\"tx\":0,"
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
        "\"means\":\"%s\",\"advice\":\"\"}]},\"not_shown\":null}\n",
        (int)getpid(), (unsigned)geteuid(), cfg_reason_sentence(1), cfg_reason_advice(1),
        cfg_reason_sentence(11), cfg_reason_advice(11), cfg_reason_sentence(63));
    EXPECT_STREQ(text, want);
    free(text);
    stat_free(&list);
    text = shown(stat_print_json, &list);
    EXPECT_STREQ(text, "{\"processes\":[],\"totals\":{\"connections\":0,\"tcp\":0,\"shm\":0,"
                       "\"verbs\":0,\"closed\":0,\"reasons\":[]},\"not_shown\":null}\n");
    free(text);
    list.lacking = "no \"room\"";
    text = shown(stat_print_json, &list);
    EXPECT(strstr(text, "]},\"not_shown\":\"no \\\"room\\\"\"}\n"));
    free(text);
    text = shown(stat_print_totals, &list);
    EXPECT(strstr(text, "programs may be missing that could not be shown: no \"room\"\n"));
    free(text);
    end();
}

TEST_CASE(stat_show, table)
{
    struct stat_list list;
    char *text, want[64];

    begin(1);
    strcpy(head()->program, "a\033[31mb");
    use_slot(0, 7);
    head()->slot[0].path_rx = FB_PATH_TCP;
    head()->slot[0].reason = 27;
    put_whole();
    ASSERT_EQ_INT(stat_read(base, 0, complain, &list), 0);
    text = shown(table, &list);
    EXPECT(strstr(text, "PID") && strstr(text, "SWITCHES\n"));
    snprintf(want, sizeof(want), "\n%*d  a?[31mb  127.0.0.1:80  [fd00::7]:40000  shm/tcp  no-ack ",
             3, (int)getpid());
    EXPECT(strstr(text, want));
    free(text);
    stat_free(&list);
    end();
}

/* Whoever has written them may lie. */
TEST_CASE(stat_show, sums_that_are_too_large)
{
    struct stat_conn conns[2] = {{.tx = UINT64_MAX, .tx_rate = UINT64_MAX},
                                 {.tx = 9, .tx_rate = 9}};
    struct stat_process p[2] = {
        {.pid = 1, .conns = conns, .nconns = 2, .closed = {.connections = UINT64_MAX}},
        {.pid = 2, .closed = {.connections = 2}},
    };
    struct stat_list list = {.processes = p, .n = 2};
    struct stat_totals t;
    char *text;

    p[0].closed.by_reason[1] = UINT64_MAX;
    p[1].closed.by_reason[1] = 1;
    stat_total(&list, &t);
    EXPECT_EQ_U64(t.closed_conns, UINT64_MAX);
    EXPECT_EQ_U64(t.closed[1], UINT64_MAX);
    EXPECT_EQ_U64(t.tx_rate, UINT64_MAX);
    text = shown(stat_print_prometheus, &list);
    EXPECT(strstr(text, "railsock_bytes_total{pid=\"1\",program=\"\",direction=\"tx\"} "
                        "18446744073709551615\n"));
    free(text);
}

/* What is over will not board with its next bytes. */
TEST_CASE(stat_show, closed_without_a_reason)
{
    struct stat_list list;
    char *text;

    for (int open = 0; open <= 1; open++) {
        begin(1);
        use_slot(0, 7);
        head()->slot[0].path_tx = head()->slot[0].path_rx = FB_PATH_TCP;
        head()->slot[0].reason = open ? RSN_NONE : RSN_NEW;
        head()->closed = 2;
        head()->closed_by_reason[RSN_NONE] = 2;
        put_whole();
        ASSERT_EQ_INT(stat_read(base, 0, complain, &list), 0);
        text = shown(stat_print_totals, &list);
        EXPECT(strstr(text, open ? "; a closed one ended before it boarded\n"
                                 : "       2  none    it ended before it boarded\n"));
        EXPECT(!strstr(text, "on a rail"));
        free(text);
        text = shown(stat_print_json, &list);
        EXPECT(strstr(text, "ended before it boarded\"") && !strstr(text, "on a rail"));
        free(text);
        stat_free(&list);
        end();
    }
}

/* Two ends of one connection, of this one process; the first has sent more than the
 * second has read. */
static void use_both_ends(void)
{
    struct fb_pub *s;

    use_slot(0, 7);
    use_slot(1, 8);
    s = &head()->slot[1];
    s->local = head()->slot[0].peer;
    s->peer = head()->slot[0].local;
    for (int i = 0; i < 2; i++) {
        rails[i].tx_ring = rails[i].rx_ring = 4096;
        head()->slot[i].tx = 10000;
        head()->slot[i].rx = 10000;
    }
    s->rx = 9000;
    s->tx = 99999; /* more than the ring holds: it was read later */
}

TEST_CASE(stat_show, rings)
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

TEST_CASE(stat_show, rates)
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

/* What they moved until they closed is not missing in the sum, and what they had moved before
 * is not in it. */
TEST_CASE(stat_show, rates_of_those_that_have_closed)
{
    struct stat_list before, now;
    struct stat_totals t;
    char *text;

    begin(2);
    use_slot(0, 7);
    use_slot(1, 8);
    head()->closed = 1;
    head()->closed_tx = 5000;
    head()->closed_rx = 5000;
    put_whole();
    ASSERT_EQ_INT(stat_read(base, 0, complain, &before), 0);
    head()->slot[0].tx += 1000;
    head()->slot[1].gen = 6;
    head()->closed = 3; /* the second with 700 bytes more, and one that was opened since */
    head()->closed_tx += 100 + 700 + 30;
    head()->closed_rx += 200 + 4;
    put_whole();
    ASSERT_EQ_INT(stat_read(base, 0, complain, &now), 0);
    stat_rates(&before, &now, 500000000);
    stat_total(&now, &t);
    EXPECT_EQ_U64(t.tx_rate, 2000 + 1460);
    EXPECT_EQ_U64(t.rx_rate, 8);
    text = shown(rates_table, &now);
    EXPECT(strstr(text, " 3 closed ") && strstr(text, " 1460 ") && strstr(text, " 2000 "));
    free(text);
    /* A process that was not there before: since when is not known. */
    before.processes[0].start_time++;
    stat_free(&now);
    ASSERT_EQ_INT(stat_read(base, 0, complain, &now), 0);
    stat_rates(&before, &now, 500000000);
    stat_total(&now, &t);
    EXPECT_EQ_U64(t.tx_rate, 0);
    stat_free(&before);
    stat_free(&now);
    end();
}

/* A connection that has just come to the path is not new: its life is not the rate of a moment. */
TEST_CASE(stat_show, rates_of_some)
{
    const struct stat_filter shm = {.path = "shm"};
    struct stat_list before, now;
    struct stat_totals t;

    begin(2);
    use_slot(0, 7);
    use_slot(1, 8);
    head()->slot[1].path_tx = head()->slot[1].path_rx = FB_PATH_TCP;
    head()->slot[1].tx = 1000000;
    put_whole();
    ASSERT_EQ_INT(stat_read(base, 0, complain, &before), 0);
    stat_filter(&before, &shm);
    head()->slot[0].tx += 1000;
    head()->slot[1].path_tx = head()->slot[1].path_rx = FB_PATH_SHM;
    head()->closed_tx = 1000;
    put_whole();
    ASSERT_EQ_INT(stat_read(base, 0, complain, &now), 0);
    stat_filter(&now, &shm);
    stat_rates(&before, &now, 500000000);
    ASSERT_EQ_INT(now.processes[0].nconns, 2);
    EXPECT(now.processes[0].conns[0].rated && !now.processes[0].conns[1].rated);
    EXPECT_EQ_U64(now.processes[0].conns[1].tx_rate, 0);
    stat_total(&now, &t);
    EXPECT_EQ_U64(t.tx_rate, 2000);
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

TEST_CASE(stat_show, filters)
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

TEST_CASE(stat_show, prometheus)
{
    struct stat_list list;
    char *text, want[256];

    begin(1);
    strcpy(head()->program, "a\"b\n\xff");
    use_slot(0, 7);
    rails[0].rail_rx = 50;
    rails[0].pause_most = 1500000;
    head()->closed_rail_tx = 1000;
    head()->closed_tx = 1001;
    head()->closed_by_reason[5] = 3;
    put_whole();
    ASSERT_EQ_INT(stat_read(base, 0, complain, &list), 0);
    text = shown(stat_print_prometheus, &list);
    static const struct {
        const char *name, *labels, *value;
    } lines[] = {
        {"railsock_connections", ",path=\"shm\"", "1"},
        {"railsock_connections", ",path=\"tcp\"", "0"},
        {"railsock_bytes_total", ",direction=\"tx\"", "1101"},
        {"railsock_bytes_total", ",direction=\"rx\"", "200"},
        {"railsock_rail_bytes_total", ",direction=\"tx\"", "1090"},
        {"railsock_rail_bytes_total", ",direction=\"rx\"", "50"},
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

/* Of some connections nothing is known of those that are closed. */
TEST_CASE(stat_show, nothing_closed_of_some)
{
    struct stat_list list;
    char *text;

    begin(1);
    use_slot(0, 7);
    head()->closed = 3;
    head()->closed_tx = 1000;
    head()->closed_by_reason[5] = 3;
    put_whole();
    ASSERT_EQ_INT(stat_read(base, 0, complain, &list), 0);
    stat_filter(&list, &(struct stat_filter){.port = 80});
    text = shown(stat_print_json, &list);
    EXPECT(strstr(text, "\"closed\":null,\"connections\":["));
    EXPECT(strstr(text, "\"closed\":null,\"reasons\":[]"));
    free(text);
    text = shown(stat_print_prometheus, &list);
    EXPECT(strstr(text, "# TYPE railsock_bytes_total gauge\n"));
    EXPECT(strstr(text, ",direction=\"tx\"} 100\n"));
    EXPECT(!strstr(text, "railsock_closed_total") && !strstr(text, "railsock_never_boarded_total"));
    free(text);
    stat_free(&list);
    end();
}
