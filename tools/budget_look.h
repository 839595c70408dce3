/*
 * budget_look.h - whether settings leave room for one rail at all (ipoib_fallback/budget.c).
 */
#ifndef TOOLS_BUDGET_LOOK_H
#define TOOLS_BUDGET_LOOK_H

#include "config/values.h"

#define BUDGET_WHY 120

/* Whether the budget of its rule (in `own`) or of the process (in `base`) can never have room for
 * one rail of a stream with the settings `own`. Returns why, filled with what is too small ("rails
 * 0" and the like), or NULL: both have room. */
const char *budget_look(const struct cfg_stream *base, const struct cfg_stream *own,
                        char why[BUDGET_WHY]);

#endif
