/*
 * section_test.c - which windows a call finds dead (rsock/section.h). Frames are places in an
 * array, which grows down as a stack does.
 */
#include "rsock/section.h"
#include "tests/shim/shim.h"

#include <string.h>

static char stack[10000];
static int undone;

static void undo(void *a, void *b)
{
    (void)a;
    (void)b;
    undone++;
}

static void nothing(void *held)
{
    (void)held;
}

/* A call at stack[8000] is in its window, handlers come at 5000 and, over that, at 3000. */
static void open_window(struct rsk_pass *p)
{
    rsk_section_init(nothing);
    atomic_store(&rsk_sections_on, true);
    undone = 0;
    rsk_section_enter();
    rsk_window_open(p, stack + 8000, undo, NULL, NULL);
}

/* A call of the thread's, from there. */
static void call_from(int frame)
{
    rsk_section_enter();
    rsk_windows_reclaim(stack + frame);
    rsk_section_leave();
}

TEST_CASE(section, a_handler_that_has_jumped_out_is_known_by_a_call_above_it)
{
    struct rsk_over over;
    struct rsk_pass p;

    open_window(&p);
    rsk_handler_begins(&over, stack + 5000);
    call_from(4000);
    EXPECT_EQ_INT(undone, 0);
    call_from(6000); /* deeper than the window, and the handler would be between */
    EXPECT_EQ_INT(undone, 1);
    EXPECT_EQ_INT((int)rsk_sig.windows, 0);
    EXPECT(!rsk_window_close(&p));
    rsk_section_leave();
}

/* Over a system call alone a handler may do what the thread might, unless it is not the first. */
TEST_CASE(section, what_a_handler_came_over)
{
    struct rsk_over first, second;
    struct rsk_pass p;

    for (int in_libc = 0; in_libc < 2; in_libc++) {
        open_window(&p);
        if (in_libc)
            rsk_window_in_libc(&p);
        EXPECT_EQ_INT(rsk_handler_begins(&first, stack + 5000), !in_libc);
        EXPECT(!rsk_handler_begins(&second, stack + 3000));
        rsk_handler_ends(&second);
        rsk_handler_ends(&first);
        EXPECT(rsk_window_close(&p));
        rsk_section_leave();
    }
    EXPECT(!rsk_handler_begins(&first, stack + 5000));
}

/* One on another stack may have jumped out, and the window be over: nobody could tell. */
TEST_CASE(section, a_handler_that_cannot_be_noted)
{
    struct rsk_over over;
    struct rsk_pass p;

    open_window(&p);
    EXPECT(!rsk_handler_begins(&over, stack + sizeof(stack)));
    rsk_handler_ends(&over);
    EXPECT(!rsk_handler_begins(&over, stack + 5000));
    rsk_handler_ends(&over);
    EXPECT(rsk_window_close(&p));
    rsk_section_leave();
}

/* A mark goes with its window, however that ends; windows of the short way have none. */
TEST_CASE(section, a_mark_is_not_the_next_windows)
{
    enum { CLOSED, JUMPED_OUT_OF, FORKED_IN, WAYS };
    struct rsk_over over;
    struct rsk_pass p;
    uint64_t id;

    for (int way = 0; way < WAYS; way++) {
        open_window(&p);
        rsk_window_in_libc(&p);
        if (way == CLOSED) {
            EXPECT(rsk_window_close(&p));
            rsk_section_leave();
        } else if (way == JUMPED_OUT_OF) {
            EXPECT(!rsk_handler_begins(&over, stack + 5000));
            call_from(6000);
        } else {
            rsk_section_after_fork_child();
        }
        EXPECT_EQ_INT((int)rsk_sig.windows, 0);
        rsk_section_enter();
        rsk_short_open(&id, stack + 8000, NULL, NULL, NULL);
        EXPECT(rsk_handler_begins(&over, stack + 5000));
        rsk_handler_ends(&over);
        EXPECT(rsk_short_over(id));
        rsk_short_close();
        rsk_short_leave();
    }
}

TEST_CASE(section, a_handler_that_has_returned_is_forgotten)
{
    struct rsk_over over;
    struct rsk_pass p;

    open_window(&p);
    rsk_handler_begins(&over, stack + 5000);
    rsk_handler_ends(&over);
    call_from(6000);
    EXPECT_EQ_INT(undone, 0);
    EXPECT(rsk_window_close(&p));
    rsk_section_leave();
}

/* Of calls from below it, too, if its frame is no more. */
TEST_CASE(section, a_handler_that_has_jumped_out_is_known_by_its_frame)
{
    struct rsk_over over;
    struct rsk_pass p;

    open_window(&p);
    rsk_handler_begins(&over, stack + 5000);
    call_from(2000);
    EXPECT_EQ_INT(undone, 0);
    memset(&over, 0x55, sizeof(over));
    call_from(2000);
    EXPECT_EQ_INT(undone, 1);
    EXPECT(!rsk_window_close(&p));
    rsk_section_leave();
}

TEST_CASE(section, a_handler_that_another_jumps_into_goes_on)
{
    struct rsk_over first, second;
    struct rsk_pass p;

    open_window(&p);
    rsk_handler_begins(&first, stack + 5000);
    rsk_handler_begins(&second, stack + 3000);
    call_from(4000); /* the first one's */
    EXPECT_EQ_INT(undone, 0);
    rsk_handler_ends(&first);
    EXPECT(rsk_window_close(&p));
    EXPECT_EQ_INT(undone, 0);
    rsk_section_leave();
}

TEST_CASE(section, a_handler_whose_call_was_jumped_out_of_returns_all_the_same)
{
    struct rsk_over first, second;
    struct rsk_pass outer, inner;

    open_window(&outer);
    rsk_handler_begins(&first, stack + 5000);
    rsk_section_enter();
    rsk_window_open(&inner, stack + 4000, undo, NULL, NULL);
    rsk_handler_begins(&second, stack + 3000); /* jumps back into the first */
    rsk_handler_ends(&first);
    EXPECT_EQ_INT(undone, 1);
    EXPECT_EQ_INT((int)rsk_sig.windows, 1);
    call_from(6000); /* of another handler: the first call is still there */
    EXPECT_EQ_INT(undone, 1);
    EXPECT(rsk_window_close(&outer));
    rsk_section_leave();
}

TEST_CASE(section, a_handler_on_another_stack_says_nothing)
{
    struct rsk_over over;
    struct rsk_pass p;

    open_window(&p);
    rsk_handler_begins(&over, stack + 9000);
    call_from(7000);
    EXPECT_EQ_INT(undone, 0);
    call_from(9500);
    EXPECT_EQ_INT(undone, 1);
    rsk_handler_ends(&over);
    EXPECT(!rsk_window_close(&p));
    rsk_section_leave();
}
