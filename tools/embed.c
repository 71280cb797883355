/*
 * Build-time program: checks every template and writes them all, compressed, into one C file.
 *
 *     embed OUTPUT.c DEPFILE PATH... [-- FILE...]
 *
 * PATH: a template, or a folder of which every file named *.cu, *.cuh or *.h is one, folders in it
 * included. A template's name is its path after the last "templates/". FILE: a source file of the
 * template engine, for the engine's digest. DEPFILE names the templates for Ninja, and the folders,
 * which change when a file is added. For a malformed template the program prints
 * `templates/NAME:LINE: error: ...`, writes nothing and exits with status 1.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "codegen/template/engine.h"
#include "runtime/digest.h"
#include "runtime/hash.h"

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

/* Templates must be ASCII without NUL and carriage returns. */
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

/* All texts, each with its terminator, in zlib's format. As a string literal, which the compiler reads
 * faster than a list of numbers. */
static int write_texts(FILE *file, const struct smelt__template *templates, int count) {
    struct smelt__text all = {0};
    for (int i = 0; i < count; i++)
        smelt__text_append(&all, templates[i].text, templates[i].length + 1);
    uLongf size = compressBound((uLong)all.length);
    Bytef *const packed = malloc(size);
    const int failed = all.failed || !packed ||
                       compress2(packed, &size, (const Bytef *)all.data, (uLong)all.length,
                                 Z_BEST_COMPRESSION) != Z_OK;
    if (!failed) {
        fprintf(file, "const unsigned char smelt__templates_packed[] =");
        for (uLongf i = 0; i < size; i++)
            fprintf(file, "%s\\%03o", i % 24 ? "" : i ? "\"\n    \"" : "\n    \"", packed[i]);
        fprintf(file, "\";\nconst size_t smelt__templates_packed_size = %lu;\n\n", size);
    } else
        fprintf(stderr, "templates: error: out of memory\n");
    smelt__text_free(&all);
    free(packed);
    return failed;
}

static void write_digest(FILE *file, const unsigned char digest[SMELT__TEMPLATE_DIGEST]) {
    for (int i = 0; i < SMELT__TEMPLATE_DIGEST; i++)
        fprintf(file, "%s0x%02x", i ? ", " : "{", digest[i]);
    fprintf(file, "}");
}

static int write_table(const char *path, const struct smelt__template *templates, int count,
                       const unsigned char engine[SMELT__TEMPLATE_DIGEST]) {
    FILE *file = fopen(path, "wb");
    if (!file) {
        fprintf(stderr, "%s: error: %s\n", path, strerror(errno));
        return -1;
    }
    fprintf(file, "/* Written by tools/embed.c from templates/; do not edit. */\n"
                  "#include \"codegen/template/engine.h\"\n\n"
                  "#pragma GCC diagnostic ignored \"-Woverlength-strings\"\n\n");
    int failed = write_texts(file, templates, count);
    fprintf(file, "const struct smelt__template smelt__templates[] = {\n");
    for (int i = 0; i < count; i++) {
        fprintf(file, "    {\"%s\", NULL, %zu,\n     ", templates[i].name, templates[i].length);
        write_digest(file, templates[i].digest);
        fprintf(file, "},\n");
    }
    fprintf(file,
            "};\nconst int smelt__template_count = %d;\n"
            "const unsigned char smelt__engine_digest[] = ",
            count);
    write_digest(file, engine);
    fprintf(file, ";\n");
    failed |= ferror(file);
    failed |= fclose(file) != 0;
    if (failed) {
        fprintf(stderr, "%s: error: cannot be written\n", path);
        remove(path);
    }
    return failed ? -1 : 0;
}

/* Checks all templates and computes their digests. */
static int check(struct smelt__template *templates, int count) {
    struct smelt__message message;
    int index, line, status = 0;
    for (int i = 0; i < count; i++)
        if (check_bytes(&templates[i]))
            return -1;
    if (smelt__parts_check(templates, count, &index, &line, &message)) {
        fprintf(stderr, "templates/%s:%d: error: %s\n", templates[index].name, line, message.text);
        return -1;
    }
    for (int i = 0; i < count && !status; i++)
        status = smelt__template_digest(templates, count, i, templates[i].digest, &message);
    if (status)
        fprintf(stderr, "templates: error: %s\n", message.text);
    return status;
}

