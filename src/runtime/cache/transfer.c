/*
 * Export of a cache into one file (archive.c), import of such a file or of a layer's folder, and
 * the tuning file that both may contain.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/text.h"
#include "runtime/cache/archive.h"
#include "runtime/tuning/file.h"

/* The layers that an export reads; of entries with equal names the first layer's is taken. */
enum layer { WRITABLE, READONLY_FOLDER, READONLY_ARCHIVE };

struct item {
    unsigned char name[32];
    enum layer layer;
    uint64_t offset, bytes; /* in the archive */
};

struct export {
    struct smelt__cache *cache;
    int folder, readonly; /* -1: there is none */
    struct smelt__archive archive;
    struct item *items;
    size_t count, capacity;
    enum layer listing;
    smelt_cache_transfer *result;
};

/* ---- listing the entries ------------------------------------------------------------------- */

static int add_item(struct export *export, const struct item *item) {
    if (export->count == export->capacity) {
        size_t capacity = export->capacity ? 2 * export->capacity : 256;
        struct item *grown = realloc(export->items, capacity * sizeof *grown);
        if (!grown)
            return -1;
        export->items = grown;
        export->capacity = capacity;
    }
    export->items[export->count++] = *item;
    return 0;
}

static int list_found(void *user, const struct smelt__found *found) {
    struct export *export = user;
    struct item item = {.layer = export->listing};

    if (found->temporary)
        return 0;
    smelt__cache_binary_of_name(found->name, item.name);
    return add_item(export, &item);
}

static int list_record(void *user, const struct smelt__archive_record *record) {
    struct item item = {
        .layer = READONLY_ARCHIVE, .offset = record->offset, .bytes = record->bytes};

    memcpy(item.name, record->name, sizeof item.name);
    return add_item(user, &item) == 0 ? 0 : 1;
}

static int compare_items(const void *left, const void *right) {
    const struct item *a = left, *b = right;
    int names = memcmp(a->name, b->name, sizeof a->name);

    return names != 0 ? names : (int)a->layer - (int)b->layer;
}

static smelt_status list_folder(struct export *export, int folder, enum layer layer,
                                const char *path) {
    struct smelt__unread unread;

    export->listing = layer;
    return smelt__folder_each(folder, layer == READONLY_FOLDER, list_found, export, &unread) != 0
               ? smelt__unread_fail(&unread, path)
               : SMELT_OK;
}

static smelt_status list_readonly(struct export *export) {
    const char *path = export->cache->readonly;
    char why[512];
    int result;

    export->readonly = smelt__folder_open(path, true, why, sizeof why);
    if (export->readonly >= 0)
        return list_folder(export, export->readonly, READONLY_FOLDER, path);
    if (errno == ENOTDIR && smelt__archive_open(path, &export->archive, why, sizeof why) == 0) {
        result = smelt__archive_each(&export->archive, list_record, export, why, sizeof why);
        if (result > 0)
            return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
        return result == 0 ? SMELT_OK : smelt__fail(SMELT_ERROR_CACHE, "%s: %s", path, why);
    }
    if (why[0] == '\0') /* there is none */
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_CACHE, "the read-only layer: %s", why);
}

static smelt_status list_layers(struct export *export) {
    struct smelt__cache *cache = export->cache;
    smelt_status status = SMELT_OK;

    if (export->folder >= 0)
        status = list_folder(export, export->folder, WRITABLE, cache->folder);
    if (status == SMELT_OK && cache->readonly[0] != '\0')
        status = list_readonly(export);
    if (status == SMELT_OK && export->count > SMELT__ARCHIVE_MOST_ENTRIES)
        status = smelt__fail(SMELT_ERROR_CACHE, "there are %zu entries; an export holds at most %d",
                             export->count, SMELT__ARCHIVE_MOST_ENTRIES);
    if (export->count > 0)
        qsort(export->items, export->count, sizeof *export->items, compare_items);
    return status;
}

/* ---- one entry ----------------------------------------------------------------------------- */

static enum smelt__read_state read_from_folder(int folder, bool readonly, const char *name,
                                               struct smelt__cache_entry *entry, const char **why) {
    int subfolder = smelt__subfolder_open(folder, name, readonly, false);
    enum smelt__read_state state;

    *why = "its folder is missing or not trusted";
    if (subfolder < 0)
        return SMELT__READ_FAILED;
    state = smelt__file_read(subfolder, name, readonly, false, entry, why);
    close(subfolder);
    return state;
}

