/* Export and import: contents, damaged and hostile files, and the file as the read-only layer. */
#include "common.h"
#include "runtime/hash.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 700, ENTRIES = 12, BLOCK = 512, INDEX = 512, RECORDS = 512 + 64, RECORD = 48 };
static const char tuning_text[] = "a line of tuning\nanother\n";

static void archive_path(const struct scratch *scratch, char path[PATH_BYTES]) {
    snprintf(path, PATH_BYTES, "%.300s/kernels.tar", scratch->folder);
}

static smelt_cache_transfer export_to(struct smelt__cache *cache, const char *path) {
    smelt_cache_transfer result = SMELT_CACHE_TRANSFER_INIT;
    assert_int_equal(smelt__cache_export(cache, path, tuning_text, strlen(tuning_text), &result),
                     SMELT_OK);
    return result;
}

/* The status; the tuning file's text is compared when there is one. */
static smelt_status import_from(struct smelt__cache *cache, const char *path,
                                smelt_cache_transfer *result) {
    char *tuning;
    size_t bytes;
    smelt_status status;

    *result = (smelt_cache_transfer){.size = sizeof *result};
    status = smelt__cache_import(cache, path, &tuning, &bytes, result);
    if (tuning) {
        assert_int_equal(bytes, strlen(tuning_text));
        assert_string_equal(tuning, tuning_text);
    }
    free(tuning);
    return status;
}

/* A cache of kernels 0 to count - 1, every third of them by both compilers. */
static struct smelt__cache *make_cache(struct scratch *scratch, int count) {
    struct smelt__cache *cache = cache_begin(scratch);
    for (int n = 0; n < count; n++) {
        assert_int_equal(store(cache, n, &compiler_new, (size_t)(BYTES + n)), 0);
        if (n % 3 == 0)
            assert_int_equal(store(cache, n, &compiler_old, (size_t)(BYTES + 1000 + n)), 0);
    }
    return cache;
}

static const char *other_folder(const struct scratch *scratch, char path[PATH_BYTES]) {
    snprintf(path, PATH_BYTES, "%.300s/other", scratch->folder);
    return path;
}

/* Makes the exported file, then opens an empty cache in another folder. */
static struct smelt__cache *make_archive(struct scratch *scratch, char path[PATH_BYTES],
                                         char other[PATH_BYTES]) {
    struct smelt__cache *cache = make_cache(scratch, ENTRIES);

    archive_path(scratch, path);
    assert_int_equal(export_to(cache, path).entries, ENTRIES + ENTRIES / 3);
    scratch->settings.folder = other_folder(scratch, other);
    return cache_begin(scratch);
}

static void expect_all(struct smelt__cache *cache) {
    for (int n = 0; n < ENTRIES; n++) {
        assert_int_equal(hits(cache, n, &compiler_new, (size_t)(BYTES + n)), 1);
        if (n % 3 == 0)
            assert_int_equal(hits(cache, n, &compiler_old, (size_t)(BYTES + 1000 + n)), 1);
    }
}

/* ---- there and back ------------------------------------------------------------------------ */

SCRATCH_TEST(test_there_and_back) {
    char path[PATH_BYTES], other[PATH_BYTES];
    struct smelt__cache *cache = make_archive(scratch, path, other);
    smelt_cache_transfer result;
    assert_int_equal(import_from(cache, path, &result), SMELT_OK);
    assert_int_equal(result.entries, ENTRIES + ENTRIES / 3);
    assert_int_equal(result.present + result.foreign + result.damaged, 0);
    expect_all(cache);
    assert_int_equal(import_from(cache, path, &result), SMELT_OK);
    assert_int_equal(result.entries, 0);
    assert_int_equal(result.present, ENTRIES + ENTRIES / 3);
    assert_int_equal(scratch->warnings, 0);
}

