/*
 * profile.h - `railsock run --profile`: named sets of settings, from one table.
 */
#ifndef TOOLS_PROFILE_H
#define TOOLS_PROFILE_H

#include <stdbool.h>
#include <stdio.h>

/* Notes the profiles of a comma-separated list; a later one stands above an earlier one. False: one
 * of the names is none, and the message has been written. */
bool profile_add(const char *list);
/* Sets the noted profiles' variables that are not yet in the environment. */
bool profile_apply(void);
/* What each sets, a line for each. */
void profile_print(FILE *f);

#endif
