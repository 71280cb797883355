/*
 * Build-time program: checks every template and writes them all into one C file.
 *
 *     embed OUTPUT.c TEMPLATE...
 *
 * A template's name is its path after the last "templates/". For a malformed template it prints
 * `templates/NAME:LINE: error: ...`, writes nothing and exits with status 1.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/template/engine.h"

static const char *template_name(const char *path) {
    static const char folder[] = "templates/";
    const char *name = path;
    for (const char *at = path; (at = strstr(at, folder)); at++)
        if (at == path || at[-1] == '/')
            name = at + strlen(folder);
    return name;
}

/* Reads a whole file, NUL-terminated; NULL with a message printed. */
static char *read_file(const char *path, size_t *length) {
    struct smelt__text text = {0};
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "%s: error: %s\n", path, strerror(errno));
        return NULL;
    }
    char piece[4096];
    size_t got;
    while ((got = fread(piece, 1, sizeof piece, file)) > 0)
        smelt__text_append(&text, piece, got);
    int failed = ferror(file);
    fclose(file);
    *length = text.length;
    if (failed || text.failed) {
        fprintf(stderr, "%s: error: cannot be read\n", path);
        smelt__text_free(&text);
        return NULL;
    }
    return smelt__text_release(&text);
}

/* Templates must be ASCII without NUL and carriage returns, so that every byte fits in a C array of
 * `char`. */
static int check_bytes(const struct smelt__template *template_) {
    int line = 1;
    for (size_t i = 0; i < template_->length; i++) {
        unsigned char byte = (unsigned char)template_->text[i];
        if (byte == 0 || byte == '\r' || byte >= 0x7f) {
            fprintf(stderr, "templates/%s:%d: error: byte 0x%02x: templates are plain ASCII\n",
                    template_->name, line, byte);
            return -1;
        }
        line += byte == '\n';
    }
    return 0;
}

static void write_bytes(FILE *file, const struct smelt__template *template_, int index) {
    fprintf(file, "static const char template_%d[] = {", index);
    for (size_t i = 0; i < template_->length; i++)
        fprintf(file, "%s%d,", i % 24 ? "" : "\n    ", template_->text[i]);
    fprintf(file, "\n    0};\n\n");
}

static int write_table(const char *path, const struct smelt__template *templates, int count) {
    FILE *file = fopen(path, "wb");
    if (!file) {
        fprintf(stderr, "%s: error: %s\n", path, strerror(errno));
        return -1;
    }
    fprintf(file, "/* Written by tools/embed.c from templates/; do not edit. */\n"
                  "#include \"codegen/template/engine.h\"\n\n");
    for (int i = 0; i < count; i++)
        write_bytes(file, &templates[i], i);
    fprintf(file, "const struct smelt__template smelt__templates[] = {\n");
    for (int i = 0; i < count; i++)
        fprintf(file, "    {\"%s\", template_%d, sizeof template_%d - 1},\n", templates[i].name, i,
                i);
    fprintf(file, "};\nconst int smelt__template_count = %d;\n", count);
    int failed = ferror(file);
    failed |= fclose(file) != 0;
    if (failed) {
        fprintf(stderr, "%s: error: cannot be written\n", path);
        remove(path);
    }
    return failed ? -1 : 0;
}

static int check(const struct smelt__template *templates, int count) {
    struct smelt__message message;
    int index, line;
    for (int i = 0; i < count; i++)
        if (check_bytes(&templates[i]))
            return -1;
    if (!smelt__parts_check(templates, count, &index, &line, &message))
        return 0;
    fprintf(stderr, "templates/%s:%d: error: %s\n", templates[index].name, line, message.text);
    return -1;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: embed OUTPUT.c TEMPLATE...\n");
        return 2;
    }
    int status = 1;
    int count = argc - 2;
    struct smelt__template *templates = calloc((size_t)count, sizeof *templates);
    if (!templates) {
        fprintf(stderr, "embed: error: out of memory\n");
        return 1;
    }
    for (int i = 0; i < count; i++) {
        templates[i].name = template_name(argv[i + 2]);
        templates[i].text = read_file(argv[i + 2], &templates[i].length);
        if (!templates[i].text)
            goto out;
    }
    if (!check(templates, count) && !write_table(argv[1], templates, count))
        status = 0;
out:
    for (int i = 0; i < count; i++)
        free((char *)(size_t)templates[i].text);
    free(templates);
    return status;
}