/* A layer's folder can be imported like a file; damaged entries here are replaced. */
SCRATCH_TEST(test_import_of_a_folder) {
    struct smelt__cache *cache = make_cache(scratch, ENTRIES);
    char path[PATH_BYTES], other[PATH_BYTES];
    smelt_cache_transfer result;
    cache_end(scratch);
    snprintf(path, sizeof path, "%.400s/tuning", scratch->cache);
    write_file(path, tuning_text, strlen(tuning_text));
    scratch->settings.folder = other_folder(scratch, other);
    cache = cache_begin(scratch);
    assert_int_equal(store(cache, 0, &compiler_new, BYTES), 0);
    entry_path(other, 0, &compiler_new, path);
    write_file(path, "damage", 6);
    entry_path(scratch->cache, 5, &compiler_new, path);
    write_file(path, "damage", 6);
    assert_int_equal(import_from(cache, scratch->cache, &result), SMELT_OK);
    assert_int_equal(result.entries, ENTRIES + ENTRIES / 3 - 1);
    assert_int_equal(result.damaged, 1);
    assert_int_equal(hits(cache, 0, &compiler_new, BYTES), 1);
    assert_int_equal(hits(cache, 5, &compiler_new, BYTES + 5), 0);
}

/* ---- an export that fails ------------------------------------------------------------------ */

/* The result of an export with a limit on the size of files, after one byte was written. */
static int export_limited(struct scratch *scratch, const char *path, rlim_t limit) {
    const struct rlimit bytes = {limit, limit};
    smelt_cache_transfer result = SMELT_CACHE_TRANSFER_INIT;
    struct smelt__cache *cache = smelt__cache_open(&scratch->settings, &scratch->log);
    if (!cache || setrlimit(RLIMIT_FSIZE, &bytes) != 0)
        return 2;
    smelt_status status =
        smelt__cache_export(cache, path, tuning_text, strlen(tuning_text), &result);
    return status == SMELT_ERROR_CACHE && strstr(smelt_last_error(), "File too large") &&
                   strstr(smelt_last_error(), path)
               ? 0
               : 1;
}

