/* The counters of all processes: sums, damage to their file, and time. */
#include "common.h"
#include "runtime/hash.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1000, RECORD = 64 };

/* Reads the counters as another process would. */
static smelt_cache_stats recorded(struct scratch *scratch) {
    const smelt_cache_stats stats = stats_of(cache_begin(scratch));
    cache_end(scratch);
    return stats;
}

static void counters_path(const struct scratch *scratch, char path[PATH_BYTES]) {
    snprintf(path, PATH_BYTES, "%.400s/counters", scratch->cache);
}

static size_t counters_bytes(const struct scratch *scratch) {
    char path[PATH_BYTES];
    struct stat status;
    counters_path(scratch, path);
    assert_int_equal(stat(path, &status), 0);
    return (size_t)status.st_size;
}

/* 2 misses, 2 stores, 3 hits of kernels that took 0.5 s and 1.5 s: 2.5 s saved. */
static void use_a_little(struct scratch *scratch) {
    struct smelt__cache *cache = cache_begin(scratch);
    hits(cache, 0, &compiler_new, BYTES);
    hits(cache, 1, &compiler_new, BYTES);
    store(cache, 0, &compiler_new, BYTES);
    store(cache, 1, &compiler_new, BYTES);
    hits(cache, 0, &compiler_new, BYTES);
    hits(cache, 1, &compiler_new, BYTES);
    hits(cache, 0, &compiler_new, BYTES);
    cache_end(scratch);
}

SCRATCH_TEST(test_counts_outlive_the_process) {
    use_a_little(scratch);
    smelt_cache_stats stats = recorded(scratch);
    assert_int_equal(stats.hits, 3);
    assert_int_equal(stats.readonly_hits, 0);
    assert_int_equal(stats.misses, 2);
    assert_int_equal(stats.stores, 2);
    assert_int_equal(stats.errors, 0);
    assert_true(stats.saved_seconds == 2.5);
}

/* Records appended by many processes at once: none is lost on a local disk. */
SCRATCH_TEST(test_many_processes) {
    enum { PROCESSES = 12, ROUNDS = 100 };
    int status;
    use_a_little(scratch);
    for (int i = 0; i < PROCESSES; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct smelt__cache *cache = smelt__cache_open(&scratch->settings, &scratch->log);
            for (int round = 0; cache && round < ROUNDS; round++)
                if (!hits(cache, 0, &compiler_new, BYTES) || hits(cache, 9, &compiler_new, BYTES))
                    _exit(1);
            smelt__cache_close(cache);
            _exit(cache ? 0 : 1);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    smelt_cache_stats stats = recorded(scratch);
    assert_int_equal(stats.hits, 3 + PROCESSES * ROUNDS);
    assert_int_equal(stats.misses, 2 + PROCESSES * ROUNDS);
}

SCRATCH_TEST(test_readonly_hits) {
    struct smelt__cache *cache;
    scratch->settings.folder = scratch->readonly;
    use_a_little(scratch);
    scratch->settings.folder = scratch->cache;
    scratch->settings.readonly_folder = scratch->readonly;
    cache = cache_begin(scratch);
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 1);
    smelt_cache_stats stats = recorded(scratch);
    assert_int_equal(stats.hits, 0);
    assert_int_equal(stats.readonly_hits, 1);
    assert_true(stats.saved_seconds == 1.5);
    scratch->settings.folder = scratch->readonly; /* another cache's counts are separate */
    assert_int_equal(recorded(scratch).hits, 3);
}

/* A child does not record its parent's pending counts. */
SCRATCH_TEST(test_fork) {
    use_a_little(scratch);
    struct smelt__cache *cache = cache_begin(scratch);
    assert_int_equal(hits(cache, 0, &compiler_new, BYTES), 1);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        smelt__cache_close(cache);
        _exit(0);
    }
    assert_int_equal(exit_status(child), 0);
    assert_int_equal(recorded(scratch).hits, 4);
}

/* A process that never closes its cache records its counts from time to time; a killed one loses
 * the rest. */
SCRATCH_TEST(test_never_closed) {
    enum { LOOKUPS = 200, AT_LEAST = 192 };
    use_a_little(scratch);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct smelt__cache *cache = smelt__cache_open(&scratch->settings, &scratch->log);
        for (int i = 0; cache && i < LOOKUPS; i++)
            hits(cache, 0, &compiler_new, BYTES);
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    smelt_cache_stats stats = recorded(scratch);
    assert_in_range(stats.hits, 3 + AT_LEAST, 3 + LOOKUPS);
}

/* ---- the file ------------------------------------------------------------------------------ */

static void put(unsigned char *at, uint64_t number) {
    for (int i = 0; i < 8; i++)
        at[i] = (unsigned char)(number >> (8 * i));
}

static void make_record(unsigned char record[RECORD], char version, uint64_t each) {
    memcpy(record, "smeltcn", 7);
    record[7] = (unsigned char)version;
    for (int i = 0; i < 6; i++)
        put(record + 8 + 8 * i, each);
    put(record + 56, XXH3_64bits(record, 56));
}

