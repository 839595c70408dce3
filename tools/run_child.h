/*
 * run_child.h - `railsock run --report`: the program runs as a child, and its sums are
 * told at its end.
 */
#ifndef TOOLS_RUN_CHILD_H
#define TOOLS_RUN_CHILD_H

enum report_when { REPORT_NEVER, REPORT_IF_OFF, REPORT_ALWAYS };

/* Says why the command could not be executed, whose file is path (NULL: none was found), as errno
 * has it. Returns the exit status. */
int run_failed(const char *command, const char *path);

/*
 * Runs the file path with these arguments and the present environment, waits, and says on stderr
 * what its connections did, or writes JSON to the file json, "-" for standard output, if that is
 * not NULL. Returns the exit status for this process, 125 if the file cannot be written; ends it by
 * the same signal if the program was ended by one. -1, after saying why: there can be no report,
 * and nothing was run.
 */
int run_child(const char *path, char **argv, enum report_when when, const char *json);

#endif