static enum smelt__read_state read_item(const struct export *export, const struct item *item,
                                        const char *name, struct smelt__cache_entry *entry,
                                        const char **why) {
    if (item->layer == READONLY_ARCHIVE)
        return smelt__entry_read(export->archive.file, item->offset, item->bytes, name, entry, why);
    return read_from_folder(item->layer == WRITABLE ? export->folder : export->readonly,
                            item->layer == READONLY_FOLDER, name, entry, why);
}

/* Counts and logs an entry that is skipped. */
static void skip_entry(struct smelt__cache *cache, enum smelt__read_state state, const char *where,
                       const char *name, const char *why, smelt_cache_transfer *result) {
    if (state == SMELT__READ_ABSENT) /* evicted since it was listed */
        return;
    if (state == SMELT__READ_FOREIGN)
        result->foreign++;
    else
        result->damaged++;
    smelt__log_write(&cache->log, state == SMELT__READ_FOREIGN ? SMELT_LOG_INFO : SMELT_LOG_WARNING,
                     "cache: %s: %s is skipped: %s", where, name, why);
}

/* ---- export -------------------------------------------------------------------------------- */

/* Creates a new file beside `path`. Its owner can read and write it under any umask, which limits only the permissions of
 * others. -1 with errno. */
static int create_beside(const char *path, char **temporary) {
    uint64_t random = 0;

    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random ||
        asprintf(temporary, "%s.%016llx", path, (unsigned long long)random) < 0) {
        *temporary = NULL;
        return -1;
    }
    return smelt__file_open_to_write(AT_FDCWD, *temporary, O_WRONLY | O_CREAT | O_EXCL, 0644);
}

/* Why an export may not replace the file at `path`, or NULL. Only a regular file may be replaced: a
 * device would be lost, and a symbolic link leads to another file than the one named. */
static const char *target_fault(const char *path) {
    struct stat status;

    if (lstat(path, &status) != 0 || S_ISREG(status.st_mode))
        return NULL;
    return S_ISDIR(status.st_mode)   ? strerror(EISDIR)
           : S_ISLNK(status.st_mode) ? "it is a symbolic link: name the file itself"
                                     : "it is not a regular file";
}

/* -1 with errno: the file could not be written. */
static int write_entries(struct export *export, struct smelt__archive_writer *writer,
                         struct smelt__text *contents) {
    const struct item *written = NULL;
    char name[SMELT__FILE_NAME_BYTES];

    smelt__text_print(contents, "smelt %s\n", smelt_version());
    for (size_t i = 0; i < export->count; i++) {
        const struct item *item = &export->items[i];
        struct smelt__cache_entry entry;
        const char *why;
        enum smelt__read_state state;
        int result;
        if (written && memcmp(written->name, item->name, sizeof item->name) == 0)
            continue;
        smelt__cache_name_of_binary(item->name, name);
        state = read_item(export, item, name, &entry, &why);
        if (state != SMELT__READ_SOUND) {
            skip_entry(export->cache, state,
                       item->layer == WRITABLE ? export->cache->folder : export->cache->readonly,
                       name, why, export->result);
            continue;
        }
        /* Older versions stored the emulator's kernels among the others. */
        result = 0;
        if (entry.key.output != SMELT__OUTPUT_EMULATED) {
            result = smelt__archive_add(writer, &entry);
            smelt__text_print(contents, "%s %s\n", entry.key.arch, entry.compiled.spec);
        }
        free(entry.compiled.cubin);
        if (result != 0)
            return -1;
        written = item;
    }
    errno = ENOMEM;
    return contents->failed ? -1 : smelt__archive_end(writer, contents->data, contents->length);
}

static smelt_status write_archive(struct export *export, const char *path, const char *tuning,
                                  size_t tuning_bytes) {
    struct smelt__archive_writer writer = {.file = -1};
    struct smelt__text contents = {0};
    char *temporary = NULL;
    int file, error = 0;
    const char *fault = target_fault(path);

    if (fault)
        return smelt__fail(SMELT_ERROR_CACHE, "%s cannot be written: %s", path, fault);
    file = create_beside(path, &temporary);
    if (file < 0 || smelt__archive_begin(&writer, file, export->count, tuning, tuning_bytes) != 0 ||
        write_entries(export, &writer, &contents) != 0)
        error = errno;
    if (file >= 0 && close(file) != 0 && error == 0)
        error = errno;
    if (error == 0 && rename(temporary, path) != 0)
        error = errno;
    if (file >= 0 && error != 0)
        (void)unlink(temporary);
    free(temporary);
    export->result->entries = writer.count;
    export->result->bytes = writer.at;
    smelt__archive_abandon(&writer);
    smelt__text_free(&contents);
    if (error == 0)
        return SMELT_OK;
    return smelt__fail(error == ENOMEM ? SMELT_ERROR_OUT_OF_MEMORY : SMELT_ERROR_CACHE,
                       "%s cannot be written: %s", path, strerror(error));
}

