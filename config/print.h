/*
 * print.h - the rules for people: their normal form, and their errors. For the command and the
 * tests; the library does not have it.
 */
#ifndef CFG_PRINT_H
#define CFG_PRINT_H

#include "config/rules.h"

#include <stdio.h>

/* Each statement on a line, includes in place, nothing that says nothing. Reading it gives the same
 * statements. */
void cfg_print(FILE *, const struct cfg_rules *);
void cfg_print_node(FILE *, const struct cfg_node *);
/* The settings that are given, each after a blank. */
void cfg_print_values(FILE *, const struct cfg_stream *);
/* Every error: place, what was expected, the line, a caret. */
void cfg_print_errors(FILE *, const struct cfg_rules *);

#endif
