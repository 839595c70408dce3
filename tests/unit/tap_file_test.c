/*
 * tap_file_test.c - what `railsock tap` writes of records that only threads at the same time, or
 * several devices, make.
 */
#include "tests/shim/shim.h"

#include "tools/tap.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

static char *text;
static size_t size;
static struct tap_file file;
static const uint8_t bytes[64];

static void begin(const char *where)
{
    struct stat_conn c = {.local = {.family = AF_INET, .port = 1},
                          .peer = {.family = AF_INET, .port = 2},
                          .path_tx = FB_PATH_VERBS,
                          .path_rx = FB_PATH_VERBS};
    FILE *f = open_memstream(&text, &size);

    ASSERT(f);
    snprintf(c.where, sizeof(c.where), "%s", where);
    tap_file_begin(&file, f, "one", &c, 0);
}

/* How often it has these bytes, when it is over. */
static unsigned count(const char *what)
{
    unsigned n = 0;
    char *at, *found;

    fflush(file.f);
    at = text;
    while ((found = memmem(at, size - (size_t)(at - text), what, strlen(what)))) {
        n++;
        at = found + 1;
    }
    return n;
}

static void end(void)
{
    fclose(file.f);
    free(text);
}

static void put(uint64_t at, uint32_t len, unsigned flags, uint32_t lost)
{
    struct tap_record r = {.at = at,
                           .len = len,
                           .kept = len,
                           .kind = TAP_DATA,
                           .path = FB_PATH_VERBS,
                           .flags = (uint8_t)flags,
                           .lost = lost};

    tap_file_put(&file, &r, bytes);
}

/* Who has counted his bytes first need not be the first to have them copied. */
TEST_CASE(tap_file, threads_that_send_at_the_same_time)
{
    begin("rxe0/1");
    put(0, 10, 0, 0);
    put(30, 10, 0, 0);
    put(10, 20, 0, 0);
    put(40, 10, 0, 0);
    EXPECT_EQ_INT(count("too slow"), 0);
    EXPECT_EQ_INT(count("20 bytes before it come later"), 1);
    EXPECT_EQ_U64(tap_file_packets(&file), 4);
    end();
}

/* What was lost is told with the next record, which may be of the other way. */
TEST_CASE(tap_file, what_is_lost)
{
    begin("rxe0/1");
    put(0, 10, 0, 0);
    put(0, 10, TAP_RX, 0);
    put(10, 10, TAP_RX, 2);
    put(50, 10, 0, 0);
    EXPECT_EQ_INT(count("40 bytes before it are missing here: railsock tap was too slow"), 1);
    EXPECT_EQ_INT(count("come later"), 0);
    end();
}

/* A connection boards anew by another device. */
TEST_CASE(tap_file, an_interface_for_each_place)
{
    uint64_t lost[FB_PATH_VERBS + 1] = {0};

    begin("rxe0/1");
    put(0, 10, 0, 0);
    tap_file_where(&file, "rxe0/1", lost);
    put(10, 10, 0, 0);
    EXPECT_EQ_INT(count("verbs:rxe0/1"), 1);
    tap_file_where(&file, "mlx5_1/1", lost);
    tap_file_where(&file, "", lost); /* not known */
    put(20, 10, 0, 0);
    EXPECT_EQ_INT(count("verbs:rxe0/1"), 1);
    EXPECT_EQ_INT(count("verbs:mlx5_1/1"), 1);
    EXPECT_EQ_INT(file.interfaces, 2);
    EXPECT_EQ_U64(tap_file_packets(&file), 3);
    lost[FB_PATH_VERBS] = 4;
    tap_file_end(&file, lost);
    EXPECT_EQ_INT(file.interfaces, 2);
    end();
}
