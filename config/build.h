/*
 * build.h - the grammar's actions: they check what was read and put it into p->node. Errors are
 * noted, and reading goes on.
 */
#ifndef CFG_BUILD_H
#define CFG_BUILD_H

#include "config/parse.h"

void cfg_build_begin(struct cfg_parse *, enum cfg_kind, unsigned roles, const struct cfg_word *);
void cfg_build_finish(struct cfg_parse *);
void cfg_build_program(struct cfg_parse *, const struct cfg_word *);
void cfg_build_user(struct cfg_parse *, const struct cfg_word *);
void cfg_build_to(struct cfg_parse *, const struct cfg_word *);
void cfg_build_value(struct cfg_parse *, const struct cfg_word *key, const struct cfg_word *value);
void cfg_build_map(struct cfg_parse *, const struct cfg_word *tcp, const struct cfg_word *rdma);
/* file: as cfg_log_to takes it */
void cfg_build_log(struct cfg_parse *, const struct cfg_word *, const char *file);
void cfg_build_level(struct cfg_parse *, const struct cfg_word *);
void cfg_build_path(struct cfg_parse *, const struct cfg_word *);
/* A line of libsdp.conf. */
void cfg_build_use(struct cfg_parse *, const struct cfg_word *what, const struct cfg_word *role,
                   const struct cfg_word *program, const struct cfg_word *to);

#endif
