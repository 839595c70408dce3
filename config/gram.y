/*
 * gram.y - the rules' grammar. README.md shows it with what it means. lex.c makes words of the text;
 * after a keyword the next word is a value of the kind that belongs to it (W_*), whatever it looks
 * like, so that a program may be named "server".
 *
 * The parser is canonical LR(1), so that what is said to be expected is what is expected, and reduces
 * without a look at the next token where there is no choice, so that an error at the start of the next
 * line is one of that line. Lists are left-recursive: the stack stays small, and is never enlarged.
 */
%code requires {
#include "config/parse.h"
}

%code {
#include "config/build.h"
#include "config/lex.h"
#include "config/log.h"

#include <stdio.h>
#include <string.h>

#define YYINITDEPTH 32
#define YYMAXDEPTH  32 /* a dozen are enough for any text */

static void cfg_yyerror(struct cfg_parse *p, const char *text);
}

%define api.pure full
%define api.prefix {cfg_yy}
%define lr.type canonical-lr
%define lr.default-reduction consistent
%define parse.error custom
%param {struct cfg_parse *p}

%union {
    struct cfg_word word;
}

%token END 0 "the end of the file"
%token NL "the end of the line"
%token <word> ODD "a word that is none of these"
%token <word> USE "use" LOG "log" INCLUDE "include" DEFAULTS "defaults"
%token <word> SERVER "server" CLIENT "client" ANY "any"
%token <word> PROGRAM "program" USER "user" TO "to" REACH "reach" AT "at"
%token <word> DESTINATION "destination" MIN_LEVEL "min-level"
%token <word> STDERR_ "stderr" SYSLOG_ "syslog" FILE_ "file"
%token <word> OPEN "{" CLOSE "}"
%token <word> KEY "a setting (mode, wire, board, spin, ring, rails, memory, idle, stall, tos or key)"
%token <word> W_USE "tcp, sdp or both" W_ROLE "server, listen, client or connect"
%token <word> W_PROGRAM "a program's name or path, * and ? for any"
%token <word> W_USER "a user's name or number"
%token <word> W_TO "an address and port, like 10.1.0.0/16:5000-5999 or *:*"
%token <word> W_PREFIX "an address, like 10.1.0.0/16 or fd00::/64"
%token <word> W_PATH "a file's name"
%token <word> W_LEVEL "a level, 1 to 9, or error, warn, info or debug"
%token <word> W_VALUE "a value"

%%

file:
    %empty
  | file statement
  ;

statement:
    NL
  | rule body NL       { cfg_build_finish(p); }
  | defaults body NL   { cfg_build_finish(p); }
  | use NL             { cfg_build_finish(p); }
  | log log_words NL   { cfg_build_finish(p); }
  | INCLUDE W_PATH NL  { cfg_build_begin(p, CFG_INCLUDE, 0, &$1); cfg_build_path(p, &$2); cfg_build_finish(p); }
  | error NL           { p->node = NULL; yyerrok; }
  | error OPEN         { p->node = NULL; yyerrok; } lines CLOSE NL
  ;

rule:
    role
  | rule match
  ;

role:
    SERVER  { cfg_build_begin(p, CFG_RULE, CFG_SERVER, &$1); }
  | CLIENT  { cfg_build_begin(p, CFG_RULE, CFG_CLIENT, &$1); }
  | ANY     { cfg_build_begin(p, CFG_RULE, CFG_SERVER | CFG_CLIENT, &$1); }
  ;

match:
    PROGRAM W_PROGRAM  { cfg_build_program(p, &$2); }
  | USER W_USER        { cfg_build_user(p, &$2); }
  | TO W_TO            { cfg_build_to(p, &$2); }
  ;

defaults:
    DEFAULTS  { cfg_build_begin(p, CFG_DEFAULTS, 0, &$1); }
  ;

body:
    settings
  | OPEN lines CLOSE
  ;

settings:
    %empty
  | settings setting
  ;

lines:
    %empty
  | lines NL
  | lines setting
  | lines error NL  { yyerrok; }
  ;

setting:
    KEY W_VALUE                    { cfg_build_value(p, &$1, &$2); }
  | REACH W_PREFIX AT W_PREFIX     { cfg_build_map(p, &$2, &$4); }
  ;

use:
    USE W_USE W_ROLE W_PROGRAM W_TO  { cfg_build_begin(p, CFG_RULE, 0, &$1); cfg_build_use(p, &$2, &$3, &$4, &$5); }
  ;

log:
    LOG  { cfg_build_begin(p, CFG_LOG, 0, &$1); }
  ;

log_words:
    %empty
  | log_words DESTINATION STDERR_       { cfg_build_log(p, &$3, ""); }
  | log_words DESTINATION SYSLOG_       { cfg_build_log(p, &$3, CFG_LOG_SYSLOG); }
  | log_words DESTINATION FILE_ W_PATH  { cfg_build_log(p, &$4, $4.text); }
  | log_words MIN_LEVEL W_LEVEL         { cfg_build_level(p, &$3); }
  ;

%%

/* Out of memory, or a stack that was never meant to be so deep. */
static void cfg_yyerror(struct cfg_parse *p, const char *text)
{
    (void)text;
    cfg_complain(p->rules, p->last.at, "too much to be read");
}

/* "a, b or c" of the tokens that could stand here; the value of a setting says which. */
static void expected(struct cfg_parse *p, const yypcontext_t *context, char *text, size_t size)
{
    yysymbol_kind_t kinds[24];
    int n = yypcontext_expected_tokens(context, kinds, sizeof(kinds) / sizeof(kinds[0]));
    size_t at = 0;
    bool empty = false; /* an empty line could stand here: to say so is no help */
    int kept = 0;

    for (int i = 0; i < n; i++)
        empty |= kinds[i] == YYSYMBOL_YYEOF || kinds[i] == YYSYMBOL_CLOSE;
    for (int i = 0; i < n; i++)
        if (!(empty && kinds[i] == YYSYMBOL_NL) && kinds[i] != YYSYMBOL_YYEOF)
            kinds[kept++] = kinds[i];
    n = kept;
    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        const char *name = yysymbol_name(kinds[i]);
        int wrote;

        if (kinds[i] == YYSYMBOL_W_VALUE && p->key < CFG_KEYS)
            name = cfg_key_expected(p->key);
        wrote = snprintf(text + at, size - at, "%s%s", i == 0 ? "" : i == n - 1 ? " or " : ", ",
                         name);
        if (wrote < 0 || (size_t)wrote >= size - at)
            break;
        at += (size_t)wrote;
    }
}

static int yyreport_syntax_error(const yypcontext_t *context, struct cfg_parse *p)
{
    char text[600];

    expected(p, context, text, sizeof(text));
    if (p->last.text)
        cfg_complain(p->rules, p->last.at, "expected %s, not \"%.60s\"", text, p->last.text);
    else
        cfg_complain(p->rules, p->last.at, "expected %s", text);
    return 0;
}
