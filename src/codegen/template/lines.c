/* See lines.h; engine.h describes the directives. */
#include "codegen/template/lines.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/template/engine.h"
#include "codegen/template/expression.h"

enum { MAX_BLOCK_DEPTH = 16, MARK_LENGTH = 3, MAX_PART_NAME = 127 };

static int is_blank(char c) {
    return c == ' ' || c == '\t';
}

static void trim(const char **text, size_t *length) {
    while (*length && is_blank(**text)) {
        ++*text;
        --*length;
    }
    while (*length && is_blank((*text)[*length - 1]))
        --*length;
}

static int holds_mark(const char *text, size_t length) {
    return memmem(text, length, "//@", MARK_LENGTH) != NULL;
}

/* Splits "i in EXPR..EXPR". */
static int split_for(struct smelt__line *line, struct smelt__message *message) {
    const char *text = line->text;
    line->name_length = smelt__name_length(text, line->length);
    size_t at = line->name_length;
    while (at < line->length && is_blank(text[at]))
        at++;
    const char *dots = memmem(text, line->length, "..", 2);
    if (!line->name_length || at == line->name_length || at + 3 > line->length ||
        memcmp(text + at, "in", 2) != 0 || !is_blank(text[at + 2]) || !dots)
        return smelt__message_set(message, "write //@for NAME in EXPR..EXPR");
    line->first = at + 3;
    line->last = (size_t)(dots - text) + 2;
    if (line->last < line->first + 2)
        return smelt__message_set(message, "write //@for NAME in EXPR..EXPR");
    line->first_length = line->last - 2 - line->first;
    line->last_length = line->length - line->last;
    if (smelt__expression_check(text + line->first, line->first_length, message))
        return -1;
    return smelt__expression_check(text + line->last, line->last_length, message);
}

/* Length of the part's name in //@use. */
static size_t part_length(const char *text, size_t length) {
    size_t at = 0;
    while (at < length && !is_blank(text[at]))
        at++;
    return at;
}

/* Splits "PART NAME = EXPR, ...". */
static int split_use(struct smelt__line *line, struct smelt__message *message) {
    struct smelt__arguments arguments;
    line->name_length = part_length(line->text, line->length);
    if (line->name_length > MAX_PART_NAME)
        return smelt__message_set(message, "//@use takes a name of at most %d characters",
                                  MAX_PART_NAME);
    return smelt__arguments_read(line->text + line->name_length, line->length - line->name_length,
                                 &arguments, message);
}

/* Parses the text after `//@`. */
static int read_directive(struct smelt__line *line, const char *text, size_t length,
                          struct smelt__message *message) {
    static const struct {
        const char *name;
        enum smelt__line_kind kind;
    } directives[] = {{"use", SMELT__USE}, {"takes", SMELT__TAKES}, {"for", SMELT__FOR},
                      {"if", SMELT__IF},   {"else", SMELT__ELSE},   {"end", SMELT__END}};
    size_t name_length = smelt__name_length(text, length);
    size_t found = 0, count = sizeof directives / sizeof directives[0];
    while (found < count && (strlen(directives[found].name) != name_length ||
                             memcmp(directives[found].name, text, name_length) != 0))
        found++;
    if (found == count)
        return smelt__message_set(
            message, "unknown directive //@%.*s; known: use, takes, for, if, else, end",
            (int)(name_length < 40 ? name_length : 40), text);
    line->kind = directives[found].kind;
    line->text = text + name_length;
    line->length = length - name_length;
    trim(&line->text, &line->length);
    int wants_argument = line->kind != SMELT__ELSE && line->kind != SMELT__END;
    if (wants_argument != (line->length > 0))
        return smelt__message_set(message, "//@%s %s", directives[found].name,
                                  wants_argument ? "lacks its argument" : "takes no argument");
    if (holds_mark(line->text, line->length))
        return smelt__message_set(message, "a directive stands alone on its line");
    if (line->kind == SMELT__USE)
        return split_use(line, message);
    if (line->kind == SMELT__IF)
        return smelt__expression_check(line->text, line->length, message);
    return line->kind == SMELT__FOR ? split_for(line, message) : 0;
}

/* The open blocks during the check. */
struct open_blocks {
    int lines[MAX_BLOCK_DEPTH]; /* the last SMELT__FOR, SMELT__IF or SMELT__ELSE of each */
    int count;
};

static int same_name(const struct smelt__line *line, const char *name, size_t length) {
    return line->name_length == length && memcmp(line->text, name, length) == 0;
}

/* Whether a parameter or a loop variable of that name is in scope. */
static int is_variable(const struct smelt__lines *lines, const struct open_blocks *open,
                       const char *name, size_t length) {
    if (smelt__parameter_find(&lines->parameters, name, length) >= 0)
        return 1;
    for (int i = 0; i < open->count; i++) {
        const struct smelt__line *line = &lines->items[open->lines[i]];
        if (line->kind == SMELT__FOR && same_name(line, name, length))
            return 1;
    }
    return 0;
}

