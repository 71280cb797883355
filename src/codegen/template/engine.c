/* See engine.h. Expanding walks a template's lines (lines.h). */
#include "codegen/template/engine.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/template/expression.h"
#include "codegen/template/lines.h"

enum { MAX_ITERATIONS = 4096 };

/* One loop variable; the innermost is the list's head. */
struct variable {
    const char *name;
    size_t length;
    int value;
    const struct variable *outer;
};

struct expansion {
    const struct smelt__template *template_;
    const struct smelt__lines *lines;
    const struct smelt__scope *constants;
    const struct variable *variables;
    int expected; /* the line number the compiler would give to the next emitted line */
    struct smelt__text *out;
    struct smelt__message *message;
};

static int find_variable(const struct expansion *expansion, const char *name, size_t length,
                         int *value) {
    for (const struct variable *v = expansion->variables; v; v = v->outer) {
        if (v->length == length && memcmp(v->name, name, length) == 0) {
            *value = v->value;
            return 1;
        }
    }
    return 0;
}

static int lookup(const void *user, const char *name, int *found) {
    const struct expansion *expansion = user;
    int value = 0;
    *found = 1;
    if (find_variable(expansion, name, strlen(name), &value))
        return value;
    return expansion->constants->lookup(expansion->constants->user, name, found);
}

/* Prefixes the message with the template's name and line, unless memory ran out. */
static void place_message(const struct expansion *expansion, const struct smelt__line *line) {
    struct smelt__message reason = *expansion->message;
    if (reason.out_of_memory)
        return;
    smelt__message_set(expansion->message, "templates/%.100s:%d: %.800s",
                       expansion->template_->name, line->number, reason.text);
}

static int evaluate(const struct expansion *expansion, const struct smelt__line *line,
                    const char *text, size_t length, int *value) {
    struct smelt__scope scope = {lookup, expansion};
    if (!smelt__expression_evaluate(text, length, &scope, value, expansion->message))
        return 0;
    place_message(expansion, line);
    return -1;
}

static int expand_ordinary(struct expansion *expansion, const struct smelt__line *line) {
    if (expansion->expected != line->number)
        smelt__text_print(expansion->out, "#line %d \"templates/%s\"\n", line->number,
                          expansion->template_->name);
    expansion->expected = line->number + 1;
    const char *at = line->text, *end = line->text + line->length;
    const char *dollar;
    while ((dollar = memchr(at, '$', (size_t)(end - at)))) {
        smelt__text_append(expansion->out, at, (size_t)(dollar - at));
        struct smelt__substitution substitution =
            smelt__substitution_read(dollar, (size_t)(end - dollar));
        int value;
        if (evaluate(expansion, line, substitution.text, substitution.length, &value))
            return -1;
        smelt__text_print(expansion->out, "%d", value);
        at = dollar + substitution.used;
    }
    if (*end) /* with the end of the line */
        smelt__text_append(expansion->out, at, (size_t)(end - at) + 1);
    else {
        smelt__text_append(expansion->out, at, (size_t)(end - at));
        smelt__text_append(expansion->out, "\n", 1);
    }
    return 0;
}

static int expand_range(struct expansion *expansion, int first, int end);

static int expand_for(struct expansion *expansion, int index) {
    const struct smelt__line *line = &expansion->lines->items[index];
    int first, last;
    if (evaluate(expansion, line, line->text + line->first, line->first_length, &first) ||
        evaluate(expansion, line, line->text + line->last, line->last_length, &last))
        return -1;
    if ((long long)last - first > MAX_ITERATIONS) {
        smelt__message_set(expansion->message, "the loop %d..%d is longer than %d", first, last,
                           MAX_ITERATIONS);
        place_message(expansion, line);
        return -1;
    }
    struct variable variable = {line->text, line->name_length, 0, expansion->variables};
    int status = 0;
    expansion->variables = &variable;
    for (int i = first; i < last && !status; i++) {
        variable.value = i;
        status = expand_range(expansion, index + 1, line->next);
    }
    expansion->variables = variable.outer;
    return status;
}

/* Expands an SMELT__IF with its SMELT__ELSE; *end: the index of its SMELT__END. */
static int expand_if(struct expansion *expansion, int index, int *end) {
    const struct smelt__line *items = expansion->lines->items;
    const struct smelt__line *line = &items[index];
    int else_ = items[line->next].kind == SMELT__ELSE ? line->next : -1;
    *end = else_ < 0 ? line->next : items[else_].next;
    int value;
    if (evaluate(expansion, line, line->text, line->length, &value))
        return -1;
    if (value)
        return expand_range(expansion, index + 1, line->next);
    return else_ < 0 ? 0 : expand_range(expansion, else_ + 1, *end);
}

/* Expands lines first..end - 1, which contain whole blocks. */
static int expand_range(struct expansion *expansion, int first, int end) {
    for (int i = first; i < end; i++) {
        const struct smelt__line *line = &expansion->lines->items[i];
        int status = 0;
        if (line->kind == SMELT__ORDINARY) {
            status = expand_ordinary(expansion, line);
        } else if (line->kind == SMELT__IF) {
            status = expand_if(expansion, i, &i);
        } else if (line->kind == SMELT__FOR) {
            status = expand_for(expansion, i);
            i = line->next;
        }
        if (status)
            return -1;
    }
    return 0;
}

int smelt__template_expand(const struct smelt__template *template_,
                           const struct smelt__scope *scope, struct smelt__text *out,
                           struct smelt__message *message) {
    struct smelt__lines lines;
    int number;
    int status = smelt__lines_read(template_->text, &lines, &number, message);
    struct expansion expansion = {template_, &lines, scope, NULL, 0, out, message};
    if (status) {
        struct smelt__line line = {.number = number};
        place_message(&expansion, &line);
    } else {
        status = expand_range(&expansion, 0, lines.count);
    }
    free(lines.items);
    if (!status && out->failed) {
        smelt__message_set_out_of_memory(message);
        status = -1;
    }
    return status;
}