/* ---- finding templates ------------------------------------------------------------------------ */

enum { MOST_FILES = 1000, MOST_PATH = 1024 };

static struct smelt__template templates[MOST_FILES];
static char paths[MOST_FILES][MOST_PATH];
static int count;

static int fail(const char *path, const char *why) {
    fprintf(stderr, "%s: error: %s\n", path, why);
    return -1;
}

/* Ninja's dependency files separate paths by spaces. */
static void add_dependency(FILE *depfile, const char *path) {
    fputc(' ', depfile);
    for (; *path; path++) {
        if (*path == ' ')
            fputc('\\', depfile);
        fputc(*path, depfile);
    }
}

static int is_template(const char *name) {
    const char *const dot = strrchr(name, '.');
    return dot && (!strcmp(dot, ".cu") || !strcmp(dot, ".cuh") || !strcmp(dot, ".h"));
}

static int is_visible(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static int add(const char *path, int named, FILE *depfile);

static int add_folder(const char *path, FILE *depfile) {
    struct dirent **entries;
    char inside[MOST_PATH];
    const int found = scandir(path, &entries, is_visible, alphasort);
    int status = 0;
    for (int i = 0; i < found; i++) {
        const int length = snprintf(inside, sizeof inside, "%s/%s", path, entries[i]->d_name);
        if (!status)
            status = length < MOST_PATH ? add(inside, 0, depfile) : fail(path, "too long");
        free(entries[i]);
    }
    if (found >= 0)
        free(entries);
    return found >= 0 ? status : fail(path, strerror(errno));
}

/* Adds a file, or all templates in a folder. `named`: the command line names the file, so it must be a
 * template. */
static int add(const char *path, int named, FILE *depfile) {
    DIR *const folder = opendir(path);
    if (folder) {
        closedir(folder);
        add_dependency(depfile, path);
        return add_folder(path, depfile);
    }
    if (!named && !is_template(path))
        return 0;
    if (count == MOST_FILES || strlen(path) >= MOST_PATH)
        return fail(path, "too many templates, or too long a path");
    strcpy(paths[count], path);
    add_dependency(depfile, path);
    templates[count].name = template_name(paths[count]);
    templates[count].text = read_file(path, &templates[count].length);
    return templates[count++].text ? 0 : -1;
}

/* The digest of the texts of files. */
static int digest_files(char *const *files, int files_count,
                        unsigned char digest[SMELT__TEMPLATE_DIGEST]) {
    struct smelt__text all = {0};
    int status = 0;
    for (int i = 0; i < files_count && !status; i++) {
        size_t length;
        char *text = read_file(files[i], &length);
        status = text ? 0 : -1;
        if (text)
            smelt__text_append(&all, text, length);
        free(text);
    }
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(all.data ? all.data : "", all.length));
    memcpy(digest, canonical.digest, SMELT__TEMPLATE_DIGEST);
    if (all.failed)
        status = fail("embed", "out of memory");
    smelt__text_free(&all);
    return status;
}

int main(int argc, char **argv) {
    unsigned char engine[SMELT__TEMPLATE_DIGEST];
    int end = 3; /* of the templates */
    while (end < argc && strcmp(argv[end], "--") != 0)
        end++;
    if (end < 4) {
        fprintf(stderr, "usage: embed OUTPUT.c DEPFILE PATH... [-- FILE...]\n");
        return 2;
    }
    FILE *depfile = fopen(argv[2], "w");
    if (!depfile)
        return fail(argv[2], strerror(errno)) != 0;
    fprintf(depfile, "%s:", argv[1]);
    int status = 0;
    for (int i = 3; i < end && !status; i++)
        status = add(argv[i], 1, depfile);
    fputc('\n', depfile);
    if (fclose(depfile) != 0 && !status)
        status = fail(argv[2], "cannot be written");
    if (!status)
        status = check(templates, count);
    if (!status)
        status = digest_files(argv + end + 1, argc > end ? argc - end - 1 : 0, engine);
    if (!status)
        status = write_table(argv[1], templates, count, engine);
    for (int i = 0; i < count; i++)
        free((char *)(size_t)templates[i].text);
    return status != 0;
}
