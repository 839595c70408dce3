/*
 * lex.c - words, braces and ends of line. A word ends at a blank; "..." may hold blanks, and in it
 * \ takes away the meaning of what follows. # begins a comment where a word could begin. A \ at the
 * end of a line continues it. What a word is depends on the one before it: see gram.y.
 */
#include "config/lex.h"

#include "gram.h"

#include <string.h>

static const uint16_t after_program[] = {W_PROGRAM, 0};
static const uint16_t after_user[] = {W_USER, 0};
static const uint16_t after_to[] = {W_TO, 0};
static const uint16_t after_map[] = {W_PREFIX, 0};
static const uint16_t after_file[] = {W_PATH, 0};
static const uint16_t after_level[] = {W_LEVEL, 0};
static const uint16_t after_key[] = {W_VALUE, 0};
static const uint16_t after_use[] = {W_USE, W_ROLE, W_PROGRAM, W_TO, 0};

static const struct {
    const char *word;
    int token;
    const uint16_t *next;
} words[] = {
    {"{", OPEN, NULL},
    {"}", CLOSE, NULL},
    {"any", ANY, NULL},
    {"at", AT, after_map},
    {"client", CLIENT, NULL},
    {"connect", CLIENT, NULL},
    {"defaults", DEFAULTS, NULL},
    {"destination", DESTINATION, NULL},
    {"file", FILE_, after_file},
    {"include", INCLUDE, after_file},
    {"listen", SERVER, NULL},
    {"log", LOG, NULL},
    {"min-level", MIN_LEVEL, after_level},
    {"program", PROGRAM, after_program},
    {"reach", REACH, after_map},
    {"server", SERVER, NULL},
    {"stderr", STDERR_, NULL},
    {"syslog", SYSLOG_, NULL},
    {"to", TO, after_to},
    {"use", USE, after_use},
    {"user", USER, after_user},
};

static int peek(const struct cfg_parse *p, size_t ahead)
{
    return p->pos + ahead < p->file->size ? (unsigned char)p->file->text[p->pos + ahead] : -1;
}

static struct cfg_place here(const struct cfg_parse *p)
{
    return (struct cfg_place){p->file, p->line, (uint32_t)(p->pos - p->line_start) + 1};
}

static void next_line(struct cfg_parse *p)
{
    p->line++;
    p->line_start = p->pos;
}

static bool blank(int c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* It has no place in a text. */
static bool odd(int c)
{
    return c >= 0 && c != '\n' && !blank(c) && (c < ' ' || c == 0x7f);
}

/* That is said once, where words begin, and it is a blank. */
static bool stray(struct cfg_parse *p, int c)
{
    if (!odd(c))
        return false;
    cfg_complain(p->rules, here(p), "expected text, not the character %d", c);
    return true;
}

/* The length of a \ and an end of line; 0: that is not what comes. */
static size_t continued(const struct cfg_parse *p)
{
    if (peek(p, 0) != '\\')
        return 0;
    if (peek(p, 1) == '\n')
        return 2;
    return peek(p, 1) == '\r' && peek(p, 2) == '\n' ? 3 : 0;
}

static void skip_blanks(struct cfg_parse *p)
{
    for (;;) {
        int c = peek(p, 0);
        size_t n = continued(p);

        if (n) {
            p->pos += n;
            next_line(p);
        } else if (c == '#') {
            while (c >= 0 && c != '\n') {
                p->pos++;
                c = peek(p, 0);
            }
        } else if (blank(c) || stray(p, c)) {
            p->pos++;
        } else {
            return;
        }
    }
}

/* The word that begins here, copied; NULL: no memory. */
static const char *take_word(struct cfg_parse *p)
{
    size_t begin = p->pos, n = 0;
    struct cfg_place at = here(p);
    bool quoted = peek(p, 0) == '"';
    char *copy;

    p->pos += quoted;
    for (;;) {
        int c = peek(p, 0);

        if (c < 0 || c == '\n' || odd(c))
            break;
        if (quoted ? c == '"' : blank(c) || continued(p))
            break;
        if (quoted && c == '\\' && peek(p, 1) >= 0 && peek(p, 1) != '\n') {
            p->pos++;
            if (odd(peek(p, 0)))
                break;
        }
        p->pos++;
    }
    copy = cfg_arena_take(&p->rules->arena, p->pos - begin + 1);
    if (!copy)
        return NULL;
    for (size_t i = begin + quoted; i < p->pos; i++) {
        if (quoted && p->file->text[i] == '\\' && i + 1 < p->pos)
            i++;
        copy[n++] = p->file->text[i];
    }
    if (quoted && peek(p, 0) == '"')
        p->pos++;
    else if (quoted)
        cfg_complain(p->rules, at, "expected a \" at the end of this word");
    return copy;
}

static int keyword(struct cfg_parse *p, const char *text)
{
    for (unsigned k = 0; k < CFG_KEYS; k++)
        if (strcmp(text, cfg_key_name((enum cfg_key)k)) == 0) {
            p->next = after_key;
            p->key = (enum cfg_key)k;
            return KEY;
        }
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(text, words[i].word) == 0) {
            p->next = words[i].next;
            return words[i].token;
        }
    return ODD;
}

int cfg_yylex(union CFG_YYSTYPE *value, struct cfg_parse *p)
{
    int token;

    skip_blanks(p);
    p->last = (struct cfg_word){.at = here(p)};
    if (p->rules->full)
        return END;
    if (peek(p, 0) < 0 || peek(p, 0) == '\n') {
        p->next = NULL;
        if (peek(p, 0) == '\n') {
            p->pos++;
            next_line(p);
            return NL;
        }
        /* A last line without an end is a line. */
        if (p->ended)
            return END;
        p->ended = true;
        return NL;
    }
    /* Braces stand for themselves where a keyword could be. */
    if (!p->next && (peek(p, 0) == '{' || peek(p, 0) == '}')) {
        p->last.text = cfg_arena_copy(&p->rules->arena, p->file->text + p->pos, 1);
        p->pos++;
    } else {
        p->last.text = take_word(p);
    }
    if (!p->last.text) {
        p->rules->full = true;
        return END;
    }
    if (p->next) {
        token = *p->next++;
        if (!*p->next)
            p->next = NULL;
    } else {
        token = keyword(p, p->last.text);
    }
    value->word = p->last;
    return token;
}

void cfg_parse_file(struct cfg_parse *p)
{
    p->line = 1;
    p->key = CFG_KEYS;
    p->end = &p->first;
    if (strncmp(p->file->text, "\xef\xbb\xbf", 3) == 0) {
        cfg_complain(p->rules, here(p), "expected UTF-8 without the byte order mark");
        p->pos = p->line_start = 3;
    }
    /* What it could not read it has noted; 2 is a stack that is never that deep. */
    if (cfg_yyparse(p) == 2)
        p->rules->full = true;
}
