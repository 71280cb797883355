/*
 * The template engine. A template is ordinary CUDA in the subset it shares with C11, with these
 * directives, each alone on its line (leading blanks are legal):
 *
 *     //@use ptx/mma.cuh           this part first (before any other text; each part once)
 *     //@use ptx/a.cuh n = EXPR, k = EXPR
 *                                  a part with parameters, once for each set of values
 *     //@takes n k                 names this part's parameters (before any other text)
 *     //@for i in EXPR..EXPR       repeat up to the matching //@end with i from first to last - 1
 *     //@if EXPR  //@else  //@end  keep or drop
 *
 * `${EXPR}` in an ordinary line is replaced by its value in decimal, and so is `$i` where i is a
 * loop variable or a parameter; any other `$` is an error.
 * EXPR: integers, names of plan constants, parameters and loop variables,
 * ( ) ! - * / % + < <= > >= == != && || with C's precedence.
 */
#pragma once

#include <stddef.h>

#include "codegen/plan/plan.h"
#include "codegen/template/arguments.h"
#include "codegen/template/expression.h"
#include "codegen/text.h"

enum { SMELT__TEMPLATE_DIGEST = 16 /* bytes */ };

struct smelt__template {
    const char *name; /* "ptx/mma.cuh", relative to templates/ */
    const char *text; /* NUL-terminated */
    size_t length;
    /* A hash of this template and of all parts it uses, directly or not (runtime/digest.h). */
    unsigned char digest[SMELT__TEMPLATE_DIGEST];
};

/*
 * The library's own templates, which tools/embed.c writes at build time: a table without texts
 * (`text` is NULL), and the texts in the same order, each with its terminator, in zlib's format.
 */
extern const struct smelt__template smelt__templates[];
extern const int smelt__template_count;
extern const unsigned char smelt__templates_packed[];
extern const size_t smelt__templates_packed_size;
/* A hash of the source files of the template engine itself. */
extern const unsigned char smelt__engine_digest[SMELT__TEMPLATE_DIGEST];

/* The library's templates with their texts, which the first call unpacks and the library keeps. NULL with
 * a message if memory runs out or the packed texts are damaged. Any thread may call it. */
const struct smelt__template *smelt__templates_embedded(struct smelt__message *message);

/* The table with the texts from `packed`, for the caller to free; NULL as above. */
struct smelt__template *smelt__templates_unpack(const unsigned char *packed, size_t packed_size,
                                                struct smelt__message *message);

/* Templates in place of the embedded ones. */
struct smelt__template_table {
    const struct smelt__template *items;
    int count;
};

/* Checks a template's syntax (directives known, balanced and well-formed, expressions parse). 0, or
 * -1 with the message and the line in *line. Used at build time. */
int smelt__template_check(const char *text, int *line, struct smelt__message *message);

/* One //@use. */
struct smelt__use {
    const char *part;
    struct smelt__arguments arguments;
    int line; /* line number, from 1 */
};

/* Calls `each` for every //@use of a template; its parameters. Assume a checked template. */
void smelt__template_uses(const char *text, void (*each)(void *user, const struct smelt__use *use),
                          void *user);
void smelt__template_takes(const char *text, struct smelt__parameters *parameters);

/* Appends the expanded template with `#line` markers ("templates/NAME"), so that every emitted line
 * maps to its template's line. `scope`: expression.h. */
int smelt__template_expand(const struct smelt__template *template_,
                           const struct smelt__scope *scope, struct smelt__text *out,
                           struct smelt__message *message);

/* Checks a whole table: each template's syntax, that every used part exists and gets its arguments,
 * and that no part uses itself. 0, or -1 with the message, the template in *index and the line in
 * *line. Used at build time. */
int smelt__parts_check(const struct smelt__template *templates, int count, int *index, int *line,
                       struct smelt__message *message);

/* Calls `each` for template number `root` and for all parts it uses, directly or not, once each, in
 * the order in which they are emitted. 0, or -1 with a message; in a checked table only a lack of
 * memory can fail. */
int smelt__parts_each(const struct smelt__template *templates, int count, int root,
                      void (*each)(void *user, const struct smelt__template *part), void *user,
                      struct smelt__message *message);

/* Appends the parts that `root`, which takes no parameters, uses, depth first, each once per set of
 * arguments, and then `root`. */
int smelt__parts_emit(const struct smelt__template *templates, int count, const char *root,
                      const struct smelt__scope *scope, struct smelt__text *out,
                      struct smelt__message *message);

/* The complete source of a plan: banner, prologue, parts in dependency order. `table`: NULL for the
 * embedded templates. 0, or -1 with a message (a defect of a template). */
int smelt__source_emit(const struct smelt__plan *plan, const struct smelt__template_table *table,
                       struct smelt__text *out, struct smelt__message *message);

/*
 * Appends a short text that determines the source: banner and prologue, which contain every name
 * that a template can use, the digest of the plan's template, and the engine's. Plans with different
 * sources have different texts. Templates that differ only in lines that the plan drops have
 * different texts, too, though the same source.
 */
int smelt__source_identify(const struct smelt__plan *plan,
                           const struct smelt__template_table *table, struct smelt__text *out,
                           struct smelt__message *message);
