/*
 * budget_look.c - see budget_look.h. Counts as room() in ipoib_fallback/budget.c does.
 */
#include "tools/budget_look.h"

#include <stdio.h>

static bool lacks(const struct cfg_stream *most, const struct cfg_stream *own, char why[BUDGET_WHY])
{
    struct cfg_stream need = {.max_memory = own->ring ? 2ull * own->ring : CFG_RAIL_EXPECTED};
    char has[32], wants[32];

    if (most->max_rails == 0) {
        snprintf(why, BUDGET_WHY, "rails 0");
        return true;
    }
    if (most->max_memory >= need.max_memory)
        return false;
    cfg_key_print(CFG_MEMORY, most, has, sizeof(has));
    cfg_key_print(CFG_MEMORY, &need, wants, sizeof(wants));
    snprintf(why, BUDGET_WHY, "memory %s, and the two rings of a rail take %s", has, wants);
    return true;
}

/* A rule without a budget of its own has UINT64_MAX there, or what the process has. */
const char *budget_look(const struct cfg_stream *base, const struct cfg_stream *own,
                        char why[BUDGET_WHY])
{
    return lacks(own, own, why) || lacks(base, own, why) ? why : NULL;
}
