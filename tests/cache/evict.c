/* The cap, removal of temporaries, pruning: which entries are removed, and how long a store
 * takes. */
#include "common.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { BYTES = 1000, FILE_BYTES = 544 + BYTES + 16 };

/* ---- the cap ------------------------------------------------------------------------------- */

static int is_there(struct scratch *scratch, int n) {
    char path[PATH_BYTES];
    entry_path(scratch->cache, n, &compiler_new, path);
    return access(path, F_OK) == 0;
}

static void age_entry(struct scratch *scratch, int n, long seconds) {
    char path[PATH_BYTES];
    entry_path(scratch->cache, n, &compiler_new, path);
    set_age(path, seconds);
}

SCRATCH_TEST(test_cap) {
    scratch->settings.cap_bytes = 8 * FILE_BYTES;
    struct smelt__cache *cache = cache_begin(scratch);
    for (int n = 0; n < 8; n++) {
        assert_int_equal(store(cache, n, &compiler_new, BYTES), 0);
        age_entry(scratch, n, -100000 + 1000 * n);
    }
    assert_int_equal(count_files(scratch->cache, ".smelt"), 8);

    /* The oldest is used, the second oldest has a time in the future: both are recent now. */
    assert_int_equal(hits(cache, 0, &compiler_new, BYTES), 1);
    age_entry(scratch, 1, 10L * 365 * 86400);
    assert_int_equal(store(cache, 8, &compiler_new, BYTES), 0);
    assert_int_equal(is_there(scratch, 0), 1);
    assert_int_equal(is_there(scratch, 1), 1);
    assert_int_equal(is_there(scratch, 2), 0);
    assert_int_equal(is_there(scratch, 3), 0);
    assert_int_equal(is_there(scratch, 4), 1);
    assert_int_equal(is_there(scratch, 8), 1);
    const smelt_cache_stats stats = stats_of(cache);
    assert_int_equal(stats.entries, 7);
    assert_int_equal(stats.bytes, 7 * FILE_BYTES);
    assert_int_equal(stats.cap_bytes, 8 * FILE_BYTES);
}

/* The entry just stored stays even if it exceeds the cap by itself. */
SCRATCH_TEST(test_cap_below_one_entry) {
    scratch->settings.cap_bytes = 1;
    struct smelt__cache *cache = cache_begin(scratch);
    for (int n = 0; n < 4; n++) {
        assert_int_equal(store(cache, n, &compiler_new, BYTES), 0);
        assert_int_equal(hits(cache, n, &compiler_new, BYTES), 1);
        assert_int_equal(count_files(scratch->cache, ".smelt"), 1);
    }
}

CACHE_TEST(test_hit_renews_rarely) {
    struct stat before, after;
    char path[PATH_BYTES];
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    entry_path(scratch->cache, 1, &compiler_new, path);
    set_age(path, -60);
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 1);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(after.st_mtim.tv_sec, before.st_mtim.tv_sec);
    set_age(path, -7200);
    assert_int_equal(smelt__cache_verify(cache, NULL, NULL), SMELT_OK); /* verify does not renew
                                                                           entries */
    assert_int_equal(stat(path, &after), 0);
    assert_true(after.st_mtim.tv_sec < before.st_mtim.tv_sec);
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 1);
    assert_int_equal(stat(path, &after), 0);
    assert_true(after.st_mtim.tv_sec > before.st_mtim.tv_sec);
}

/* ---- temporaries --------------------------------------------------------------------------- */

static void make_temporary(struct scratch *scratch, int n, char path[PATH_BYTES]) {
    char subfolder[PATH_BYTES];
    subfolder_path(scratch->cache, 1, subfolder);
    snprintf(path, PATH_BYTES, "%.400s/.tmp-%032d", subfolder, n);
    write_file(path, "smelt\r\n\032half", 12);
}

CACHE_TEST(test_temporaries) {
    char old[PATH_BYTES], fresh[PATH_BYTES];
    uint64_t removed;
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    make_temporary(scratch, 1, old);
    make_temporary(scratch, 2, fresh);
    set_age(old, -3700);
    set_age(fresh, -3000);
    cache = cache_begin(scratch); /* a process's first store counts entries and removes old
                                     temporaries */
    const smelt_cache_stats stats = stats_of(cache);
    assert_int_equal(stats.temporaries, 2);
    assert_int_equal(stats.entries, 1);
    assert_int_equal(store(cache, 2, &compiler_new, BYTES), 0);
    assert_int_equal(access(old, F_OK), -1);
    assert_int_equal(access(fresh, F_OK), 0);
    assert_int_equal(smelt__cache_clear(cache, &removed), SMELT_OK);
    assert_int_equal(removed, 2);
    assert_int_equal(access(fresh, F_OK), -1);
}