struct smelt__substitution smelt__substitution_read(const char *text, size_t length) {
    struct smelt__substitution substitution = {text + 1, 0, 0};
    if (length > 1 && text[1] == '{') {
        const char *brace = memchr(text, '}', length);
        if (brace) {
            substitution.text = text + 2;
            substitution.length = (size_t)(brace - substitution.text);
            substitution.used = (size_t)(brace - text) + 1;
        }
    } else {
        substitution.length = smelt__name_length(text + 1, length - 1);
        substitution.used = substitution.length ? substitution.length + 1 : 0;
    }
    return substitution;
}

static int check_dollars(const struct smelt__lines *lines, const struct open_blocks *open,
                         const struct smelt__line *line, struct smelt__message *message) {
    const char *at = line->text, *end = line->text + line->length;
    while ((at = memchr(at, '$', (size_t)(end - at)))) {
        struct smelt__substitution substitution = smelt__substitution_read(at, (size_t)(end - at));
        if (!substitution.used)
            return smelt__message_set(message, "'$' is not followed by a name or {EXPR}");
        if (at[1] == '{') {
            if (smelt__expression_check(substitution.text, substitution.length, message))
                return -1;
        } else if (!is_variable(lines, open, substitution.text, substitution.length)) {
            int shown = (int)(substitution.length < 60 ? substitution.length : 60);
            return smelt__message_set(
                message,
                "$%.*s: no loop variable or parameter of that name here; a constant "
                "is ${%.*s}",
                shown, substitution.text, shown, substitution.text);
        }
        at += substitution.used;
    }
    return 0;
}

static int open_block(struct smelt__lines *lines, struct open_blocks *open, int index,
                      struct smelt__message *message) {
    const struct smelt__line *line = &lines->items[index];
    if (open->count == MAX_BLOCK_DEPTH)
        return smelt__message_set(message, "blocks are nested deeper than %d", MAX_BLOCK_DEPTH);
    if (line->kind == SMELT__FOR && is_variable(lines, open, line->text, line->name_length))
        return smelt__message_set(
            message, "the loop variable '%.*s' is in use by an outer //@for or as a parameter",
            (int)(line->name_length < 60 ? line->name_length : 60), line->text);
    open->lines[open->count++] = index;
    return 0;
}

static int take_parameters(struct smelt__lines *lines, const struct smelt__line *line,
                           struct smelt__message *message) {
    if (lines->parameters.count)
        return smelt__message_set(message, "a second //@takes");
    return smelt__parameters_read(line->text, line->length, &lines->parameters, message);
}

/* Joins an SMELT__ELSE or SMELT__END to the block it belongs to. */
static int close_block(struct smelt__lines *lines, struct open_blocks *open, int index,
                       struct smelt__message *message) {
    struct smelt__line *line = &lines->items[index];
    if (!open->count)
        return smelt__message_set(message, "//@%s without an open //@if%s",
                                  line->kind == SMELT__ELSE ? "else" : "end",
                                  line->kind == SMELT__ELSE ? "" : " or //@for");
    struct smelt__line *opening = &lines->items[open->lines[open->count - 1]];
    if (line->kind == SMELT__ELSE && opening->kind != SMELT__IF)
        return smelt__message_set(message, opening->kind == SMELT__ELSE
                                               ? "a second //@else of one //@if"
                                               : "//@else inside //@for");
    opening->next = index;
    if (line->kind == SMELT__ELSE)
        open->lines[open->count - 1] = index;
    else
        open->count--;
    return 0;
}

static int check_line(struct smelt__lines *lines, struct open_blocks *open, int index,
                      int *text_has_begun, struct smelt__message *message) {
    const struct smelt__line *line = &lines->items[index];
    /* `#line` follows a directive and must not land inside a macro's definition. */
    if (line->kind != SMELT__ORDINARY && index > 0) {
        const struct smelt__line *before = &lines->items[index - 1];
        if (before->kind == SMELT__ORDINARY && before->length &&
            before->text[before->length - 1] == '\\')
            return smelt__message_set(message,
                                      "a directive cannot follow a line that ends in '\\'");
    }
    switch (line->kind) {
    case SMELT__USE:
    case SMELT__TAKES:
        if (*text_has_begun)
            return smelt__message_set(message, "//@%s comes before any other text",
                                      line->kind == SMELT__USE ? "use" : "takes");
        return line->kind == SMELT__USE ? 0 : take_parameters(lines, line, message);
    case SMELT__FOR:
    case SMELT__IF:
        *text_has_begun = 1;
        return open_block(lines, open, index, message);
    case SMELT__ELSE:
    case SMELT__END:
        return close_block(lines, open, index, message);
    case SMELT__ORDINARY:
        *text_has_begun |= line->length > 0;
        return 0;
    }
    return -1;
}

