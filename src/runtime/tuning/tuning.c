/* The entries of the tuning files: see tuning.h. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/tuning/tuning.h"

/* Warnings per file; further ones are only counted. */
enum { MAX_COMPLAINTS = 8 };

struct entry {
    struct smelt__tuning_line is;
    size_t line; /* its number in the file; of entries with the same key the last one is used */
    int complained;
};

/* The entries of one file, sorted by spec and device, without duplicates. */
struct entries {
    struct entry *list;
    size_t count, capacity;
};

struct smelt__tuning {
    char *file, *readonly;
    int named;
    struct smelt__log log;
    pthread_mutex_t mutex; /* guards the members below */
    struct entries own, shared;
};

/* ---- entries --------------------------------------------------------------------------------- */

static void free_entries(struct entries *entries) {
    free(entries->list);
    memset(entries, 0, sizeof *entries);
}

static int add_entry(struct entries *entries, const struct smelt__tuning_line *line,
                     size_t number) {
    if (entries->count == entries->capacity) {
        const size_t capacity = entries->capacity ? 2 * entries->capacity : 16;
        struct entry *list = realloc(entries->list, capacity * sizeof *list);
        if (!list)
            return -1;
        entries->list = list;
        entries->capacity = capacity;
    }
    entries->list[entries->count++] = (struct entry){*line, number, 0};
    return 0;
}

static int compare_key(const struct entry *a, const struct entry *b) {
    const int order = strcmp(a->is.spec, b->is.spec);
    return order ? order : strcmp(a->is.device, b->is.device);
}

static int compare_entries(const void *left, const void *right) {
    const struct entry *a = left, *b = right;
    const int order = compare_key(a, b);
    return order ? order : (a->line > b->line) - (a->line < b->line);
}

/* Sorts and keeps the last line of each spec and device. */
static void put_in_order(struct entries *entries) {
    size_t kept = 0;
    if (entries->count)
        qsort(entries->list, entries->count, sizeof *entries->list, compare_entries);
    for (size_t i = 0; i < entries->count; i++) {
        if (i + 1 == entries->count || compare_key(&entries->list[i], &entries->list[i + 1]) != 0)
            entries->list[kept++] = entries->list[i];
    }
    entries->count = kept;
}

static int compare_found(const void *left, const void *right) {
    return compare_key(left, right);
}

static struct entry *find_in(const struct entries *entries, const char *spec, const char *device) {
    struct entry key;
    if (!entries->count)
        return NULL;
    snprintf(key.is.spec, sizeof key.is.spec, "%s", spec);
    snprintf(key.is.device, sizeof key.is.device, "%s", device);
    return bsearch(&key, entries->list, entries->count, sizeof key, compare_found);
}

