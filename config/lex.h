/*
 * lex.h - words and ends of line, for the grammar that bison makes.
 */
#ifndef CFG_LEX_H
#define CFG_LEX_H

#include "config/parse.h"

union CFG_YYSTYPE;
int cfg_yylex(union CFG_YYSTYPE *, struct cfg_parse *);

#endif