/* Where the next "//@" is, by its '@', or the text's end. */
static const char *next_mark(const char *text) {
    const char *at = strchrnul(text, '@');
    while (*at && (at < text + 2 || at[-1] != '/' || at[-2] != '/'))
        at = strchrnul(at + 1, '@');
    return at;
}

/* Reads a line that holds "//@". */
static int read_marked(struct smelt__line *line, struct smelt__message *message) {
    const char *start = line->text;
    size_t length = line->length;
    trim(&start, &length);
    if (length >= MARK_LENGTH && memcmp(start, "//@", MARK_LENGTH) == 0)
        return read_directive(line, start + MARK_LENGTH, length - MARK_LENGTH, message);
    return smelt__message_set(message, "a directive stands alone on its line");
}

static int count_lines(const char *text) {
    int count = 0;
    for (; *text; count++) {
        text = strchrnul(text, '\n');
        text += *text == '\n';
    }
    return count;
}

int smelt__lines_read(const char *text, struct smelt__lines *lines, int *number,
                      struct smelt__message *message) {
    struct open_blocks open = {{0}, 0};
    int text_has_begun = 0;
    int count = count_lines(text);
    *number = 0;
    lines->count = 0;
    lines->parameters.count = 0;
    lines->items = calloc((size_t)count + 1, sizeof *lines->items);
    if (!lines->items)
        return smelt__message_set_out_of_memory(message);
    const char *mark = next_mark(text), *dollar = strchrnul(text, '$');
    for (int i = 0; i < count; i++) {
        struct smelt__line *line = &lines->items[i];
        const char *end = strchrnul(text, '\n');
        line->number = *number = i + 1;
        line->text = text;
        line->length = (size_t)(end - text);
        if (mark < end) {
            if (read_marked(line, message))
                return -1;
            mark = next_mark(end);
        }
        lines->count = i + 1;
        if (check_line(lines, &open, i, &text_has_begun, message) ||
            (dollar < end && line->kind == SMELT__ORDINARY &&
             check_dollars(lines, &open, line, message)))
            return -1;
        if (dollar < end)
            dollar = strchrnul(end, '$');
        text = end + (*end == '\n');
    }
    if (open.count) {
        const struct smelt__line *opening = &lines->items[open.lines[open.count - 1]];
        *number = opening->number;
        return smelt__message_set(message, "//@%s has no //@end",
                                  opening->kind == SMELT__FOR    ? "for"
                                  : opening->kind == SMELT__ELSE ? "else"
                                                                 : "if");
    }
    return 0;
}

/* ---- directives of one kind ------------------------------------------------------------------ */

int smelt__template_check(const char *text, int *line, struct smelt__message *message) {
    struct smelt__lines lines;
    int status = smelt__lines_read(text, &lines, line, message);
    free(lines.items);
    return status;
}

/* Calls `each` for every //@use or //@takes; no other text comes before them. */
static void each_directive(const char *text, enum smelt__line_kind kind,
                           void (*each)(void *user, const struct smelt__line *line), void *user) {
    for (int number = 1; *text; number++) {
        const char *end = strchrnul(text, '\n');
        const char *start = text;
        size_t length = (size_t)(end - text);
        trim(&start, &length);
        struct smelt__line line = {.number = number};
        struct smelt__message ignored;
        if (length && (length < MARK_LENGTH || memcmp(start, "//@", MARK_LENGTH) != 0))
            return;
        if (length && !read_directive(&line, start + MARK_LENGTH, length - MARK_LENGTH, &ignored) &&
            line.kind == kind)
            each(user, &line);
        text = end + (*end == '\n');
    }
}

struct use_callback {
    void (*each)(void *user, const struct smelt__use *use);
    void *user;
};

static void call_use(void *data, const struct smelt__line *line) {
    const struct use_callback *callback = data;
    struct smelt__message ignored;
    char part[MAX_PART_NAME + 1];
    struct smelt__use use = {.part = part, .line = line->number};
    memcpy(part, line->text, line->name_length);
    part[line->name_length] = '\0';
    smelt__arguments_read(line->text + line->name_length, line->length - line->name_length,
                          &use.arguments, &ignored);
    callback->each(callback->user, &use);
}

void smelt__template_uses(const char *text, void (*each)(void *user, const struct smelt__use *use),
                          void *user) {
    struct use_callback callback = {each, user};
    each_directive(text, SMELT__USE, call_use, &callback);
}

static void read_takes(void *data, const struct smelt__line *line) {
    struct smelt__message ignored;
    smelt__parameters_read(line->text, line->length, data, &ignored);
}

void smelt__template_takes(const char *text, struct smelt__parameters *parameters) {
    parameters->count = 0;
    each_directive(text, SMELT__TAKES, read_takes, parameters);
}