/* ---- another's files ------------------------------------------------------------------------ */

/* Old files of the user's in a cache folder, whose names are similar or equal to smelt's, stay:
 * eviction, removal of temporaries, pruning and clearing do not touch them. */
SCRATCH_TEST(test_others_files_stay) {
    static const char *const contents[] = {"holiday", "sme", "smelt is a fish", "\177ELF"};
    char folder[PATH_BYTES], name[SMELT__FILE_NAME_BYTES], path[PATH_BYTES];
    struct smelt__cache_key key = key_number(7);
    uint64_t removed;
    int files = 0;
    scratch->settings.cap_bytes = 2 * FILE_BYTES;
    struct smelt__cache *cache = cache_begin(scratch);
    subfolder_path(scratch->cache, 7, folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    smelt__cache_file_name(&key, &compiler_new, name);
    for (int i = 0; i < 4; i++) {
        const char *content = contents[i];
        const char *const names[] = {"holiday.jpg", "2", ".tmp-7", "counters", "index"};
        for (int k = 0; k < 5; k++) {
            snprintf(path, sizeof path, "%.400s/%s.%d", folder, names[k], i);
            write_file(path, content, strlen(content));
            set_age(path, -1000000);
            files++;
        }
        if (i == 1) /* "sme" may be the beginning of smelt's own file */
            continue;
        name[40] = (char)('0' + i); /* the name of an entry, a temporary, an entry of another
                                       subfolder */
        snprintf(path, sizeof path, "%.400s/%s", folder, name);
        write_file(path, content, strlen(content));
        set_age(path, -1000000);
        snprintf(path, sizeof path, "%.400s/.tmp-%032d", folder, i);
        write_file(path, content, strlen(content));
        set_age(path, -1000000);
        snprintf(path, sizeof path, "%.400s/ff%s", folder, name + 2);
        write_file(path, "smelt\r\n\032", 8);
        set_age(path, -1000000);
        files += 3;
    }
    for (int n = 0; n < 6; n++)
        assert_int_equal(store(cache, n, &compiler_new, BYTES), 0);
    assert_int_equal(smelt__cache_prune(cache, 1, 3600, NULL), SMELT_OK);
    assert_int_equal(smelt__cache_clear(cache, &removed), SMELT_OK);
    assert_int_equal(count_files(folder, ""), files);
    assert_int_equal(count_files(scratch->cache, ".smelt"), 6); /* the user's files */
}

/* ---- much to evict ------------------------------------------------------------------------- */

/* Files with the names, sizes and first bytes of entries; nothing else of them is read. */
static void plant(struct scratch *scratch, int first, int count, long oldest_age) {
    char path[PATH_BYTES];
    unsigned char *zeros = calloc(1, FILE_BYTES);
    assert_non_null(zeros);
    memcpy(zeros, "smelt\r\n\032", 8);
    for (int n = first; n < first + count; n++) {
        subfolder_path(scratch->cache, n, path);
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
        entry_path(scratch->cache, n, &compiler_new, path);
        write_file(path, zeros, FILE_BYTES);
        set_age(path, -oldest_age + (n - first));
    }
    free(zeros);
}

static double timed_store(struct smelt__cache *cache, int n) {
    double begin = now_seconds();
    assert_int_equal(store(cache, n, &compiler_new, BYTES), 0);
    return now_seconds() - begin;
}

/* Thousands of entries above the cap: each store removes some of the oldest that it counted, and
 * does not wait for all of them; in the end the cap holds. */
SCRATCH_TEST(test_much_to_evict) {
    enum { PLANTED = 6000, LEFT = 1000, MOST_STORES = 2000 };
    struct smelt__cache *cache;
    double slowest = 0;
    int stores = 0, files;
    assert_int_equal(mkdir(scratch->cache, 0700), 0);
    plant(scratch, 100000, PLANTED, 1000000);
    scratch->settings.cap_bytes = (uint64_t)LEFT * FILE_BYTES;
    cache = cache_begin(scratch);
    do {
        double took = timed_store(cache, stores++);
        slowest = took > slowest ? took : slowest;
        files = count_files(scratch->cache, ".smelt");
    } while (files > LEFT && stores < MOST_STORES);
    printf("%d entries evicted in %d stores, the slowest of %.1f ms\n", PLANTED + stores - files,
           stores, 1e3 * slowest);
    assert_true(files <= LEFT);
    /* A generous limit, because a store waits for the disk. */
    assert_true(slowest < 5);
    /* The last entry was never removed. */
    assert_int_equal(hits(cache, stores - 1, &compiler_new, BYTES), 1);
}

/* ---- pruning ------------------------------------------------------------------------------- */

static smelt_cache_pruned prune(struct smelt__cache *cache, uint64_t max_bytes, uint64_t age) {
    smelt_cache_pruned pruned = SMELT_CACHE_PRUNED_INIT;
    assert_int_equal(smelt__cache_prune(cache, max_bytes, age, &pruned), SMELT_OK);
    return pruned;
}

SCRATCH_TEST(test_prune_to_a_size) {
    scratch->settings.cap_bytes = 15 * FILE_BYTES;
    struct smelt__cache *cache = cache_begin(scratch);
    smelt_cache_pruned pruned = prune(cache, 0, 0); /* an empty cache */
    assert_int_equal(pruned.removed + pruned.kept, 0);
    plant(scratch, 0, 20, 100000);
    pruned = prune(cache, 0, 0); /* to the cap */
    assert_int_equal(pruned.removed, 5);
    assert_int_equal(pruned.removed_bytes, 5 * FILE_BYTES);
    assert_int_equal(pruned.kept, 15);
    assert_int_equal(pruned.kept_bytes, 15 * FILE_BYTES);
    for (int n = 0; n < 20; n++)
        assert_int_equal(is_there(scratch, n), n >= 5);
    pruned = prune(cache, 3 * FILE_BYTES + 1, 0);
    assert_int_equal(pruned.removed, 12);
    for (int n = 0; n < 20; n++)
        assert_int_equal(is_there(scratch, n), n >= 17);
    assert_int_equal(prune(cache, 1, 0).removed, 3);
    assert_int_equal(count_files(scratch->cache, ".smelt"), 0);
    assert_int_equal(count_files(scratch->cache, ".tmp-"), 0);

    scratch->settings.cap_bytes = 0;
    cache = cache_begin(scratch);
    plant(scratch, 0, 20, 100000);
    assert_int_equal(prune(cache, 0, 0).removed, 0);
}

CACHE_TEST(test_prune_by_age) {
    char old[PATH_BYTES], fresh[PATH_BYTES];
    plant(scratch, 0, 10, 10 * 86400L);
    plant(scratch, 10, 10, 1000);
    age_entry(scratch, 3, 10L * 365 * 86400); /* from the future: fresh from now on */
    make_temporary(scratch, 1, old);
    make_temporary(scratch, 2, fresh);
    set_age(old, -7200);
    smelt_cache_pruned pruned = prune(cache, 0, UINT64_MAX); /* no entry is that old */
    assert_int_equal(pruned.removed, 0);
    assert_int_equal(pruned.temporaries, 1);
    assert_int_equal(access(fresh, F_OK), 0);
    pruned = prune(cache, 0, 9 * 86400);
    assert_int_equal(pruned.removed, 9);
    assert_int_equal(pruned.kept, 11);
    for (int n = 0; n < 20; n++)
        assert_int_equal(is_there(scratch, n), n >= 10 || n == 3);
    /* Both limits: the remaining entries are reduced to the size. */
    pruned = prune(cache, 2 * FILE_BYTES, 995);
    assert_int_equal(pruned.removed, 9);
    assert_int_equal(is_there(scratch, 3) + is_there(scratch, 19), 2);
}

/* Errors of pruning. */
SCRATCH_TEST(test_prune_refused) {
    char path[PATH_BYTES];
    struct smelt__cache *cache = cache_begin(scratch);
    snprintf(path, sizeof path, "%.400s/00", scratch->cache);
    write_file(path, "", 0);
    assert_refused(smelt__cache_prune(cache, 0, 0, NULL), SMELT_ERROR_CACHE, "cannot be written");
    cache_end(scratch);
    assert_int_equal(smelt_cache_prune(NULL, 0, 0, NULL), SMELT_ERROR_INVALID_ARGUMENT);
}

/* ---- what changes while it is done --------------------------------------------------------- */

/* Replaces the C library's fstatat, which is called when entries are counted and again before they
 * are removed; between the two calls for a file it calls `meddle`. */
static char watched[SMELT__FILE_NAME_BYTES];
static int looks;
static void (*meddle)(int folder, const char *name);

int fstatat(int folder, const char *name, struct stat *status, int flags) {
    static int (*next)(int, const char *, struct stat *, int);
    if (!next) {
        void *found = dlsym(RTLD_NEXT, sizeof(off_t) == sizeof(long) ? "fstatat" : "fstatat64");
        memcpy(&next, &found, sizeof found);
    }
    if (watched[0] && strcmp(name, watched) == 0 && ++looks == 2)
        meddle(folder, name);
    return next(folder, name, status, flags);
}

/* A hit in another process renews the entry's time, by the file system's smallest step or by whole
 * seconds. */
static void renew_by(int folder, const char *name, time_t seconds, long nanoseconds) {
    struct stat old;
    int file = openat(folder, name, O_RDONLY);
    assert_int_equal(fstat(file, &old), 0);
    const struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT}, {old.st_mtim.tv_sec + seconds, old.st_mtim.tv_nsec + nanoseconds}};
    assert_int_equal(futimens(file, times), 0);
    close(file);
}

