/*
 * doctor_own.c - what of railsock itself is there: the library, the command's scripts, the rules.
 */
#include "tools/doctor.h"

#include "config/parse.h"
#include "config/reason.h"
#include "config/rules.h"
#include "tools/budget_look.h"
#include "tools/library.h"
#include "tools/rules_look.h"
#include "tools/script.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What keeps everything on TCP: a place and a sentence. */
enum { BY = 300 };

/* Whether all that run programs can read it: the first folder of its path, or itself, that is
 * only for some. */
static const char *private_part(char path[PATH_MAX])
{
    struct stat st;

    if (stat(path, &st) == 0 && !(st.st_mode & S_IROTH))
        return path;
    for (char *slash; (slash = strrchr(path, '/')) && slash > path;) {
        *slash = '\0';
        if (stat(path, &st) == 0 && !(st.st_mode & S_IXOTH))
            return path;
    }
    return NULL;
}

void doc_INSTALLED(struct doctor *d, struct doc_result *r)
{
    static const char *const scripts[] = {"ab", "lab-image", "lab-guest"};
    char path[PATH_MAX], why[2 * PATH_MAX], copy[PATH_MAX];
    const char *missing = NULL, *part;

    (void)d;
    if (!library_find(path, why, sizeof(why))) {
        doc_say(r, DOC_FAIL, "%s", why);
        return;
    }
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        char *script = script_find(scripts[i]);

        if (!script && !missing)
            missing = scripts[i];
        free(script);
    }
    strcpy(copy, path);
    part = private_part(copy);
    if (missing)
        doc_say(r, DOC_NOTE, "%s; the script %s is missing, for railsock ab and lab", path,
                missing);
    else if (part)
        doc_say(r, DOC_NOTE, "%s; other users' programs cannot load it: %s is not theirs to read",
                path, part);
    else
        doc_say(r, DOC_OK, "%s", path);
}

/* The files that were read, with commas. */
static void name_files(const struct cfg_rules *rules, char *text, size_t size)
{
    size_t at = 0;

    text[0] = '\0';
    for (const struct cfg_file *f = rules->files; f && at < size; f = f->next)
        if (f->text)
            at += (size_t)snprintf(text + at, size - at, "%s%s", at ? ", " : "", f->path);
}

static void broken(struct doc_result *r, const struct cfg_rules *rules)
{
    const struct cfg_error *e = rules->errors;
    const char *path = !e ? "the rules: " : e->at.file ? e->at.file->path : "";
    char place[40] = "";

    if (e && e->at.line)
        snprintf(place, sizeof(place), ":%u:%u: ", e->at.line, e->at.column);
    else if (e && e->at.file)
        snprintf(place, sizeof(place), ": ");
    doc_say(r, DOC_FAIL, "%.100s%s%.180s (%u %s); programs say so and stay on TCP", path, place,
            e ? e->text : "no memory", rules->n_errors, rules->n_errors == 1 ? "error" : "errors");
}

/* False: it is said why not. */
static bool read_rules(struct cfg_rules *rules, struct doc_result *r)
{
    if (!cfg.rules) {
        doc_say(r, DOC_SKIP, "not read, as the environment says that nothing boards");
        return false;
    }
    if (!cfg_rules_begin(rules)) {
        doc_say(r, DOC_FAIL, "there is no memory to read them");
        return false;
    }
    cfg_rules_read_all(rules);
    cfg_rules_settle(rules);
    return true;
}

/* Why streams of a rule, or of none, stay on TCP, in words; NULL: they may board. */
static const char *kept_by(const struct cfg_rules *rules, const struct cfg_stream *s,
                           char why[BUDGET_WHY])
{
    return s->reason ? cfg_reason_sentence(s->reason) : budget_look(&rules->base, s, why);
}

static bool is_for_all(const struct cfg_node *n)
{
    return !n->program && !n->to.family && !n->port_from && n->port_to == UINT16_MAX;
}

/* Whether no connection of this user's in that role can board, whatever its program and address.
 * `by`: the place and the reason of the last that none gets past. */
static bool none_boards(const struct cfg_rules *rules, unsigned role, char by[BY])
{
    char why[BUDGET_WHY];
    const char *says;

    for (const struct cfg_node *n = rules->nodes; n; n = n->next) {
        if (n->kind != CFG_RULE || !(n->roles & role) || (n->user && n->uid != geteuid()))
            continue;
        says = kept_by(rules, &n->stream, why);
        if (!says)
            return false;
        if (is_for_all(n)) {
            snprintf(by, BY, "%.150s:%u: %s", n->at.file->path, n->at.line, says);
            return true;
        }
    }
    says = kept_by(rules, &rules->base, why);
    if (says)
        snprintf(by, BY, "where no rule says otherwise: %s", says);
    return says;
}

