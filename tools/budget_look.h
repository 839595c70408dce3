/*
 * budget_look.h - whether settings leave room for one rail at all (ipoib_fallback/budget.c).
 */
#ifndef TOOLS_BUDGET_LOOK_H
#define TOOLS_BUDGET_LOOK_H

#include "config/values.h"

#define BUDGET_WHY 120

/* Why no stream with the settings `own` can ever have a rail for want of a budget, its rule's or the process's, which `base`
 * has: "rails 0" and the like, in why. NULL: nothing of that is in the way. */
const char *budget_look(const struct cfg_stream *base, const struct cfg_stream *own,
                        char why[BUDGET_WHY]);

#endif
