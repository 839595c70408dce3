/*
 * reason.c - words for the reason numbers. Pure table look-up, any thread.
 */
#include "config/reason.h"

#include <limits.h>
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

int cfg_reason_told(unsigned number)
{
    switch (number) {
    case RSN_NONE:
    case RSN_RDV_TIMEOUT:
    case RSN_RAIL_FAILED:
    case RSN_DEVICE_GONE:
    case RSN_IDLE:
    case RSN_LARGER:
    case RSN_STALLED:
        return RSN_PEER_REFUSED;
    default:
        return number > INT_MAX || find((int)number) == (size_t)-1 ? RSN_PEER_REFUSED : (int)number;
    }
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