/* Wherever an export fails, its temporary is removed and the previous file is unchanged. */
SCRATCH_TEST(test_failed_export_leaves_nothing) {
    char folder[PATH_BYTES], path[PATH_BYTES], inside[PATH_BYTES];
    struct smelt__cache *cache = make_cache(scratch, ENTRIES);
    smelt_cache_transfer result = SMELT_CACHE_TRANSFER_INIT;
    struct stat whole;
    size_t bytes;
    int failures = 0;
    snprintf(folder, sizeof folder, "%.300s/exports", scratch->folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(path, sizeof path, "%.400s/kernels.tar", folder);
    export_to(cache, path);
    assert_int_equal(stat(path, &whole), 0);
    write_file(path, "the last one", 12);
    for (rlim_t limit = 0; limit < (rlim_t)whole.st_size; limit += 500, failures++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(export_limited(scratch, path, limit));
        assert_int_equal(exit_status(child), 0);
        assert_int_equal(count_files(folder, ""), 1);
        unsigned char *file = read_file(path, &bytes);
        assert_int_equal(bytes, 12);
        assert_memory_equal(file, "the last one", 12);
        free(file);
    }
    assert_true(failures > 20);
    /* The last step fails: the target may not be replaced. */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(inside, sizeof inside, "%.480s/x", path);
    write_file(inside, "x", 1);
    assert_int_equal(smelt__cache_export(cache, path, NULL, 0, &result), SMELT_ERROR_CACHE);
    assert_int_equal(count_files(folder, ""), 1);
}

/* ---- what an export is ---------------------------------------------------------------------- */

/* Equal contents give equal bytes, whenever and from wherever they are exported. */
SCRATCH_TEST(test_same_bytes) {
    char path[PATH_BYTES], again[PATH_BYTES], other[PATH_BYTES];
    struct smelt__cache *cache = make_archive(scratch, path, other);
    smelt_cache_transfer result;
    size_t bytes, more;
    assert_int_equal(import_from(cache, path, &result), SMELT_OK);
    snprintf(again, sizeof again, "%.300s/again.tar", scratch->folder);
    result = export_to(cache, again);
    unsigned char *first = read_file(path, &bytes);
    unsigned char *second = read_file(again, &more);
    assert_int_equal(bytes, more);
    assert_int_equal(bytes, result.bytes);
    assert_memory_equal(first, second, bytes);
    free(first);
    free(second);
}

/* The documented offsets, and the file as tar lists it. */
CACHE_TEST(test_grammar) {
    struct smelt__cache_key key = key_number(1);
    char path[PATH_BYTES], entry[PATH_BYTES], name[SMELT__FILE_NAME_BYTES];
    size_t bytes, entry_bytes;
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    archive_path(scratch, path);
    assert_int_equal(export_to(cache, path).entries, 1);
    unsigned char *file = read_file(path, &bytes);
    assert_int_equal(bytes % BLOCK, 0);
    assert_string_equal((char *)file, "index");
    assert_memory_equal(file + 257, "ustar\00000", 8);
    assert_memory_equal(file + 124, "00000000200", 12); /* 64 + 48 + 16 bytes, in octal */
    assert_memory_equal(file + INDEX, "smelt\r\nA\1\0\0\0\x30\0\0\0", 16);
    assert_int_equal(file[INDEX + 16] | file[INDEX + 17] << 8, bytes);
    assert_memory_equal(file + INDEX + 24, "\1\0\0\0\0\0\0\0", 8);
    assert_memory_equal(file + INDEX + 32, "\0\6\0\0\0\0\0\0", 8); /* tuning at 1536 */
    assert_memory_equal(file + 1536, tuning_text, strlen(tuning_text));
    assert_memory_equal(file + RECORDS, key.name, 16);
    assert_memory_equal(file + RECORDS + 16, "\x0d\0\4\5\6\0", 6);
    assert_memory_equal(file + RECORDS + 32, "\0\x0a\0\0\0\0\0\0", 8); /* the entry at 2560 */
    smelt__cache_file_name(&key, &compiler_new, name);
    assert_memory_equal((char *)file + 2048 + 3, name, strlen(name));
    entry_path(scratch->cache, 1, &compiler_new, entry);
    unsigned char *content = read_file(entry, &entry_bytes);
    assert_memory_equal(file + 2560, content, entry_bytes);
    free(content);
    free(file);
}

static int run(const char *const *arguments) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execvp(arguments[0], (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    return exit_status(child);
}

/* Unpacked by tar, it is a read-only layer. */
SCRATCH_TEST(test_unpacked_by_tar) {
    char path[PATH_BYTES], other[PATH_BYTES], *tuning;
    struct smelt__cache *cache = make_archive(scratch, path, other);
    const char *const command[] = {"tar", "-xf", path, "-C", scratch->readonly, NULL};
    size_t bytes;
    cache_end(scratch);
    assert_int_equal(mkdir(scratch->readonly, 0755), 0);
    int status = run(command);
    if (status == 127) {
        print_message("there is no tar\n");
        skip();
    }
    assert_int_equal(status, 0);
    scratch->settings.readonly_folder = scratch->readonly;
    cache = cache_begin(scratch);
    expect_all(cache);
    assert_int_equal(smelt__cache_archive_tuning(cache, &tuning, &bytes), 0);
    snprintf(path, sizeof path, "%.400s/tuning", scratch->readonly);
    tuning = (char *)read_file(path, &bytes);
    assert_int_equal(bytes, strlen(tuning_text));
    assert_memory_equal(tuning, tuning_text, bytes);
    free(tuning);
    assert_int_equal(scratch->warnings, 0);
}

/* ---- the file as the read-only layer ------------------------------------------------------- */

SCRATCH_TEST(test_as_readonly_layer) {
    char path[PATH_BYTES], other[PATH_BYTES], link[PATH_BYTES], *tuning;
    struct smelt__cache *cache = make_archive(scratch, path, other);
    const struct smelt__compiler_id newest = {14, 0, {9}};
    struct smelt__cache_key key = key_number(1);
    size_t bytes;
    cache_end(scratch);
    snprintf(link, sizeof link, "%.300s/link", scratch->folder);
    assert_int_equal(symlink(path, link), 0);
    for (int linked = 0; linked < 2; linked++) {
        scratch->settings.readonly_folder = linked ? link : path;
        cache = cache_begin(scratch);
        expect_all(cache); /* the exact compiler's is preferred */
        assert_int_equal(hits(cache, 0, NULL, BYTES), 1);
        assert_int_equal(hits(cache, 3, &newest, BYTES + 3), 1); /* else the newest */
        assert_int_equal(hits(cache, ENTRIES, &compiler_new, BYTES), 0);
        assert_int_equal(smelt__cache_archive_tuning(cache, &tuning, &bytes), 1);
        assert_string_equal(tuning, tuning_text);
        free(tuning);
        /* A kernel of that layer that the driver refused is skipped. */
        smelt__cache_forget(cache, &key, &compiler_new);
        assert_int_equal(hits(cache, 1, &compiler_new, BYTES + 1), 0);
        assert_int_equal(scratch->warnings, 0);
        assert_int_equal(smelt__cache_counts(cache).errors, 0);
        const smelt_cache_stats stats = stats_of(cache);
        assert_int_equal(stats.readonly_entries, ENTRIES + ENTRIES / 3);
        assert_string_equal(stats.readonly_problem, "");
    }
}

/* An export contains both layers; of a kernel in both, the writable layer's entry. */
SCRATCH_TEST(test_export_of_both_layers) {
    char path[PATH_BYTES], other[PATH_BYTES], both[PATH_BYTES];
    struct smelt__cache *cache = make_archive(scratch, path, other);
    smelt_cache_transfer result;
    for (int from_folder = 0; from_folder < 2; from_folder++) {
        scratch->settings.folder = other;
        scratch->settings.readonly_folder = from_folder ? scratch->cache : path;
        cache = cache_begin(scratch);
        assert_int_equal(store(cache, 0, &compiler_new, BYTES), 0);
        assert_int_equal(store(cache, 100, &compiler_new, BYTES), 0);
        snprintf(both, sizeof both, "%.300s/both.tar", scratch->folder);
        result = export_to(cache, both);
        assert_int_equal(result.entries, ENTRIES + ENTRIES / 3 + 1);
        scratch->settings.folder = scratch->readonly;
        scratch->settings.readonly_folder = both;
        cache = cache_begin(scratch);
        expect_all(cache);
        assert_int_equal(hits(cache, 100, &compiler_new, BYTES), 1);
    }
}

/* ---- damage and malice --------------------------------------------------------------------- */

static void put(unsigned char *at, uint64_t number) {
    for (int i = 0; i < 8; i++)
        at[i] = (unsigned char)(number >> (8 * i));
}

/* Writes the correct checksum of an index with so many records. */
static void seal(unsigned char *file, uint64_t count) {
    size_t summed = 64 + RECORD * count;
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(file + INDEX, summed));
    memcpy(file + INDEX + summed, canonical.digest, 16);
}

/* An import refuses the file or takes only valid entries; as a layer it gives correct hits or
 * misses. */
static void expect_harmless(struct scratch *scratch, const char *path) {
    smelt_cache_transfer result;
    struct smelt__cache *cache = cache_begin(scratch);
    if (import_from(cache, path, &result) != SMELT_OK)
        assert_non_null(strstr(smelt_last_error(), path));
    scratch->settings.readonly_folder = path;
    cache = cache_begin(scratch);
    /* A hit is compared with the stored kernel; these kernels have one compiler's entry only. */
    for (int n = 1; n < ENTRIES; n += 3)
        hits(cache, n, &compiler_new, (size_t)(BYTES + n));
    cache_end(scratch);
    scratch->settings.readonly_folder = "";
}

SCRATCH_TEST(test_every_byte_changed) {
    char path[PATH_BYTES], other[PATH_BYTES], damaged[PATH_BYTES];
    struct smelt__cache *cache = make_archive(scratch, path, other);
    uint64_t random = test_seed("archive");
    size_t bytes;
    cache_end(scratch);
    scratch->log.function = NULL;
    snprintf(damaged, sizeof damaged, "%.300s/damaged.tar", scratch->folder);
    unsigned char *file = read_file(path, &bytes);
    /* Every byte of the index, and a sample of the others. */
    for (size_t at = 0; at < bytes; at += at < 2048 ? 7 : 1 + next_random(&random) % 400) {
        unsigned char before = file[at];
        file[at] ^= (unsigned char)(1 + next_random(&random) % 255);
        write_file(damaged, file, bytes);
        expect_harmless(scratch, damaged);
        file[at] = before;
    }
    for (size_t cut = 0; cut < bytes; cut += 1 + next_random(&random) % 1000) {
        write_file(damaged, file, cut);
        expect_harmless(scratch, damaged);
    }
    free(file);
    cache = cache_begin(scratch); /* no imported entry is wrong */
    expect_all(cache);
}

static void expect_refused(struct scratch *scratch, const char *path, const char *why) {
    struct smelt__cache *cache = cache_begin(scratch);
    smelt_cache_transfer result;
    assert_refused(import_from(cache, path, &result), SMELT_ERROR_CACHE, why);
    assert_says(smelt_last_error(), path, why);
    assert_int_equal(result.entries, 0);
    assert_int_equal(count_files(scratch->settings.folder, ".smelt"), 0);
}

struct lie {
    size_t at;
    int width; /* bytes */
    uint64_t value;
    const char *why;
};

/* Each wrong number has a correct checksum. The file is refused, with the number's position. */
SCRATCH_TEST(test_lies) {
    enum { COUNT = ENTRIES + ENTRIES / 3 };
    static const char index[] = "its index is longer than the file",
                      tuning[] = "its tuning file is outside the file",
                      order[] = "record 1 of its index (byte 624) is out of order",
                      strange[] = "is not a file that";
    static const struct lie lies[] = {
        {0, 1, 'I', strange},
        {INDEX, 1, 'S', strange},
        {INDEX + 8, 1, 2, "another version"},
        {INDEX + 12, 1, 49, index},
        {INDEX + 24, 8, UINT64_MAX, index},
        {INDEX + 24, 8, UINT64_C(1) << 32, index},
        {INDEX + 24, 8, 1 << 20, index},
        {INDEX + 16, 8, UINT64_MAX, "its size differs from the size in its head"},
        {INDEX + 16, 8, 0, "its size differs from the size in its head"},
        {INDEX + 32, 8, UINT64_MAX, tuning},
        {INDEX + 32, 8, 1 << 20, tuning},
        {INDEX + 40, 8, UINT64_MAX, tuning},
        {INDEX + 40, 8, 1 << 20, tuning},
        {RECORDS, 8, UINT64_MAX, order},
        {RECORDS + RECORD, 8, 0, order},
        {RECORDS + 32, 8, RECORDS, "record 0 of its index (byte 576) names an entry that overlaps"},
        {RECORDS + 5 * RECORD + 32, 8, 0, "record 5 of its index (byte 816) names an entry that"},
        {RECORDS + 5 * RECORD + 32, 8, UINT64_MAX, "record 5 of its index (byte 816) names an"},
        {RECORDS + 5 * RECORD + 32, 8, 1 << 20, "record 5 of its index (byte 816) names an entry"},
        {RECORDS + 5 * RECORD + 40, 8, UINT64_MAX, "names an entry above the maximum size"},
        {RECORDS + 5 * RECORD + 40, 8, 1 << 20, "names an entry that overlaps"},
        {RECORDS + RECORD * COUNT, 0, 0, "its index's checksum (byte 1344) is wrong"},
    };
    char path[PATH_BYTES], other[PATH_BYTES], lie[PATH_BYTES];
    unsigned char before[8], number[8];
    size_t bytes;
    make_archive(scratch, path, other);
    snprintf(lie, sizeof lie, "%.300s/lie.tar", scratch->folder);
    unsigned char *file = read_file(path, &bytes);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        unsigned char *at = file + lies[i].at;
        memcpy(before, at, 8);
        put(number, lies[i].value);
        memcpy(at, number, (size_t)lies[i].width);
        if (lies[i].width > 0)
            seal(file, COUNT);
        else
            at[0] ^= 1; /* of the checksum itself */
        write_file(lie, file, bytes);
        expect_refused(scratch, lie, lies[i].why);
        memcpy(at, before, 8);
        seal(file, COUNT);
    }
    free(file);
}