smelt_status smelt__cache_export(struct smelt__cache *cache, const char *path, const char *tuning,
                                 size_t tuning_bytes, smelt_cache_transfer *result) {
    struct export export = {.cache = cache, .readonly = -1, .archive.file = -1, .result = result};
    smelt_status status = smelt__maintenance_open(cache, SMELT__OUTPUT_CUBIN, &export.folder);

    if (status == SMELT_OK)
        status = list_layers(&export);
    if (status == SMELT_OK)
        status = write_archive(&export, path, tuning, tuning_bytes);
    free(export.items);
    smelt__archive_close(&export.archive);
    if (export.readonly >= 0)
        close(export.readonly);
    if (export.folder >= 0)
        close(export.folder);
    return status;
}

/* ---- the tuning file ----------------------------------------------------------------------- */

/* Reads `bytes` bytes and appends a NUL. 0 or -1 with errno. */
static int take_text(int file, uint64_t offset, uint64_t bytes, char **text, size_t *length) {
    *text = malloc((size_t)bytes + 1);
    if (!*text)
        return -1;
    if (smelt__read_at(file, offset, *text, (size_t)bytes) != 0) {
        free(*text);
        *text = NULL;
        return -1;
    }
    (*text)[bytes] = '\0';
    *length = (size_t)bytes;
    return 0;
}

static int archive_tuning(const struct smelt__archive *archive, char **text, size_t *bytes) {
    if (archive->tuning_bytes == 0)
        return 0;
    if (take_text(archive->file, archive->tuning_offset, archive->tuning_bytes, text, bytes) != 0)
        return -1;
    if (smelt__cache_hash(*text, *bytes) == archive->tuning_check)
        return 0;
    free(*text);
    *text = NULL;
    *bytes = 0;
    errno = EBADMSG;
    return -1;
}

/* The tuning file of a layer's folder; a missing one is no error. */
static int folder_tuning(const char *folder, char **text, size_t *bytes,
                         struct smelt__message *message) {
    char *path;
    int found;

    if (asprintf(&path, "%s/tuning", folder) < 0)
        return smelt__message_set(message, "out of memory");
    found = smelt__tuning_file_read(path, SMELT__TUNING_READONLY, text, bytes, message);
    free(path);
    return found < 0 ? -1 : 0;
}

int smelt__cache_archive_tuning(struct smelt__cache *cache, char **text, size_t *bytes) {
    struct smelt__archive archive;
    struct stat status;
    char why[512];

    *text = NULL;
    *bytes = 0;
    if (cache->readonly[0] == '\0' || stat(cache->readonly, &status) != 0 ||
        !S_ISREG(status.st_mode))
        return 0;
    /* The first lookup warns about an archive that cannot be used. */
    if (smelt__archive_open(cache->readonly, &archive, why, sizeof why) != 0)
        return 1;
    if (archive_tuning(&archive, text, bytes) != 0)
        smelt__cache_warn_once(cache, SMELT__WARNED_READONLY,
                               "cache: the tuning file in %s is not used: %s", cache->readonly,
                               strerror(errno));
    smelt__archive_close(&archive);
    return 1;
}

/* ---- import -------------------------------------------------------------------------------- */

struct import {
    struct smelt__cache *cache;
    const char *path;
    int folder; /* of the cache; -1: it does not exist yet */
    const struct smelt__archive *archive;
    smelt_cache_transfer *result;
    smelt_status status;
};

static bool is_present(const struct import *import, const char *name) {
    struct smelt__cache_entry entry;
    const char *why;

    if (import->folder < 0 ||
        read_from_folder(import->folder, false, name, &entry, &why) != SMELT__READ_SOUND)
        return false;
    free(entry.compiled.cubin);
    return true;
}

/* 0; 1: storing failed, which stops the import. */
static int import_entry(struct import *import, enum smelt__read_state state, const char *name,
                        struct smelt__cache_entry *entry, const char *why) {
    char failure[512];
    int result = 0;

    if (state != SMELT__READ_SOUND) {
        skip_entry(import->cache, state, import->path, name, why, import->result);
        return 0;
    }
    if (entry->key.output == SMELT__OUTPUT_EMULATED) {
        /* Host code, exported by an older version; not for the user's cache. */
    } else if (is_present(import, name)) {
        import->result->present++;
    } else if (smelt__cache_store_entry(import->cache, entry, failure, sizeof failure) == 0) {
        import->result->entries++;
        import->result->bytes +=
            SMELT__ENTRY_HEADER_BYTES + entry->compiled.cubin_bytes + SMELT__ENTRY_CHECKSUM_BYTES;
    } else {
        import->status = smelt__fail(SMELT_ERROR_CACHE, "stopped after %llu kernels: %s",
                                     (unsigned long long)import->result->entries, failure);
        result = 1;
    }
    free(entry->compiled.cubin);
    return result;
}