void doc_RULES(struct doctor *d, struct doc_result *r)
{
    struct cfg_rules rules;
    unsigned n = 0, kept = 0;
    char files[300], by[BY], strange[RULES_LOOK], number[16] = "none";

    if (!read_rules(&rules, r))
        return;
    for (const struct cfg_node *node = rules.nodes; node; node = node->next)
        if (node->kind == CFG_RULE) {
            n++;
            kept += node->stream.reason == RSN_NO_KEY;
        }
    if (n)
        snprintf(number, sizeof(number), "%u", n);
    name_files(&rules, files, sizeof(files));
    if (rules.n_errors)
        broken(r, &rules);
    else if (rules.base.reason == RSN_NO_KEY)
        doc_say(r, DOC_FAIL,
                "this user may not read the site key %.200s: connections stay on TCP, but for "
                "those that a rule gives another",
                rules.base.key_file);
    else if (!d->no_budget && none_boards(&rules, CFG_SERVER, by) &&
             none_boards(&rules, CFG_CLIENT, by)) {
        doc_say(r, DOC_FAIL, "every connection stays on TCP: %s", by);
        r->advice = "change that; railsock check shows the rules, and railsock check --match what "
                    "holds for a connection";
    } else if (rules.left_out)
        doc_say(r, DOC_NOTE, "%s%s%.200s; left out%s, as this user may not read it: %.120s", number,
                *files ? " in " : "", files,
                access(rules.left_out, F_OK) < 0 ? " if it is there" : "", rules.left_out);
    else if (rules_look(strange))
        doc_say(r, DOC_NOTE, "%s%s%.60s; %s", number, *files ? " in " : "", files, strange);
    else if (!*files && rules.base.site_key)
        doc_say(r, DOC_OK, "none; a connection boards where the peer has the site key %.200s",
                rules.base.key_file);
    else if (!*files)
        doc_say(r, DOC_OK,
                "none, so every connection may board: there is no /etc/railsock.conf%s%s",
                cfg.user_file[0] ? ", nor " : "", cfg.user_file);
    else if (kept)
        doc_say(r, DOC_NOTE, "%u in %s; %u whose key this user may not read", n, files, kept);
    else
        doc_say(r, rules.base.reason ? DOC_NOTE : DOC_OK, "%u in %s%s", n, files,
                rules.base.reason ? "; connections that none is for stay on TCP (defaults)" : "");
    cfg_rules_end(&rules);
}

/* Is there a rule for programs of some name that stands before this one, and would let a
 * connection there board? */
static bool has_exceptions(const struct cfg_rules *rules, const struct cfg_node *decides,
                           const struct rsk_tuple *t)
{
    char why[BUDGET_WHY];

    for (const struct cfg_node *n = rules->nodes; n && n != decides; n = n->next)
        if (n->kind == CFG_RULE && n->roles & CFG_CLIENT && n->program &&
            !kept_by(rules, &n->stream, why) && t->dst_port >= n->port_from &&
            t->dst_port <= n->port_to && cfg_prefix_holds(&n->to, t->family, t->dst))
            return true;
    return false;
}

void doc_RULE(struct doctor *d, struct doc_result *r)
{
    /* Its settings are looked at until the end. */
    static struct cfg_rules rules;
    struct cfg_who who = {.name = "", .exe = "", .uid = (uint32_t)geteuid()};
    const struct cfg_node *n;
    char place[300] = "the defaults", why[BUDGET_WHY];
    const char *says;

    d->set = &cfg.stream;
    if (!cfg.rules) { /* nothing boards, whatever they say */
        doc_SETTINGS(d, r);
        r->advice = "unset RAILSOCK_MODE and RAILSOCK_BOARD";
        d->stop = true;
        return;
    }
    if (!read_rules(&rules, r))
        return;
    if (rules.n_errors) {
        broken(r, &rules);
        r->advice = "railsock check shows every error with its line";
        d->stop = true;
        return;
    }
    n = cfg_rules_find(&rules, CFG_CLIENT, &who, d->tuple.family, d->tuple.dst, d->tuple.dst_port);
    d->set = n ? &n->stream : &rules.base;
    if (!d->wire_given)
        d->wire = d->set->wire;
    if (n)
        snprintf(place, sizeof(place), "%.250s:%u", n->at.file->path, n->at.line);
    says = kept_by(&rules, d->set, why);
    if (!says) {
        doc_say(r, DOC_OK, "%s%s%s", place, d->set->maps ? ", with another address for RDMA" : "",
                n ? "" : ": none is for it");
    } else if (has_exceptions(&rules, n, &d->tuple)) {
        doc_say(r, DOC_NOTE,
                "%s: connections there stay on TCP, but for programs that a rule names", place);
        d->untold = true;
    } else {
        doc_say(r, DOC_FAIL, "%s: connections there stay on TCP: %s", place, says);
        d->stop = true;
    }
}