static void use(int folder, const char *name) {
    renew_by(folder, name, 0, 1);
}

static void use_by_seconds(int folder, const char *name) {
    renew_by(folder, name, 100000, 0);
}

/* A store replaces the file; with a stopped clock the new one has the same time. */
static void replace(int folder, const char *name) {
    struct stat old;
    unsigned char bytes[FILE_BYTES];
    int file = openat(folder, name, O_RDONLY);
    assert_int_equal(fstat(file, &old), 0);
    assert_int_equal(read(file, bytes, sizeof bytes), sizeof bytes);
    close(file);
    file = openat(folder, "new", O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_int_equal(write(file, bytes, sizeof bytes), sizeof bytes);
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, old.st_mtim};
    assert_int_equal(futimens(file, times), 0);
    close(file);
    assert_int_equal(renameat(folder, "new", folder, name), 0);
}

static void watch(int n, void (*by)(int folder, const char *name)) {
    struct smelt__cache_key key = key_number(n);
    smelt__cache_file_name(&key, &compiler_new, watched);
    looks = 0;
    meddle = by;
}

enum way { BY_SIZE, BY_AGE, BY_STORE, WAYS };

/* The oldest of five would be removed, but is used or renewed after it was counted: it stays and
 * does not count as removed. */
SCRATCH_TEST(test_renewed_since_counted) {
    static void (*const meddlers[])(int folder, const char *name) = {use, use_by_seconds, replace};
    for (int way = 0; way < WAYS; way++)
        for (int i = 0; i < 3; i++) {
            smelt_cache_pruned pruned = SMELT_CACHE_PRUNED_INIT;
            scratch->settings.cap_bytes = way == BY_STORE ? 5 * FILE_BYTES : 0;
            struct smelt__cache *cache = cache_begin(scratch);
            uint64_t removed;
            assert_int_equal(smelt__cache_clear(cache, &removed), SMELT_OK);
            for (int n = 0; n < 5; n++) {
                assert_int_equal(store(cache, n, &compiler_new, BYTES), 0);
                age_entry(scratch, n, -100000 + 10000 * n);
            }
            watch(0, meddlers[i]);
            if (way == BY_SIZE)
                assert_int_equal(smelt__cache_prune(cache, 4 * FILE_BYTES, 0, &pruned), SMELT_OK);
            else if (way == BY_AGE)
                assert_int_equal(smelt__cache_prune(cache, 0, 85000, &pruned), SMELT_OK);
            else
                assert_int_equal(store(cache, 5, &compiler_new, BYTES), 0);
            watched[0] = '\0';
            assert_true(looks >= 2);
            assert_int_equal(is_there(scratch, 0), 1);
            assert_int_equal(is_there(scratch, 1), 0); /* is removed instead, or is equally old */
            if (way != BY_STORE)
                assert_int_equal(pruned.removed, 1);
            assert_int_equal(hits(cache, 0, &compiler_new, BYTES), 1);
        }
}

