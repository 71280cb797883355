/* Lookup of a kernel in both layers. Any fault is a miss and a line in the log. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/cache/archive.h"
#include "runtime/cache/internal.h"

enum { COMPILERS = 16 }; /* entries of one key that are tried */

struct lookup {
    struct smelt__cache *cache;
    const struct smelt__cache_key *key;
    const struct smelt__compiler_id *compiler;
    struct smelt__compiled *compiled;
    bool readonly; /* which layer */
    bool any;      /* accept any compiler's entry */
    bool polling;
};

static bool keys_equal(const struct smelt__cache_key *a, const struct smelt__cache_key *b) {
    return memcmp(a->name, b->name, sizeof a->name) == 0 &&
           memcmp(a->digest, b->digest, sizeof a->digest) == 0 &&
           a->input_bytes == b->input_bytes && strcmp(a->arch, b->arch) == 0 &&
           a->output == b->output;
}

static bool compilers_equal(const struct smelt__compiler_id *a,
                            const struct smelt__compiler_id *b) {
    return a->major == b->major && a->minor == b->minor &&
           memcmp(a->build_ids, b->build_ids, sizeof a->build_ids) == 0;
}

/* The layer's folder or archive. */
static const char *layer_of(const struct lookup *lookup) {
    return lookup->readonly ? lookup->cache->readonly
                            : smelt__cache_root(lookup->cache, lookup->key->output);
}

static void note_bad(const struct lookup *lookup, const char *name, const char *why) {
    struct smelt__cache *cache = lookup->cache;

    if (!lookup->polling)
        smelt__cache_count(cache, lookup->key->output, SMELT__COUNT_ERRORS, 1);
    smelt__log_write(&cache->log, lookup->polling ? SMELT_LOG_DEBUG : SMELT_LOG_WARNING,
                     "cache: %s/%.2s/%s is not used: %s", layer_of(lookup), name, name, why);
}

/* Takes the entry read under `name` if its key and compiler match. */
static enum smelt__read_state take_entry(const struct lookup *lookup, enum smelt__read_state state,
                                         struct smelt__cache_entry *entry, const char *name,
                                         const char *why) {
    if (state == SMELT__READ_BAD || state == SMELT__READ_FAILED)
        note_bad(lookup, name, why);
    if (state != SMELT__READ_SOUND)
        return state;
    /* Two inputs with equal hashes, or two builds of a compiler that agree in the 112 bits of the
     * name: a miss. */
    if (!keys_equal(&entry->key, lookup->key) ||
        (!lookup->any && !compilers_equal(&entry->compiler, lookup->compiler))) {
        free(entry->compiled.cubin);
        return SMELT__READ_ABSENT;
    }
    *lookup->compiled = entry->compiled;
    return SMELT__READ_SOUND;
}

static enum smelt__read_state try_file(const struct lookup *lookup, int subfolder,
                                       const char *name) {
    struct smelt__cache_entry entry;
    const char *why;
    enum smelt__read_state state =
        smelt__file_read(subfolder, name, lookup->readonly, true, &entry, &why);

    return take_entry(lookup, state, &entry, name, why);
}

/* Tries the key's entries, newest compiler first, except `exact`, which was tried before. */
static enum smelt__read_state try_other_compilers(const struct lookup *lookup, int subfolder,
                                                  const char *exact) {
    char prefix[SMELT__FILE_NAME_BYTES], names[COMPILERS][SMELT__FILE_NAME_BYTES];
    int count;

    smelt__cache_file_name(lookup->key, NULL, prefix);
    count = smelt__subfolder_list(subfolder, prefix, names, COMPILERS);
    for (int i = 0; i < count; i++) {
        enum smelt__read_state state;
        if (exact && strcmp(names[i], exact) == 0)
            continue;
        state = try_file(lookup, subfolder, names[i]);
        if (state == SMELT__READ_SOUND || state == SMELT__READ_STALE)
            return state;
    }
    return SMELT__READ_ABSENT;
}

static enum smelt__read_state try_record(const struct lookup *lookup,
                                         const struct smelt__archive *archive,
                                         const struct smelt__archive_record *record) {
    char name[SMELT__FILE_NAME_BYTES];
    struct smelt__cache_entry entry;
    const char *why;
    enum smelt__read_state state;

    smelt__cache_name_of_binary(record->name, name);
    state = smelt__entry_read(archive->file, record->offset, record->bytes, name, &entry, &why);
    return take_entry(lookup, state, &entry, name, why);
}

/* This compiler's entry, else the newest of the others, as in a folder. */
static enum smelt__read_state search_archive(const struct lookup *lookup,
                                             const struct smelt__archive *archive) {
    enum smelt__read_state state = SMELT__READ_ABSENT;
    struct smelt__archive_record record;
    unsigned char exact[32], newest[32];
    int64_t at;

    smelt__cache_binary_name(lookup->key, lookup->compiler, exact);
    if (lookup->compiler) {
        at = smelt__archive_bisect(archive, exact);
        if (at > 0 && smelt__archive_record(archive, (uint64_t)at - 1, &record) == 0 &&
            memcmp(record.name, exact, sizeof exact) == 0)
            state = try_record(lookup, archive, &record);
    }
    smelt__cache_binary_name(lookup->key, NULL, newest);
    at = state == SMELT__READ_SOUND ? 0 : smelt__archive_bisect(archive, newest);
    for (int i = 0; i < COMPILERS && i < at && state != SMELT__READ_SOUND; i++) {
        if (smelt__archive_record(archive, (uint64_t)(at - 1 - i), &record) != 0 ||
            memcmp(record.name, newest, 16) != 0)
            break;
        if (memcmp(record.name, exact, sizeof exact) != 0)
            state = try_record(lookup, archive, &record);
    }
    return state;
}

