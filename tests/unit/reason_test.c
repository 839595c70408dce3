/*
 * reason_test.c - reason.def is a table that others may rely on: numbers and names are unique,
 * numbers fit where they are carried, names suit scripts, and unknown numbers have words too.
 */
#include "config/reason.h"
#include "tests/shim/shim.h"

#include <ctype.h>
#include <string.h>

static const struct {
    int number;
    const char *identifier, *name, *sentence, *advice;
} table[] = {
#define REASON(number, NAME, name, sentence, advice) {number, #NAME, name, sentence, advice},
#include "config/reason.def"
#undef REASON
};
enum { COUNT = sizeof(table) / sizeof(table[0]) };

TEST_CASE(reason, numbers_and_names_are_unique)
{
    for (int i = 0; i < COUNT; i++)
        for (int j = 0; j < i; j++) {
            EXPECT(table[i].number != table[j].number);
            EXPECT(strcmp(table[i].name, table[j].name) != 0);
            EXPECT(strcmp(table[i].sentence, table[j].sentence) != 0);
        }
}

/* struct fb_pub_file counts closed connections in 64 places, by number. */
TEST_CASE(reason, numbers_fit)
{
    for (int i = 0; i < COUNT; i++)
        EXPECT(table[i].number >= 0 && table[i].number < 64);
}

TEST_CASE(reason, names_suit_scripts)
{
    for (int i = 0; i < COUNT; i++) {
        EXPECT(table[i].name[0] != '\0' && strlen(table[i].name) <= 20);
        EXPECT(table[i].sentence[0] != '\0');
        for (const char *p = table[i].name; *p; p++)
            EXPECT(islower((unsigned char)*p) || isdigit((unsigned char)*p) || *p == '-');
    }
}

TEST_CASE(reason, words)
{
    for (int i = 0; i < COUNT; i++) {
        EXPECT_STREQ(cfg_reason_name(table[i].number), table[i].name);
        EXPECT_STREQ(cfg_reason_sentence(table[i].number), table[i].sentence);
        EXPECT_STREQ(cfg_reason_advice(table[i].number), table[i].advice);
        EXPECT((strcmp(cfg_reason_ended(table[i].number), table[i].sentence) == 0) ==
               (table[i].number != RSN_NONE));
    }
    EXPECT_STREQ(cfg_reason_name(RSN_NONE), "none");
}

TEST_CASE(reason, unknown_numbers_have_words)
{
    EXPECT_STREQ(cfg_reason_name(-1), "unknown");
    EXPECT_STREQ(cfg_reason_name(60000), "unknown");
    EXPECT(cfg_reason_sentence(60000)[0] != '\0');
    EXPECT_STREQ(cfg_reason_advice(60000), "");
}
