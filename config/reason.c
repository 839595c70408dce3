/*
 * reason.c - words for the reason numbers. Pure table look-up, any thread.
 */
#include "config/reason.h"

#include <stddef.h>

static const struct {
    int number;
    const char *name, *sentence, *advice;
} reasons[] = {
#define REASON(number, NAME, name, sentence, advice) {number, name, sentence, advice},
#include "config/reason.def"
#undef REASON
};

static size_t find(int number)
{
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (reasons[i].number == number)
            return i;
    return (size_t)-1;
}

const char *cfg_reason_name(int number)
{
    size_t i = find(number);
    return i == (size_t)-1 ? "unknown" : reasons[i].name;
}

const char *cfg_reason_sentence(int number)
{
    size_t i = find(number);
    return i == (size_t)-1 ? "a reason that this version does not know" : reasons[i].sentence;
}

const char *cfg_reason_ended(int number)
{
    return number == RSN_NONE ? "it ended before it boarded" : cfg_reason_sentence(number);
}

const char *cfg_reason_advice(int number)
{
    size_t i = find(number);
    return i == (size_t)-1 ? "" : reasons[i].advice;
}
