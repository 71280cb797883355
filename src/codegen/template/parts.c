/* See engine.h: templates and the parts they //@use, depth first, each once for each set of
 * arguments. */
#include <stdlib.h>
#include <string.h>

#include "codegen/template/engine.h"
#include "codegen/template/expression.h"

/* A template with its parameters' values. */
struct part {
    int index; /* of the template */
    struct smelt__parameters parameters;
    int values[SMELT__PARAMETERS];
};

struct walk {
    const struct smelt__template *templates;
    int count;
    char *begun;                      /* per template: currently being visited */
    const struct smelt__scope *scope; /* the plan's constants; NULL: only follow the uses */
    struct part *done;
    int done_count, done_capacity;
    struct smelt__text *out;
    struct smelt__message *message;
    int failed_at, failed_line; /* position of the wrong //@use */
};

static int find_template(const struct walk *walk, const char *name) {
    for (int i = 0; i < walk->count; i++)
        if (strcmp(walk->templates[i].name, name) == 0)
            return i;
    return -1;
}

static int same_part(const struct part *a, const struct part *b) {
    return a->index == b->index && memcmp(a->values, b->values, sizeof a->values) == 0;
}

static int is_done(const struct walk *walk, const struct part *part) {
    for (int i = 0; i < walk->done_count; i++)
        if (same_part(&walk->done[i], part))
            return 1;
    return 0;
}

static int add_done(struct walk *walk, const struct part *part) {
    if (walk->done_count == walk->done_capacity) {
        int capacity = 2 * walk->done_capacity + 16;
        struct part *done = realloc(walk->done, (size_t)capacity * sizeof *done);
        if (!done)
            return smelt__message_set_out_of_memory(walk->message);
        walk->done = done;
        walk->done_capacity = capacity;
    }
    walk->done[walk->done_count++] = *part;
    return 0;
}

/* The names a part sees: its parameters, then the plan's constants. */
struct part_scope {
    const struct part *part;
    const struct smelt__scope *constants;
};

static int lookup(const void *user, const char *name, int *found) {
    const struct part_scope *scope = user;
    int index = smelt__parameter_find(&scope->part->parameters, name, strlen(name));
    *found = 1;
    return index >= 0 ? scope->part->values[index]
                      : scope->constants->lookup(scope->constants->user, name, found);
}

static int visit(struct walk *walk, const struct part *part);

/* State of the callback of smelt__template_uses. */
struct visit_uses {
    struct walk *walk;
    const struct part *user;
    int status;
};

/* The used part's values, in the order of its parameters. */
static int evaluate(const struct visit_uses *uses, const struct smelt__use *use,
                    struct part *part) {
    struct walk *walk = uses->walk;
    struct part_scope part_scope = {uses->user, walk->scope};
    struct smelt__scope scope = {lookup, &part_scope};
    if (smelt__arguments_match(&use->arguments, &part->parameters, use->part, walk->message))
        return -1;
    for (int i = 0; walk->scope && i < use->arguments.count; i++) {
        const struct smelt__argument *argument = &use->arguments.items[i];
        int index = smelt__parameter_find(&part->parameters, argument->name, argument->length);
        if (smelt__expression_evaluate(argument->expression, argument->expression_length, &scope,
                                       &part->values[index], walk->message))
            return -1;
    }
    return 0;
}

/* Prefixes the message with the template's name and line. */
static void place_message(const struct walk *walk) {
    struct smelt__message reason = *walk->message;
    if (reason.out_of_memory)
        return;
    smelt__message_set(walk->message, "templates/%.100s:%d: %.800s",
                       walk->templates[walk->failed_at].name, walk->failed_line, reason.text);
}

static int visit_use(const struct visit_uses *uses, const struct smelt__use *use) {
    struct walk *walk = uses->walk;
    const char *user = walk->templates[uses->user->index].name;
    struct part part = {.index = find_template(walk, use->part)};
    walk->failed_at = uses->user->index;
    walk->failed_line = use->line;
    if (part.index < 0)
        return smelt__message_set(walk->message, "%s uses %s, which does not exist", user,
                                  use->part);
    if (walk->begun[part.index])
        return smelt__message_set(walk->message, "%s uses %s, which uses it in turn", user,
                                  use->part);
    smelt__template_takes(walk->templates[part.index].text, &part.parameters);
    if (evaluate(uses, use, &part)) {
        if (walk->scope)
            place_message(walk);
        return -1;
    }
    return visit(walk, &part);
}

static void each_use(void *data, const struct smelt__use *use) {
    struct visit_uses *uses = data;
    if (!uses->status)
        uses->status = visit_use(uses, use);
}

static int visit(struct walk *walk, const struct part *part) {
    if (is_done(walk, part))
        return 0;
    const struct smelt__template *template_ = &walk->templates[part->index];
    struct visit_uses uses = {walk, part, 0};
    walk->begun[part->index] = 1;
    smelt__template_uses(template_->text, each_use, &uses);
    walk->begun[part->index] = 0;
    if (uses.status || add_done(walk, part))
        return -1;
    if (!walk->scope)
        return 0;
    /* A blank line between parts. */
    const struct smelt__text *out = walk->out;
    if (out->length >= 2 && memcmp(out->data + out->length - 2, "\n\n", 2) != 0)
        smelt__text_append(walk->out, "\n", 1);
    struct part_scope part_scope = {part, walk->scope};
    struct smelt__scope scope = {lookup, &part_scope};
    return smelt__template_expand(template_, &scope, walk->out, walk->message);
}

static int walk_begin(struct walk *walk) {
    walk->begun = calloc((size_t)walk->count + 1, 1);
    if (!walk->begun)
        smelt__message_set_out_of_memory(walk->message);
    return walk->begun ? 0 : -1;
}

static void walk_end(struct walk *walk) {
    free(walk->begun);
    free(walk->done);
}

int smelt__parts_each(const struct smelt__template *templates, int count, int root,
                      void (*each)(void *user, const struct smelt__template *part), void *user,
                      struct smelt__message *message) {
    struct walk walk = {.templates = templates, .count = count, .message = message};
    int status = walk_begin(&walk);
    if (!status)
        status = visit(&walk, &(struct part){.index = root});
    for (int i = 0; i < walk.done_count && !status; i++)
        each(user, &templates[walk.done[i].index]);
    walk_end(&walk);
    return status;
}

int smelt__parts_emit(const struct smelt__template *templates, int count, const char *root,
                      const struct smelt__scope *scope, struct smelt__text *out,
                      struct smelt__message *message) {
    static const struct smelt__arguments none;
    struct walk walk = {
        .templates = templates, .count = count, .scope = scope, .out = out, .message = message};
    struct part part = {.index = find_template(&walk, root)};
    if (part.index < 0)
        return smelt__message_set(message, "there is no template '%s'", root);
    smelt__template_takes(templates[part.index].text, &part.parameters);
    int status = smelt__arguments_match(&none, &part.parameters, root, message);
    if (!status)
        status = walk_begin(&walk);
    if (!status)
        status = visit(&walk, &part);
    walk_end(&walk);
    return status;
}

int smelt__parts_check(const struct smelt__template *templates, int count, int *index, int *line,
                       struct smelt__message *message) {
    for (*index = 0; *index < count; ++*index)
        if (smelt__template_check(templates[*index].text, line, message))
            return -1;
    struct walk walk = {.templates = templates, .count = count, .message = message};
    int status = walk_begin(&walk);
    for (int i = 0; i < count && !status; i++)
        status = visit(&walk, &(struct part){.index = i});
    *index = walk.failed_at;
    *line = walk.failed_line;
    walk_end(&walk);
    return status;
}
