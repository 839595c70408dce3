/*
 * json.h - text for JSON.
 */
#ifndef TOOLS_JSON_H
#define TOOLS_JSON_H

#include <stdio.h>

/* In quotation marks, and valid whatever the bytes are: what is no UTF-8 becomes U+FFFD. */
void json_string(FILE *f, const char *text);

#endif
