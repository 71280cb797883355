/* See templates.h. */
#include "runtime/templates.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/digest.h"
#include "runtime/files.h"
#include "runtime/log.h"

enum { MAX_BYTES = 4 << 20 /* of a template */, MAX_NAME = 256, PATH = 4096 };

/* A table under construction. It begins with the built-in templates. The table owns texts that were
 * read from files. */
struct reader {
    struct smelt__template_table *table;
    struct smelt__template *items; /* the table's */
    int capacity, files;           /* files: read so far */
    const char *path;
};

static int is_built_in(const struct smelt__template *item) {
    for (int i = 0; i < smelt__template_count; i++)
        if (item->name == smelt__templates[i].name)
            return 1;
    return 0;
}

void smelt__templates_free(struct smelt__template_table **table) {
    if (!*table)
        return;
    for (int i = 0; i < (*table)->count; i++) {
        struct smelt__template *item = (struct smelt__template *)&(*table)->items[i];
        if (!is_built_in(item)) {
            free((char *)item->text);
            free((char *)item->name);
        }
    }
    free((void *)(*table)->items);
    free(*table);
    *table = NULL;
}

static smelt_status out_of_memory(void) {
    return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory for templates");
}

static smelt_status refuse(const struct reader *reader, const char *name, const char *why) {
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "SMELT_TEMPLATES: %s/%s: %s", reader->path,
                       name, why);
}

static int is_template(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && name[0] != '.' &&
           (strcmp(dot, ".cu") == 0 || strcmp(dot, ".cuh") == 0 || strcmp(dot, ".h") == 0);
}