static int import_record(void *user, const struct smelt__archive_record *record) {
    struct import *import = user;
    char name[SMELT__FILE_NAME_BYTES];
    struct smelt__cache_entry entry;
    const char *why;
    enum smelt__read_state state;

    smelt__cache_name_of_binary(record->name, name);
    state =
        smelt__entry_read(import->archive->file, record->offset, record->bytes, name, &entry, &why);
    return import_entry(import, state, name, &entry, why);
}

static int import_found(void *user, const struct smelt__found *found) {
    struct import *import = user;
    struct smelt__cache_entry entry;
    const char *why;
    enum smelt__read_state state;

    if (found->temporary)
        return 0;
    state = smelt__file_read(found->subfolder, found->name, true, false, &entry, &why);
    return import_entry(import, state, found->name, &entry, why);
}

static smelt_status import_archive(struct import *import, char **tuning, size_t *tuning_bytes) {
    const uint64_t cap = import->cache->cap_bytes;
    struct smelt__archive archive;
    smelt_status status = SMELT_OK;
    char why[512];

    if (smelt__archive_open(import->path, &archive, why, sizeof why) != 0)
        return why[0] ? smelt__fail(SMELT_ERROR_CACHE, "%s", why)
                      : smelt__fail(SMELT_ERROR_CACHE, "%s: %s", import->path, strerror(errno));
    import->archive = &archive;
    if (cap != 0 && archive.bytes > cap)
        status =
            smelt__fail(SMELT_ERROR_CACHE,
                        "%s holds %llu bytes, more than the cache's cap of %llu: raise "
                        "SMELT_CACHE_CAP, or name the file in SMELT_CACHE_READONLY_DIR",
                        import->path, (unsigned long long)archive.bytes, (unsigned long long)cap);
    /* Check the whole index first: nothing is imported from a damaged archive. */
    else if (smelt__archive_each(&archive, NULL, NULL, why, sizeof why) != 0 ||
             smelt__archive_each(&archive, import_record, import, why, sizeof why) < 0)
        status = smelt__fail(SMELT_ERROR_CACHE, "%s: %s", import->path, why);
    else
        status = import->status;
    if (status == SMELT_OK && archive_tuning(&archive, tuning, tuning_bytes) != 0)
        status = smelt__fail(SMELT_ERROR_CACHE, "%s: the tuning file in it: %s", import->path,
                             strerror(errno));
    smelt__archive_close(&archive);
    return status;
}

static smelt_status import_folder(struct import *import, int source, char **tuning,
                                  size_t *tuning_bytes) {
    struct smelt__unread unread;
    int result = smelt__folder_each(source, true, import_found, import, &unread);
    struct smelt__message message = {0};

    if (result > 0)
        return import->status;
    if (result < 0)
        return smelt__unread_fail(&unread, import->path);
    if (folder_tuning(import->path, tuning, tuning_bytes, &message) != 0)
        return smelt__fail(SMELT_ERROR_CACHE, "%s", message.text);
    return SMELT_OK;
}

smelt_status smelt__cache_import(struct smelt__cache *cache, const char *path, char **tuning,
                                 size_t *tuning_bytes, smelt_cache_transfer *result) {
    struct import import = {.cache = cache, .path = path, .result = result};
    char why[512];
    int source;
    smelt_status status = smelt__maintenance_open(cache, SMELT__OUTPUT_CUBIN, &import.folder);

    *tuning = NULL;
    *tuning_bytes = 0;
    if (status == SMELT_OK && cache->disabled)
        status = smelt__fail(SMELT_ERROR_CACHE, "the cache is disabled");
    if (status != SMELT_OK)
        goto out;
    source = smelt__folder_open(path, true, why, sizeof why);
    if (source >= 0) {
        status = import_folder(&import, source, tuning, tuning_bytes);
        close(source);
    } else if (errno == ENOTDIR || errno == ENOENT) {
        status = import_archive(&import, tuning, tuning_bytes);
    } else {
        status = smelt__fail(SMELT_ERROR_CACHE, "%s", why);
    }
out:
    if (import.folder >= 0)
        close(import.folder);
    return status;
}