static enum smelt__read_state try_archive(const struct lookup *lookup) {
    struct smelt__cache *cache = lookup->cache;
    struct smelt__archive archive;
    enum smelt__read_state state;
    char why[512];

    if (smelt__archive_open(cache->readonly, &archive, why, sizeof why) != 0) {
        if (errno == ESTALE)
            return SMELT__READ_STALE;
        if (why[0] != '\0')
            smelt__cache_warn_once(cache, SMELT__WARNED_READONLY,
                                   "cache: the read-only layer is bypassed: %s", why);
        return SMELT__READ_ABSENT;
    }
    state = search_archive(lookup, &archive);
    smelt__archive_close(&archive);
    return state;
}

static enum smelt__read_state search_layer_once(const struct lookup *lookup) {
    struct smelt__cache *cache = lookup->cache;
    enum smelt__read_state state = SMELT__READ_ABSENT;
    char why[512], name[SMELT__FILE_NAME_BYTES];
    int folder, subfolder;

    folder = smelt__folder_open(layer_of(lookup), lookup->readonly, why, sizeof why);
    if (folder < 0) {
        if (errno == ESTALE)
            return SMELT__READ_STALE;
        if (lookup->readonly && errno == ENOTDIR)
            return try_archive(lookup);
        if (why[0] != '\0')
            smelt__cache_warn_once(cache,
                                   lookup->readonly ? SMELT__WARNED_READONLY : SMELT__WARNED_FOLDER,
                                   "cache: %s is bypassed: %s",
                                   lookup->readonly ? "the read-only folder" : "the folder", why);
        return SMELT__READ_ABSENT;
    }
    smelt__cache_file_name(lookup->key, lookup->compiler, name);
    subfolder = smelt__subfolder_open(folder, name, lookup->readonly, false);
    if (subfolder < 0) {
        if (errno == ESTALE)
            state = SMELT__READ_STALE;
        else if (errno != ENOENT)
            note_bad(lookup, name, errno == EPERM ? "its folder is not trusted" : strerror(errno));
    } else {
        if (lookup->compiler)
            state = try_file(lookup, subfolder, name);
        if (lookup->any && state != SMELT__READ_SOUND && state != SMELT__READ_STALE)
            state = try_other_compilers(lookup, subfolder, lookup->compiler ? name : NULL);
        close(subfolder);
    }
    close(folder);
    return state;
}

/* A stale NFS handle means that the file was replaced meanwhile: retry, a limited number of times.
 */
static bool search_layer(const struct lookup *lookup) {
    enum { TRIES = 3 };

    for (int i = 0; i < TRIES; i++) {
        enum smelt__read_state state = search_layer_once(lookup);
        if (state != SMELT__READ_STALE)
            return state == SMELT__READ_SOUND;
    }
    smelt__log_write(&lookup->cache->log, SMELT_LOG_DEBUG, "cache: stale file handles, a miss");
    return false;
}

/* Never 0, which marks a free slot. */
static uint64_t refused_mark(const struct smelt__cache_key *key) {
    return smelt__cache_hash(key, sizeof *key) | 1;
}

static bool is_refused(const struct smelt__cache *cache, const struct smelt__cache_key *key) {
    uint64_t mark = refused_mark(key);

    for (int i = 0; i < SMELT__REFUSED_KEYS; i++)
        if (atomic_load_explicit(&cache->refused[i], memory_order_relaxed) == mark)
            return true;
    return false;
}

void smelt__cache_refuse(struct smelt__cache *cache, const struct smelt__cache_key *key) {
    unsigned slot;

    if (is_refused(cache, key))
        return;
    slot = atomic_fetch_add_explicit(&cache->refused_next, 1, memory_order_relaxed);
    atomic_store_explicit(&cache->refused[slot % SMELT__REFUSED_KEYS], refused_mark(key),
                          memory_order_relaxed);
}

int smelt__cache_look(struct smelt__cache *cache, const struct smelt__cache_key *key,
                      const struct smelt__compiler_id *compiler, bool polling,
                      struct smelt__compiled *compiled) {
    struct lookup lookup = {
        .cache = cache, .key = key, .compiler = compiler, .compiled = compiled, .polling = polling};
    bool hit = false;

    if (cache->readonly[0] != '\0' && key->output != SMELT__OUTPUT_EMULATED &&
        !is_refused(cache, key)) {
        lookup.readonly = lookup.any = true;
        hit = search_layer(&lookup);
    }
    if (!hit && smelt__cache_is_writable(cache)) {
        lookup.readonly = false;
        lookup.any = compiler == NULL;
        hit = search_layer(&lookup);
    }
    if (hit) {
        smelt__cache_count_hit(cache, key->output, lookup.readonly, compiled->compile_seconds);
        smelt__counters_record_when_due(cache);
    }
    return hit;
}

int smelt__cache_lookup(struct smelt__cache *cache, const struct smelt__cache_key *key,
                        const struct smelt__compiler_id *compiler,
                        struct smelt__compiled *compiled) {
    char hex[33];
    int hit = 0;

    if (!smelt__cache_serves(cache, key->output))
        return 0;
    if (!cache->recompile)
        hit = smelt__cache_look(cache, key, compiler, false, compiled);
    smelt__cache_key_hex(key, hex);
    smelt__log_write(&cache->log, SMELT_LOG_DEBUG, "cache: %s %s", hit ? "hit" : "miss", hex);
    return hit;
}

void smelt__cache_missed(struct smelt__cache *cache, const struct smelt__cache_key *key) {
    if (!smelt__cache_serves(cache, key->output))
        return;
    smelt__cache_count(cache, key->output, SMELT__COUNT_MISSES, 1);
    smelt__counters_record_when_due(cache);
}