/* An export replaces regular files only, not links (such as /dev/stdout) or devices. */
static void expect_kept(struct smelt__cache *cache, const struct scratch *scratch,
                        const char *path) {
    char place[400];
    struct stat status;
    smelt_cache_transfer result = SMELT_CACHE_TRANSFER_INIT;

    snprintf(place, sizeof place, "%.300s/place", scratch->folder);
    assert_int_equal(mkfifo(place, 0600), 0);
    assert_refused(smelt__cache_export(cache, place, "", 0, &result), SMELT_ERROR_CACHE,
                   "place cannot be written: it is not a regular file");
    assert_true(lstat(place, &status) == 0 && S_ISFIFO(status.st_mode));
    assert_int_equal(unlink(place), 0);
    assert_int_equal(symlink(path, place), 0);
    assert_refused(smelt__cache_export(cache, place, "", 0, &result), SMELT_ERROR_CACHE,
                   "it is a symbolic link: name the file itself");
    assert_true(lstat(place, &status) == 0 && S_ISLNK(status.st_mode));
    assert_int_equal(unlink(place), 0);
    assert_int_equal(count_files(scratch->folder, "place."), 0);
}

/* ---- what else may stand there ------------------------------------------------------------- */

SCRATCH_TEST(test_refused) {
    char path[PATH_BYTES], other[PATH_BYTES], strange[PATH_BYTES];
    struct smelt__cache *cache = make_archive(scratch, path, other);
    smelt_cache_transfer result = SMELT_CACHE_TRANSFER_INIT;
    alarm(20); /* a FIFO must not hang the run */
    cache_end(scratch);
    snprintf(strange, sizeof strange, "%.300s/strange", scratch->folder);
    expect_refused(scratch, strange, "No such file");
    assert_int_equal(mkfifo(strange, 0600), 0);
    expect_refused(scratch, strange, "neither a folder nor a regular file");
    assert_int_equal(unlink(strange), 0);
    write_file(strange, "", 0);
    expect_refused(scratch, strange, "not a file that `smelt cache export` wrote");
    assert_int_equal(chmod(path, 0666), 0);
    expect_refused(scratch, path, "writable by everyone");
    assert_int_equal(chmod(path, 0644), 0);
    scratch->settings.cap_bytes = 10000;
    expect_refused(scratch, path, "more than the cache's cap of 10000");
    scratch->settings.cap_bytes = 0;

    /* An export to a folder that cannot be written leaves no files. */
    cache = cache_begin(scratch);
    snprintf(strange, sizeof strange, "%.300s/nowhere/kernels.tar", scratch->folder);
    assert_refused(smelt__cache_export(cache, strange, "", 0, &result), SMELT_ERROR_CACHE,
                   "No such file");
    assert_refused(smelt__cache_export(cache, scratch->cache, "", 0, &result), SMELT_ERROR_CACHE,
                   "Is a directory");
    assert_int_equal(count_files(scratch->folder, "cache."), 0);
    expect_kept(cache, scratch, path);
    cache_end(scratch);

    scratch->settings.readonly_folder = path;
    scratch->warnings = 0;
    assert_int_equal(chmod(path, 0666), 0);
    cache = cache_begin(scratch);
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES + 1), 0);
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES + 1), 0);
    assert_int_equal(scratch->warnings, 1);
    assert_non_null(strstr(scratch->last_warning, "writable by everyone"));
    cache_end(scratch);
    alarm(0);
}

/* Entries of another version are neither exported nor imported, and cause no error. */
SCRATCH_TEST(test_other_version) {
    struct smelt__cache *cache = make_cache(scratch, 3);
    char path[PATH_BYTES], other[PATH_BYTES];
    XXH128_canonical_t canonical;
    size_t bytes;
    entry_path(scratch->cache, 1, &compiler_new, path);
    unsigned char *file = read_file(path, &bytes);
    file[8] = 1;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(file, bytes - 16));
    memcpy(file + bytes - 16, canonical.digest, 16);
    write_file(path, file, bytes);
    free(file);
    archive_path(scratch, path);
    smelt_cache_transfer result = export_to(cache, path);
    assert_int_equal(result.entries, 3);
    assert_int_equal(result.foreign, 1);
    assert_int_equal(result.damaged, 0);
    scratch->settings.folder = other_folder(scratch, other);
    cache = cache_begin(scratch);
    assert_int_equal(import_from(cache, scratch->cache, &result), SMELT_OK);
    assert_int_equal(result.entries, 3);
    assert_int_equal(result.foreign, 1);
    assert_int_equal(scratch->warnings, 0);
}

TESTS("cache archive")