SCRATCH_TEST(test_damaged_file) {
    unsigned char file[8 * RECORD];
    char path[PATH_BYTES];
    uint64_t random = test_seed("counters");
    use_a_little(scratch);
    counters_path(scratch, path);
    /* Every bit of one record is flipped in turn: the record does not count, its neighbours do. */
    for (int bit = 0; bit < 8 * RECORD; bit++) {
        for (int i = 0; i < 3; i++)
            make_record(file + i * RECORD, '1', 10);
        file[RECORD + bit / 8] ^= (unsigned char)(1 << bit % 8);
        write_file(path, file, 3 * RECORD);
        assert_int_equal(recorded(scratch).hits, 20);
    }
    /* Truncated at any byte: whole records count, and so do records appended later. */
    for (size_t bytes = 0; bytes <= 2 * RECORD; bytes++) {
        make_record(file, '1', 10);
        make_record(file + RECORD, '1', 10);
        write_file(path, file, bytes);
        assert_int_equal(recorded(scratch).hits, bytes / RECORD * 10);
        struct smelt__cache *cache = cache_begin(scratch);
        assert_int_equal(hits(cache, 0, &compiler_new, BYTES), 1);
        assert_int_equal(recorded(scratch).hits, bytes / RECORD * 10 + 1);
    }
    for (int round = 0; round < 100; round++) {
        for (size_t i = 0; i < sizeof file; i++)
            file[i] = (unsigned char)next_random(&random);
        write_file(path, file, next_random(&random) % sizeof file);
        assert_int_equal(recorded(scratch).hits, 0);
    }
    assert_int_equal(scratch->warnings, 0); /* reading the statistics writes nothing */
    /* Another version's records are skipped; sums do not wrap around. */
    make_record(file, '2', 10);
    make_record(file + RECORD, '1', UINT64_MAX - 1);
    make_record(file + 2 * RECORD, '1', 5);
    write_file(path, file, 3 * RECORD);
    assert_true(recorded(scratch).hits == UINT64_MAX);
    assert_int_equal(scratch->warnings, 0);
}

SCRATCH_TEST(test_strange_file) {
    char path[PATH_BYTES], elsewhere[PATH_BYTES];
    unsigned char record[RECORD];
    alarm(20); /* a FIFO must not hang the run */
    use_a_little(scratch);
    counters_path(scratch, path);
    assert_int_equal(truncate(path, (off_t)1 << 42), 0);
    double begin = now_seconds();
    assert_int_equal(recorded(scratch).hits, 3);
    assert_true(now_seconds() - begin < 1);

    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    use_a_little(scratch);
    assert_int_equal(recorded(scratch).hits, 0);

    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    use_a_little(scratch);
    assert_int_equal(recorded(scratch).hits, 0);

    assert_int_equal(rmdir(path), 0);
    snprintf(elsewhere, sizeof elsewhere, "%.300s/elsewhere", scratch->folder);
    write_file(elsewhere, "", 0);
    assert_int_equal(symlink(elsewhere, path), 0);
    use_a_little(scratch);
    assert_int_equal(recorded(scratch).hits, 0);
    assert_int_equal(access(elsewhere, F_OK), 0);

    assert_int_equal(unlink(path), 0);
    make_record(record, '1', 7);
    write_file(path, record, sizeof record);
    assert_int_equal(chmod(path, 0666), 0); /* other users could have written it */
    assert_int_equal(recorded(scratch).hits, 0);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(recorded(scratch).hits, 7);
    alarm(0);
}

/* A user's own file of that name is neither changed nor removed; there is one warning. */
SCRATCH_TEST(test_users_own_file) {
    static const char *const contents[] = {"rows: 3", "smelt: notes on the counters", "smeltc\n",
                                           "\n"};
    struct smelt__cache *cache;
    char path[PATH_BYTES];
    size_t bytes;
    assert_int_equal(mkdir(scratch->cache, 0700), 0);
    counters_path(scratch, path);
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        write_file(path, contents[i], strlen(contents[i]));
        scratch->warnings = 0;
        cache = cache_begin(scratch);
        for (int n = 0; n < 3; n++)
            store(cache, n, &compiler_new, BYTES);
        assert_int_equal(smelt__cache_clear(cache, NULL), SMELT_OK);
        cache_end(scratch);
        assert_int_equal(scratch->warnings, 1);
        assert_non_null(strstr(scratch->last_warning, path));
        unsigned char *file = read_file(path, &bytes);
        assert_int_equal(bytes, strlen(contents[i]));
        assert_memory_equal(file, contents[i], bytes);
        free(file);
    }
    assert_int_equal(unlink(path), 0);
    use_a_little(scratch);
    assert_int_equal(recorded(scratch).hits, 3);
}

/* A large file is compacted to one record. */
SCRATCH_TEST(test_compaction) {
    enum { PROCESSES = 1100 };
    use_a_little(scratch);
    for (int i = 0; i < PROCESSES; i++) {
        struct smelt__cache *cache = cache_begin(scratch);
        assert_int_equal(hits(cache, 0, &compiler_new, BYTES), 1);
        cache_end(scratch);
    }
    assert_true(counters_bytes(scratch) < PROCESSES * RECORD / 2);
    assert_int_equal(recorded(scratch).hits, 3 + PROCESSES);
    assert_int_equal(count_files(scratch->cache, ".tmp-"), 0);
}

SCRATCH_TEST(test_clear) {
    use_a_little(scratch);
    struct smelt__cache *cache = cache_begin(scratch);
    assert_int_equal(hits(cache, 0, &compiler_new, BYTES), 1); /* counted, not recorded yet */
    assert_int_equal(smelt__cache_clear(cache, NULL), SMELT_OK);
    assert_int_equal(recorded(scratch).hits, 0);
    assert_int_equal(recorded(scratch).stores, 0);
}

TESTS("cache counters")
