/*
 * json.c - see json.h.
 */
#include "tools/json.h"

#include <stddef.h>

/* The length of the valid UTF-8 sequence at s, or 0. */
static size_t utf8_len(const unsigned char *s)
{
    size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;

    if (s[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    /* Over-long forms, surrogates, and what lies above U+10FFFF. */
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

void json_string(FILE *f, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    fputc('"', f);
    while (*s) {
        size_t n = utf8_len(s);

        if (*s == '"' || *s == '\\')
            fprintf(f, "\\%c", *s);
        else if (*s < ' ' || *s == 0x7f)
            fprintf(f, "\\u%04x", *s);
        else if (n == 2 && s[0] == 0xc2 && s[1] < 0xa0) /* also controls, for terminals */
            fprintf(f, "\\u%04x", s[1]);
        else if (n)
            fwrite(s, 1, n, f);
        else
            fputs("\\ufffd", f); /* a byte that is no text */
        s += n ? n : 1;
    }
    fputc('"', f);
}
