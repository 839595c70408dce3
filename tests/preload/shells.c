/*
 * shells.c - commands that a shell runs for the program, and the connections that it inherits:
 * what it is told the number of it can use, by redirection or as an argument, and everything else
 * stays where it is.
 */
#include "say.h"

#include <wordexp.h>

static char command[400];

/* What is to be in the command in place of %d; dash knows numbers of one digit. */
static const char *told(const char *format, int fd)
{
    must(fd < 10, "a number of one digit");
    snprintf(command, sizeof(command), format, fd);
    fflush(stdout);
    return command;
}

/* Everything that is sent up to the end of a line. */
static void hear_lines(int fd, int lines)
{
    char c;

    for (; lines > 0; lines -= c == '\n') {
        must(read(fd, &c, 1) == 1, "a line");
        putchar(c);
    }
}

static void goes_on(int p[2])
{
    for (int i = 0; i < 2; i++) {
        deliver(p[i], p[!i], "by the program");
        hear(p[!i], "end");
    }
}

static void over(int p[2])
{
    goes_on(p);
    close(p[0]);
    hear(p[1], "end of stream");
    close(p[1]);
}

/* What the shell does not use stays on its rail. */
static void unused(void)
{
    static const char *const commands[] = {": 2>&1",
                                           ": >&2 <&0 2>&-",
                                           "(: & :) 2>/dev/null",
                                           ": eth%d log-%d %ds 1.%d %d.1 x%d_",
                                           ": http://localhost/?a=1\\&b=$HOME",
                                           "cd /proc/self/fd"};
    int p[2];

    puts("-- unused");
    tcp_pair(p);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        for (char *at = strcpy(command, commands[i]); (at = strstr(at, "%d"));) {
            *at++ = (char)('0' + p[0]);
            memmove(at, at + 1, strlen(at));
        }
        SHOW(system(command));
        for (int j = 0; j < 2; j++) {
            unsigned long long before = tcp_sent(p[j]);

            pass(p, j);
            if (mode_rail() && tcp_sent(p[j]) != before)
                printf("direction %d has left its rail\n", j);
        }
    }
    over(p);
}

static void by_system(const char *self)
{
    static const char *const commands[] = {"echo a shell >&%d",
                                           "echo blanks 1>& %d",
                                           "echo quotes >&\"%d\"",
                                           "exec 9>&%d; echo twice >&9",
                                           "TO=%d; echo a variable >&$TO",
                                           "TO=%d; echo in quotes >&\"$TO\"",
                                           "sh -c 'echo within >&%d'"};
    int p[2];

    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        printf("-- %s\n", commands[i]);
        tcp_pair(p);
        SHOW(system(told(commands[i], p[0])));
        hear_lines(p[1], 1);
        over(p);
    }
    puts("-- a number that the text does not have");
    tcp_pair(p);
    setenv("TO", told("%d", p[0]), 1);
    SHOW(system("echo the environment >&$TO"));
    hear_lines(p[1], 1);
    over(p);
    puts("-- an argument");
    tcp_pair(p);
    snprintf(command, sizeof(command), "%s child %d", self, p[0]);
    fflush(stdout);
    SHOW(system(command));
    hear_lines(p[1], 1);
    over(p);
}

static void by_popen(void)
{
    char line[64];
    int p[2];
    FILE *f;

    puts("-- popen that writes");
    tcp_pair(p);
    f = popen(told("cat >&%d", p[0]), "w");
    must(f != NULL, "popen");
    for (int i = 0; i < 20; i++)
        fprintf(f, "line %d\n", i);
    SHOW(pclose(f));
    hear_lines(p[1], 20);
    over(p);
    puts("-- popen that reads");
    tcp_pair(p);
    deliver(p[1], p[0], "six by");
    f = popen(told("head -c 3 <&%d && echo", p[0]), "r");
    must(f && fgets(line, sizeof(line), f), "popen");
    printf("popen: %s", line);
    SHOW(pclose(f));
    hear(p[0], "the rest");
    over(p);
}

static void by_wordexp(void)
{
    wordexp_t words;
    int p[2];

    puts("-- wordexp");
    tcp_pair(p);
    must(wordexp(told("one $(echo by a word >&%d; echo two)", p[0]), &words, 0) == 0, "wordexp");
    printf("%zu words: %s %s\n", words.we_wordc, words.we_wordv[0], words.we_wordv[1]);
    wordfree(&words);
    hear_lines(p[1], 1);
    over(p);
}

/* A child's command, and a connection that the child has not touched. */
static void in_a_child(const char *format)
{
    int p[2];
    pid_t pid;

    printf("-- in a child, %s\n", format);
    tcp_pair(p);
    setenv("TO", told("%d", p[0]), 1);
    told(format, p[0]);
    pid = fork();
    if (pid == 0)
        _exit(system(command) == 0 ? 7 : 1);
    ended(pid);
    hear_lines(p[1], 1);
    over(p);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "child") == 0)
        return write(atoi(argv[2]), "an argument\n", 12) == 12 ? 0 : 9;
    setvbuf(stdout, NULL, _IOLBF, 0);
    unused();
    by_system(argv[0]);
    by_popen();
    by_wordexp();
    in_a_child("echo from a child >&%d");
    in_a_child("echo unnamed, %d of them >&$TO");
    return 0;
}