/* A file's text, NUL-terminated. */
static smelt_status read_text(const struct reader *reader, int folder, const char *file,
                              const char *name, char **text, size_t *length) {
    struct stat status;
    const int opened = openat(folder, file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    smelt_status result = SMELT_OK;
    *text = NULL;
    if (opened < 0 || fstat(opened, &status) != 0)
        result = refuse(reader, name, strerror(errno));
    else if (!S_ISREG(status.st_mode) || status.st_size > MAX_BYTES)
        result = refuse(reader, name, "is not a regular file of at most 4 MiB");
    else if (smelt__folder_fault(&status, true))
        result = refuse(reader, name, smelt__folder_fault(&status, true));
    else if (!(*text = malloc((size_t)status.st_size + 1)))
        result = out_of_memory();
    else if (smelt__read_at(opened, 0, *text, (size_t)status.st_size) != 0)
        result = refuse(reader, name, strerror(errno));
    if (result == SMELT_OK) {
        *length = (size_t)status.st_size;
        (*text)[*length] = '\0';
        if (strlen(*text) != *length)
            result = refuse(reader, name, "has a NUL byte");
    }
    if (opened >= 0)
        close(opened);
    if (result != SMELT_OK) {
        free(*text);
        *text = NULL;
    }
    return result;
}

/* Adds a text to the table, which takes ownership; frees it on failure. */
static smelt_status put(struct reader *reader, const char *name, char *text, size_t length) {
    struct smelt__template_table *table = reader->table;
    char *kept = strdup(name);
    int i = 0;
    while (i < table->count && strcmp(table->items[i].name, name) != 0)
        i++;
    if (kept && i == reader->capacity) {
        struct smelt__template *more =
            realloc(reader->items, (size_t)(2 * reader->capacity) * sizeof *more);
        if (more) {
            table->items = reader->items = more;
            reader->capacity *= 2;
        }
    }
    if (!kept || i == reader->capacity) {
        free(kept);
        free(text);
        return out_of_memory();
    }
    if (i == table->count)
        table->count++;
    reader->items[i] = (struct smelt__template){.name = kept, .text = text, .length = length};
    return SMELT_OK;
}

/* Host code was compiled with the built-in headers; a kernel must read the same structs. */
static int host_differs(const struct reader *reader, const char *name, const char *text,
                        size_t length) {
    const struct smelt__template *item = reader->items;
    for (int i = 0; i < smelt__template_count && strcmp(strrchr(name, '.'), ".h") == 0; i++)
        if (strcmp(item[i].name, name) == 0)
            return length != item[i].length || memcmp(text, item[i].text, length) != 0;
    return 0;
}

static int is_root(const char *name) {
    return strcmp(strrchr(name, '.'), ".cu") == 0;
}

/* Parts may be new: templates name them. Only a plan names a kernel's template. */
static int has_kernel(const char *name) {
    for (int i = 0; i < smelt__template_count && is_root(name); i++)
        if (strcmp(smelt__templates[i].name, name) == 0)
            return 1;
    return !is_root(name);
}

static smelt_status read_file(struct reader *reader, int folder, const char *under,
                              const char *file) {
    char name[2 * MAX_NAME], *text;
    size_t length;
    snprintf(name, sizeof name, "%s%s", under, file);
    if (!has_kernel(name))
        return refuse(reader, name,
                      "no kernel has a template of this name; `smelt emit` prints the names in "
                      "#line");
    reader->files++;
    const smelt_status status = read_text(reader, folder, file, name, &text, &length);
    if (status != SMELT_OK)
        return status;
    if (host_differs(reader, name, text, length)) {
        free(text);
        return refuse(reader, name,
                      "differs from the header that this library was compiled with; rebuild the "
                      "library");
    }
    return put(reader, name, text, length);
}

/* Reads a folder's templates; a subfolder may be missing. `under`: "", "common/" or "ptx/". */
static smelt_status read_folder(struct reader *reader, const char *under) {
    char path[PATH], why[512];
    smelt_status status = SMELT_OK;
    if (snprintf(path, sizeof path, "%s/%s", reader->path, under) >= (int)sizeof path)
        return refuse(reader, under, "the path is too long");
    const int folder = smelt__folder_open(path, true, why, sizeof why);
    if (folder < 0)
        return errno == ENOENT && *under ? SMELT_OK
                                         : refuse(reader, under, *why ? why : strerror(errno));
    DIR *const listing = fdopendir(folder);
    if (!listing) {
        close(folder);
        return out_of_memory();
    }
    for (struct dirent *entry; status == SMELT_OK && (entry = readdir(listing));)
        if (is_template(entry->d_name))
            status = read_file(reader, folder, under, entry->d_name);
    closedir(listing);
    return status;
}

static smelt_status digest(const struct reader *reader) {
    struct smelt__message message;
    for (int i = 0; i < reader->table->count; i++)
        if (is_root(reader->items[i].name) &&
            smelt__template_digest(reader->items, reader->table->count, i, reader->items[i].digest,
                                   &message))
            return out_of_memory();
    return SMELT_OK;
}

static smelt_status check(const struct reader *reader) {
    struct smelt__message message;
    char why[1024];
    int index, line;
    if (smelt__parts_check(reader->items, reader->table->count, &index, &line, &message) == 0)
        return SMELT_OK;
    if (message.out_of_memory)
        return out_of_memory();
    snprintf(why, sizeof why, "line %d: %.900s", line, message.text);
    return refuse(reader, reader->items[index].name, why);
}

smelt_status smelt__templates_read(const char *path, struct smelt__template_table **table) {
    struct reader reader = {.capacity = 2 * smelt__template_count, .path = path};
    struct smelt__message message = {0};
    const struct smelt__template *const built_in = smelt__templates_embedded(&message);
    *table = NULL;
    if (!built_in)
        return message.out_of_memory ? out_of_memory()
                                     : smelt__fail(SMELT_ERROR_INTERNAL, "%s", message.text);
    *table = reader.table = calloc(1, sizeof **table);
    reader.items = malloc((size_t)reader.capacity * sizeof *reader.items);
    if (!reader.table || !reader.items) {
        free(reader.items);
        free(reader.table);
        *table = NULL;
        return out_of_memory();
    }
    memcpy(reader.items, built_in, (size_t)smelt__template_count * sizeof *reader.items);
    reader.table->items = reader.items;
    reader.table->count = smelt__template_count;
    smelt_status status = read_folder(&reader, "");
    if (status == SMELT_OK)
        status = read_folder(&reader, "common/");
    if (status == SMELT_OK)
        status = read_folder(&reader, "ptx/");
    if (status == SMELT_OK && reader.files == 0)
        status = smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                             "SMELT_TEMPLATES: %s has no template (.cu, .cuh or .h), nor have its "
                             "folders common and ptx",
                             path);
    if (status == SMELT_OK)
        status = check(&reader);
    if (status == SMELT_OK)
        status = digest(&reader);
    if (status != SMELT_OK)
        smelt__templates_free(table);
    return status;
}
