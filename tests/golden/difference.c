#include "difference.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for an emitted source: the longest has 1,800 lines. */
enum { MAX_LINES = 20000, PART_NAME = 128 };

struct lines {
    int count;
    struct line {
        const char *text; /* the newline included in the length */
        size_t length;
        int part; /* counts the parts of the text */
    } * items;
    int part_count;
    char (*parts)[PART_NAME];
};

static void lines_free(struct lines *lines) {
    free(lines->items);
    free(lines->parts);
}

/* The name in a line `#line N "NAME"`; its length 0 in other lines. */
static const char *marker(const struct line *line, size_t *length) {
    *length = 0;
    if (line->length < 6 || memcmp(line->text, "#line ", 6) != 0)
        return NULL;
    const char *name = memchr(line->text, '"', line->length);
    if (!name)
        return NULL;
    name++;
    *length = strcspn(name, "\"\n");
    return name;
}

/* A part begins where another template's name comes. */
static void add_part(struct lines *lines, const char *name, size_t length) {
    int earlier = 0;
    for (int i = 0; i < lines->part_count; i++)
        earlier += strncmp(lines->parts[i], name, length) == 0 &&
                   (lines->parts[i][length] == '\0' || lines->parts[i][length] == ' ');
    char *part = lines->parts[lines->part_count++];
    if (earlier)
        snprintf(part, PART_NAME, "%.*s (%d)", (int)length, name, earlier + 1);
    else
        snprintf(part, PART_NAME, "%.*s", (int)length, name);
}

static int lines_split(const char *text, struct lines *lines) {
    const char *name = "banner";
    size_t name_length = strlen(name);
    *lines = (struct lines){0};
    lines->items = calloc(MAX_LINES, sizeof *lines->items);
    lines->parts = calloc(MAX_LINES, sizeof *lines->parts);
    if (!lines->items || !lines->parts) {
        fprintf(stderr, "out of memory\n");
        return -1;
    }
    add_part(lines, name, name_length);
    while (*text) {
        const char *end = strchr(text, '\n');
        if (!end || lines->count == MAX_LINES) {
            fprintf(stderr, "a source of more than %d lines, or without its last newline\n",
                    MAX_LINES);
            return -1;
        }
        struct line *line = &lines->items[lines->count++];
        line->text = text;
        line->length = (size_t)(end - text) + 1;
        size_t length;
        const char *marked = marker(line, &length);
        if (marked && (length != name_length || memcmp(marked, name, length) != 0)) {
            name = marked;
            name_length = length;
            add_part(lines, name, length);
        }
        line->part = lines->part_count - 1;
        text = end + 1;
    }
    return 0;
}

static int same(const struct line *a, const struct line *b) {
    return a->length == b->length && memcmp(a->text, b->text, a->length) == 0;
}

/* Of the longest common subsequence of what begins at line i and what begins at line j: its length
 * at [i * (to's count + 1) + j]. */
static uint16_t *common_lengths(const struct lines *from, const struct lines *to) {
    size_t width = (size_t)to->count + 1;
    uint16_t *lengths = calloc(((size_t)from->count + 1) * width, sizeof *lengths);
    if (!lengths) {
        fprintf(stderr, "out of memory\n");
        return NULL;
    }
    for (int i = from->count - 1; i >= 0; i--) {
        uint16_t *row = lengths + (size_t)i * width, *next = row + width;
        for (int j = to->count - 1; j >= 0; j--) {
            if (same(&from->items[i], &to->items[j]))
                row[j] = (uint16_t)(next[j + 1] + 1);
            else
                row[j] = next[j] > row[j + 1] ? next[j] : row[j + 1];
        }
    }
    return lengths;
}

/* The part that line `i` stands in, or would; past the last it is the last. */
static int part_at(const struct lines *lines, int i) {
    return i < lines->count ? lines->items[i].part : lines->part_count - 1;
}

/* Where the counting of alike lines begins for a difference at line `i` when the one before ended
 * ahead of line `done`. */
static int counted_from(const struct lines *lines, int i, int done) {
    int part = part_at(lines, i), begin = i;
    while (begin > done && lines->items[begin - 1].part == part)
        begin--;
    return begin;
}

int difference_write(const char *from_text, const char *to_text, struct smelt__text *out) {
    struct lines from = {0}, to = {0};
    uint16_t *lengths = NULL;
    int status = -1, done = 0;
    if (lines_split(from_text, &from) || lines_split(to_text, &to))
        goto out;
    lengths = common_lengths(&from, &to);
    if (!lengths)
        goto out;
    size_t width = (size_t)to.count + 1;
    for (int i = 0, j = 0; i < from.count || j < to.count;) {
        if (i < from.count && j < to.count && same(&from.items[i], &to.items[j])) {
            i++;
            j++;
            continue;
        }
        int first = i, first_new = j;
        while ((i < from.count || j < to.count) &&
               (i == from.count || j == to.count || !same(&from.items[i], &to.items[j]))) {
            const uint16_t *row = lengths + (size_t)i * width;
            if (j == to.count || (i < from.count && row[width + (size_t)j] >= row[j + 1]))
                i++;
            else
                j++;
        }
        smelt__text_print(out, "@ %s, after %d lines, instead of %d\n",
                          from.parts[part_at(&from, first)],
                          first - counted_from(&from, first, done), i - first);
        for (int k = first_new; k < j; k++) {
            smelt__text_append_string(out, "+");
            smelt__text_append(out, to.items[k].text, to.items[k].length);
        }
        done = i;
    }
    status = 0;
out:
    free(lengths);
    lines_free(&from);
    lines_free(&to);
    return status;
}

/* Finds the line of `from` that a head speaks of, and how many lines it replaces; both -1 when it
 * speaks of none. */
static void find_place(const struct lines *from, const char *head, int done, int *first,
                       int *replaced) {
    char name[PART_NAME];
    int after, begin = done;
    *first = *replaced = -1;
    if (sscanf(head, "@ %127[^,], after %d lines, instead of %d", name, &after, replaced) != 3)
        return;
    while (begin < from->count && strcmp(from->parts[from->items[begin].part], name) != 0)
        begin++;
    if (after >= 0 && *replaced >= 0 && after <= from->count - begin &&
        *replaced <= from->count - begin - after)
        *first = begin + after;
}

int difference_apply(const char *from_text, const char *differences, struct smelt__text *out) {
    struct lines from = {0}, steps = {0};
    int status = -1, done = 0, first = 0, replaced = 0;
    if (lines_split(from_text, &from) || lines_split(differences, &steps))
        goto out;
    for (int k = 0; k < steps.count; k++) {
        const struct line *step = &steps.items[k];
        if (step->text[0] == '+') {
            smelt__text_append(out, step->text + 1, step->length - 1);
            continue;
        }
        find_place(&from, step->text, done, &first, &replaced);
        if (first < done) {
            fprintf(stderr, "no such place: %.*s", (int)step->length, step->text);
            goto out;
        }
        for (; done < first; done++)
            smelt__text_append(out, from.items[done].text, from.items[done].length);
        done = first + replaced;
    }
    for (; done < from.count; done++)
        smelt__text_append(out, from.items[done].text, from.items[done].length);
    status = 0;
out:
    lines_free(&from);
    lines_free(&steps);
    return status;
}