/* The caller holds the mutex. */
static struct entry *find(const struct smelt__tuning *tuning, const char *spec,
                          const char *device) {
    struct entry *entry = find_in(&tuning->own, spec, device);
    return entry ? entry : find_in(&tuning->shared, spec, device);
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Called with each line of a text; a result other than 0 stops the walk and is returned. */
typedef int (*line_function)(void *user, const char *text, size_t length, size_t number);

static int each_line(const char *text, size_t bytes, line_function each, void *user) {
    const char *end = text + bytes;
    int result = 0;
    for (size_t number = 1; text < end && result == 0; number++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const size_t length = newline ? (size_t)(newline - text) : (size_t)(end - text);
        result = each(user, text, length, number);
        text += length + 1;
    }
    return result;
}

struct reading {
    const char *path;
    const struct smelt__log *log; /* NULL: no warnings */
    struct entries *entries;
    size_t complaints;
};

static int read_line(void *user, const char *text, size_t length, size_t number) {
    struct reading *reading = user;
    struct smelt__tuning_line line;
    struct smelt__message message;
    const int kind = smelt__tuning_line_parse(text, length, &line, &message);
    if (kind > 0)
        return add_entry(reading->entries, &line, number);
    if (kind < 0 && ++reading->complaints <= MAX_COMPLAINTS && reading->log)
        smelt__log_write(reading->log, SMELT_LOG_WARNING, "tuning: %s:%zu: ignored: %s",
                         reading->path, number, message.text);
    return 0;
}

/* 0, or -1 when out of memory. */
static int read_text(const char *path, const char *text, size_t bytes, const struct smelt__log *log,
                     struct entries *entries) {
    struct reading reading = {path, log, entries, 0};
    if (each_line(text, bytes, read_line, &reading))
        return -1;
    put_in_order(entries);
    if (reading.complaints > MAX_COMPLAINTS && log)
        smelt__log_write(log, SMELT_LOG_WARNING, "tuning: %s: %zu more lines are ignored", path,
                         reading.complaints - MAX_COMPLAINTS);
    return 0;
}

static int read_file(const char *path, enum smelt__tuning_trust trust, const struct smelt__log *log,
                     struct entries *entries) {
    struct smelt__message message;
    char *text;
    size_t bytes;
    if (!*path)
        return 0;
    const int found = smelt__tuning_file_read(path, trust, &text, &bytes, &message);
    if (found < 0)
        smelt__log_write(log, SMELT_LOG_WARNING, "tuning: not read: %s", message.text);
    if (found <= 0)
        return 0;
    const int result = read_text(path, text, bytes, log, entries);
    if (!result && entries->count)
        smelt__log_write(log, SMELT_LOG_INFO, "tuning: %zu entr%s from %s", entries->count,
                         entries->count == 1 ? "y" : "ies", path);
    free(text);
    return result;
}

/* ---- opening and closing ------------------------------------------------------------------ */

static int read_readonly(const struct smelt__tuning_settings *settings,
                         const struct smelt__log *log, struct entries *entries) {
    if (!settings->readonly_is_text)
        return read_file(settings->readonly, SMELT__TUNING_READONLY, log, entries);
    if (!settings->readonly_text)
        return 0;
    return read_text(settings->readonly, settings->readonly_text, settings->readonly_bytes, log,
                     entries);
}

static enum smelt__tuning_trust own_trust(const struct smelt__tuning *tuning) {
    return tuning->named ? SMELT__TUNING_NAMED : SMELT__TUNING_OURS;
}

struct smelt__tuning *smelt__tuning_open(const struct smelt__tuning_settings *settings,
                                         const struct smelt__log *log) {
    struct smelt__tuning *tuning = calloc(1, sizeof *tuning);
    if (!tuning)
        return NULL;
    pthread_mutex_init(&tuning->mutex, NULL);
    if (log)
        tuning->log = *log;
    tuning->named = settings->named;
    tuning->file = strdup(settings->file);
    tuning->readonly = strdup(settings->readonly);
    if (!tuning->file || !tuning->readonly ||
        read_file(tuning->file, own_trust(tuning), &tuning->log, &tuning->own) ||
        read_readonly(settings, &tuning->log, &tuning->shared)) {
        smelt__tuning_close(tuning);
        return NULL;
    }
    return tuning;
}

void smelt__tuning_close(struct smelt__tuning *tuning) {
    if (!tuning)
        return;
    free_entries(&tuning->own);
    free_entries(&tuning->shared);
    free(tuning->file);
    free(tuning->readonly);
    pthread_mutex_destroy(&tuning->mutex);
    free(tuning);
}

const char *smelt__tuning_file(const struct smelt__tuning *tuning) {
    return tuning ? tuning->file : "";
}

/* ---- lookup --------------------------------------------------------------------------------- */

int smelt__tuning_find(struct smelt__tuning *tuning, const char *spec, const char *device,
                       struct smelt__tuning_line *line) {
    if (!tuning || !*device)
        return 0;
    pthread_mutex_lock(&tuning->mutex);
    const struct entry *entry = find(tuning, spec, device);
    if (entry)
        *line = entry->is;
    pthread_mutex_unlock(&tuning->mutex);
    return entry != NULL;
}

int smelt__tuning_first_complaint(struct smelt__tuning *tuning,
                                  const struct smelt__tuning_line *line) {
    pthread_mutex_lock(&tuning->mutex);
    struct entry *entry = find(tuning, line->spec, line->device);
    const int first = entry && !entry->complained;
    if (entry)
        entry->complained = 1;
    pthread_mutex_unlock(&tuning->mutex);
    return first;
}

/* Copies the effective entries, in order, so that the caller's function runs without the mutex. */
static int copy_all(struct smelt__tuning *tuning, struct entries *all) {
    const struct entries *const layers[] = {&tuning->shared, &tuning->own};
    int result = 0;
    pthread_mutex_lock(&tuning->mutex);
    for (size_t layer = 0; layer < 2; layer++)
        for (size_t i = 0; i < layers[layer]->count && !result; i++)
            result = add_entry(all, &layers[layer]->list[i].is, layer);
    pthread_mutex_unlock(&tuning->mutex);
    put_in_order(all);
    return result;
}

smelt_status smelt__tuning_walk(struct smelt__tuning *tuning, smelt_tuning_function each,
                                void *user) {
    struct entries all = {0};
    smelt_status status = SMELT_OK;
    if (copy_all(tuning, &all))
        status = smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
    for (size_t i = 0; i < all.count && !status; i++) {
        const struct smelt__tuning_line *from = &all.list[i].is;
        const smelt_tuning_entry entry = {.size = sizeof entry,
                                          .spec = from->spec,
                                          .device = from->device,
                                          .knobs = from->knobs,
                                          .microseconds = from->microseconds};
        if (each(user, &entry))
            status =
                smelt__fail(SMELT_ERROR_CANCELLED, "the caller's function ended the enumeration");
    }
    free_entries(&all);
    return status;
}

/* ---- changing -------------------------------------------------------------------------------- */

struct change {
    const struct smelt__tuning_line *line; /* a store: replaces the line of its spec and device */
    struct entries known;                  /* a merge: the file's entries, sorted */
    struct smelt__text *edited;
    size_t taken;
};

static int keep_unless_replaced(void *user, const char *text, size_t length, size_t number) {
    struct change *change = user;
    struct smelt__tuning_line line;
    struct smelt__message ignored;
    (void)number;
    if (smelt__tuning_line_parse(text, length, &line, &ignored) > 0 &&
        strcmp(line.spec, change->line->spec) == 0 &&
        strcmp(line.device, change->line->device) == 0)
        return 0;
    smelt__text_append(change->edited, text, length);
    smelt__text_append(change->edited, "\n", 1);
    return 0;
}

static int put_line(void *user, const char *text, size_t bytes, struct smelt__text *edited,
                    struct smelt__message *message) {
    struct change *change = user;
    (void)message;
    change->edited = edited;
    each_line(text, bytes, keep_unless_replaced, change);
    if (change->line->knobs[0])
        smelt__tuning_line_print(change->line, edited);
    return 0;
}

static int take_unless_known(void *user, const char *text, size_t length, size_t number) {
    struct change *change = user;
    struct smelt__tuning_line line;
    struct smelt__message ignored;
    (void)number;
    if (smelt__tuning_line_parse(text, length, &line, &ignored) <= 0 ||
        find_in(&change->known, line.spec, line.device))
        return 0;
    smelt__tuning_line_print(&line, change->edited);
    change->taken++;
    return 0;
}

struct merging {
    struct change change;
    const char *text;
    size_t bytes;
};

static int add_lines(void *user, const char *text, size_t bytes, struct smelt__text *edited,
                     struct smelt__message *message) {
    struct merging *merging = user;
    struct change *change = &merging->change;
    change->edited = edited;
    if (read_text("", text, bytes, NULL, &change->known))
        return smelt__message_set(message, "out of memory");
    smelt__text_append(edited, text, bytes);
    if (bytes && text[bytes - 1] != '\n')
        smelt__text_append(edited, "\n", 1);
    each_line(merging->text, merging->bytes, take_unless_known, change);
    return 0;
}

/* Edits the file and rereads the entries. */
static smelt_status change_file(struct smelt__tuning *tuning, smelt__tuning_edit edit, void *user) {
    struct smelt__message message = {0};
    struct smelt__text edited = {0};
    struct entries entries = {0};
    if (!tuning || !*tuning->file)
        return smelt__fail(SMELT_ERROR_CACHE,
                           "there is no tuning file to write: neither a cache folder nor "
                           "SMELT_TUNING is set, or tuning is disabled");
    if (smelt__tuning_file_edit(tuning->file, own_trust(tuning), edit, user, &edited, &message))
        return smelt__fail(SMELT_ERROR_CACHE, "the tuning file is not written: %s", message.text);
    const int failed =
        read_text(tuning->file, edited.data ? edited.data : "", edited.length, NULL, &entries);
    smelt__text_free(&edited);
    if (failed) {
        free_entries(&entries);
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
    }
    pthread_mutex_lock(&tuning->mutex);
    struct entries before = tuning->own;
    tuning->own = entries;
    pthread_mutex_unlock(&tuning->mutex);
    free_entries(&before);
    return SMELT_OK;
}

smelt_status smelt__tuning_store(struct smelt__tuning *tuning,
                                 const struct smelt__tuning_line *line) {
    struct change change = {.line = line};
    return change_file(tuning, put_line, &change);
}

smelt_status smelt__tuning_merge(struct smelt__tuning *tuning, const char *text, size_t bytes,
                                 size_t *taken) {
    struct merging merging = {.text = text, .bytes = bytes};
    smelt_status status = change_file(tuning, add_lines, &merging);
    free_entries(&merging.change.known);
    *taken = status ? 0 : merging.change.taken;
    return status;
}
