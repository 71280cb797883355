/* See engine.h: templates and the parts they //@use, depth first, each once. */
#include <stdlib.h>
#include <string.h>

#include "codegen/engine.h"

enum state { UNSEEN = 0, BEGUN, DONE };

struct walk {
    const struct smelt__template *templates;
    int count;
    char *states;                     /* one `enum state` per template */
    const struct smelt__scope *scope; /* NULL: follow the uses alone */
    struct smelt__text *out;
    struct smelt__message *message;
    int failed_at; /* index of the template whose //@use is wrong, and the name it uses */
    char failed_name[128];
};

static int find_part(const struct walk *walk, const char *name) {
    for (int i = 0; i < walk->count; i++)
        if (strcmp(walk->templates[i].name, name) == 0)
            return i;
    return -1;
}

static int visit(struct walk *walk, int index);

/* What smelt__template_uses calls back with. */
struct use {
    struct walk *walk;
    int user; /* index of the template that uses */
    int status;
};

static void visit_use(void *data, const char *name) {
    struct use *use = data;
    struct walk *walk = use->walk;
    if (use->status)
        return;
    int index = find_part(walk, name);
    if (index >= 0 && walk->states[index] != BEGUN) {
        use->status = visit(walk, index);
        return;
    }
    const char *user = walk->templates[use->user].name;
    if (index < 0)
        smelt__message_set(walk->message, "%s uses %s, which does not exist", user, name);
    else
        smelt__message_set(walk->message, "%s uses %s, which uses it in turn", user, name);
    walk->failed_at = use->user;
    strncpy(walk->failed_name, name, sizeof walk->failed_name - 1);
    use->status = -1;
}

static int visit(struct walk *walk, int index) {
    if (walk->states[index] == DONE)
        return 0;
    walk->states[index] = BEGUN;
    struct use use = {walk, index, 0};
    smelt__template_uses(walk->templates[index].text, visit_use, &use);
    if (use.status)
        return -1;
    walk->states[index] = DONE;
    if (!walk->scope)
        return 0;
    /* Parts stand a blank line apart. */
    const struct smelt__text *out = walk->out;
    if (out->length >= 2 && memcmp(out->data + out->length - 2, "\n\n", 2) != 0)
        smelt__text_append(walk->out, "\n", 1);
    return smelt__template_expand(&walk->templates[index], walk->scope, walk->out, walk->message);
}

int smelt__parts_emit(const struct smelt__template *templates, int count, const char *root,
                      const struct smelt__scope *scope, struct smelt__text *out,
                      struct smelt__message *message) {
    struct walk walk = {
        .templates = templates, .count = count, .scope = scope, .out = out, .message = message};
    int status = -1;
    int index = find_part(&walk, root);
    if (index < 0) {
        smelt__message_set(message, "there is no template '%s'", root);
        return -1;
    }
    walk.states = calloc((size_t)count, 1);
    if (walk.states)
        status = visit(&walk, index);
    else
        smelt__message_set(message, "out of memory");
    free(walk.states);
    return status;
}

/* The line of a //@use of that name: the first that holds the name at all. */
static int line_of_use(const char *text, const char *name) {
    const char *at = strstr(text, name);
    int line = 1;
    for (; at && text < at; text++)
        line += *text == '\n';
    return line;
}

int smelt__parts_check(const struct smelt__template *templates, int count, int *index, int *line,
                       struct smelt__message *message) {
    for (*index = 0; *index < count; ++*index)
        if (smelt__template_check(templates[*index].text, line, message))
            return -1;
    struct walk walk = {.templates = templates, .count = count, .message = message};
    int status = 0;
    *index = *line = 0;
    walk.states = calloc((size_t)count + 1, 1);
    if (!walk.states) {
        smelt__message_set(message, "out of memory");
        return -1;
    }
    for (int i = 0; i < count && !status; i++)
        status = visit(&walk, i);
    if (status) {
        *index = walk.failed_at;
        *line = line_of_use(templates[walk.failed_at].text, walk.failed_name);
    }
    free(walk.states);
    return status;
}