/* A damaged entry that a store repairs during `verify`. */
static void heal(int folder, const char *name) {
    struct smelt__cache_key key = key_number(0);
    struct smelt__cache_entry entry = {
        .key = key, .compiler = compiler_new, .compiled = compiled_number(0, BYTES)};
    unsigned char bytes[FILE_BYTES];
    int file = openat(folder, "new", O_WRONLY | O_CREAT | O_EXCL, 0600);
    smelt__entry_encode(&entry, bytes, bytes + FILE_BYTES - SMELT__ENTRY_CHECKSUM_BYTES);
    memcpy(bytes + SMELT__ENTRY_HEADER_BYTES, entry.compiled.cubin, BYTES);
    assert_int_equal(write(file, bytes, sizeof bytes), sizeof bytes);
    close(file);
    assert_int_equal(renameat(folder, "new", folder, name), 0);
    free(entry.compiled.cubin);
}

CACHE_TEST(test_healed_since_read) {
    uint64_t sound, removed;
    char path[PATH_BYTES];
    assert_int_equal(store(cache, 0, &compiler_new, BYTES), 0);
    entry_path(scratch->cache, 0, &compiler_new, path);
    assert_int_equal(truncate(path, 700), 0);
    watch(0, heal);
    assert_int_equal(smelt__cache_verify(cache, &sound, &removed), SMELT_OK);
    watched[0] = '\0';
    assert_int_equal(looks, 2);
    assert_int_equal(removed, 0);
    assert_int_equal(hits(cache, 0, &compiler_new, BYTES), 1);
}

TESTS("cache eviction")
