/*
 * Times of the disk cache: a hit, counting 10,000 entries, lookups and stores during an eviction,
 * export and import. Works in a new folder in TMPDIR or /tmp. Figures that another process or the
 * disk can affect are also measured without it.
 *
 *   cache_figures [ENTRIES]      default 10000
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"
#include "runtime/cache/internal.h"

static char readonly_problem[SMELT__CACHE_PROBLEM]; /* from the cache's statistics */

enum { HIT_BYTES = 100000, SMALL_BYTES = 1000, PATH_BYTES = 512 };

static char scratch[PATH_BYTES];
static const struct smelt__compiler_id compiler = {13, 0, {1, 2, 3}};

static void check(int holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "cache_figures: %s (%s)\n", what, strerror(errno));
    exit(1);
}

/* ---- times ---- */

enum { MOST_TIMES = 1 << 22 };
static double times[MOST_TIMES]; /* seconds, since the last print_times */
static size_t time_count;

static void add_time(double begin) {
    if (time_count < MOST_TIMES)
        times[time_count++] = 1e-9 * (nanoseconds() - begin);
}

static void print_times(const char *title, double scale, const char *unit) {
    const size_t n = time_count;
    check(n > 0, "nothing was timed");
    const double middle = median(times, n);
    printf("%-58s median %8.1f  99.9 %% %8.1f  longest %8.1f %s (%zu)\n", title, scale * middle,
           scale * times[(size_t)(0.999 * (double)(n - 1))], scale * times[n - 1], unit, n);
    fflush(stdout);
    time_count = 0;
}

/* ---- caches ---- */

static struct smelt__cache *open_cache(const char *folder, const char *readonly, uint64_t cap) {
    struct smelt__cache_settings settings = {.folder = folder,
                                             .readonly_folder = readonly,
                                             .cap_bytes = cap,
                                             .lock = SMELT_CACHE_LOCK_SHARED,
                                             .lock_timeout_ms = 10000};
    struct smelt__cache *cache = smelt__cache_open(&settings, NULL);
    check(cache && !*smelt__cache_problem(cache), "no cache");
    return cache;
}

static void make_entry(int n, size_t bytes, struct smelt__cache_entry *entry) {
    static unsigned char cubin[HIT_BYTES] = {0x7f, 'E', 'L', 'F', ELFCLASS64, [18] = EM_CUDA};
    char source[64];
    int length = snprintf(source, sizeof source, "kernel number %d", n);
    memset(entry, 0, sizeof *entry);
    smelt__cache_key_make(&entry->key, source, (size_t)length, NULL, "sm_90a", SMELT__OUTPUT_CUBIN);
    entry->compiler = compiler;
    entry->compiled.cubin = cubin;
    entry->compiled.cubin_bytes = bytes;
    entry->compiled.compile_seconds = 0.5;
}

/* Writes entries like a store, but without waiting for the disk. Earlier ones are older. */
static void plant(const char *folder, int first, int count, size_t bytes) {
    unsigned char header[SMELT__ENTRY_HEADER_BYTES], checksum[SMELT__ENTRY_CHECKSUM_BYTES];
    for (int n = first; n < first + count; n++) {
        const struct timespec stamps[2] = {{.tv_nsec = UTIME_OMIT},
                                           {.tv_sec = time(NULL) - 100000 + n}};
        struct smelt__cache_entry entry;
        char name[SMELT__FILE_NAME_BYTES], path[2 * PATH_BYTES];
        make_entry(n, bytes, &entry);
        smelt__entry_encode(&entry, header, checksum);
        smelt__cache_file_name(&entry.key, &entry.compiler, name);
        snprintf(path, sizeof path, "%s/%.2s", folder, name);
        check(mkdir(path, 0700) == 0 || errno == EEXIST, path);
        snprintf(path, sizeof path, "%s/%.2s/%s", folder, name, name);
        int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
        check(file >= 0 && smelt__write_fully(file, header, sizeof header) == 0 &&
                  smelt__write_fully(file, entry.compiled.cubin, bytes) == 0 &&
                  smelt__write_fully(file, checksum, sizeof checksum) == 0 &&
                  futimens(file, stamps) == 0 && close(file) == 0,
              path);
    }
}

static void look_up(struct smelt__cache *cache, int n, const struct smelt__compiler_id *by,
                    int must_hit) {
    struct smelt__cache_entry entry;
    struct smelt__compiled found;
    make_entry(n, 1, &entry);
    if (smelt__cache_lookup(cache, &entry.key, by, &found))
        free(found.cubin);
    else
        check(!must_hit, "a miss");
}

static void time_hits(const char *title, struct smelt__cache *cache, int n,
                      const struct smelt__compiler_id *by) {
    enum { ROUNDS = 4001 };
    for (int i = 0; i < ROUNDS; i++) {
        const double begin = nanoseconds();
        look_up(cache, n, by, 1);
        add_time(begin);
    }
    print_times(title, 1e6, "us");
}

/* ---- the figures ---- */

static void measure_hits(const char *folder, const char *archive, int entries) {
    char empty[PATH_BYTES + 16];
    smelt_cache_transfer transfer = SMELT_CACHE_TRANSFER_INIT;
    snprintf(empty, sizeof empty, "%s/empty", scratch);
    struct smelt__cache *cache = open_cache(folder, "", 0);
    time_hits("hit, 100 KB cubin", cache, entries, &compiler);
    time_hits("hit, 100 KB cubin, no compiler (newest of any)", cache, entries, NULL);
    const double begin = nanoseconds();
    check(smelt__cache_export(cache, archive, NULL, 0, &transfer) == SMELT_OK, "export");
    printf("export of %llu entries, %.1f MB: %.2f s\n", (unsigned long long)transfer.entries,
           1e-6 * (double)transfer.bytes, 1e-9 * (nanoseconds() - begin));
    smelt__cache_close(cache);
    cache = open_cache(empty, folder, 0);
    time_hits("hit in a read-only folder, 100 KB cubin", cache, entries, &compiler);
    smelt__cache_close(cache);
    cache = open_cache(empty, archive, 0);
    time_hits("hit in an exported file, 100 KB cubin", cache, entries, &compiler);
    smelt__cache_close(cache);
}

static void measure_stat(const char *folder) {
    enum { ROUNDS = 51 };
    smelt_cache_stats stats = SMELT_CACHE_STATS_INIT;
    struct smelt__cache *cache = open_cache(folder, "", 0);
    char title[64];
    for (int i = 0; i < ROUNDS; i++) {
        const double begin = nanoseconds();
        check(smelt__cache_stat(cache, readonly_problem, &stats) == SMELT_OK, "stat");
        add_time(begin);
    }
    snprintf(title, sizeof title, "stat of %llu entries", (unsigned long long)stats.entries);
    print_times(title, 1e3, "ms");
    smelt__cache_close(cache);
}

/* Times lookups until the child ends. */
static void time_lookups_during(const char *title, const char *folder, int entries, pid_t child) {
    struct smelt__cache *cache = open_cache(folder, "", 0);
    for (int i = 0; waitpid(child, NULL, WNOHANG) == 0; i++) {
        const double begin = nanoseconds();
        look_up(cache, i % (entries + 1), &compiler, 0);
        add_time(begin);
    }
    print_times(title, 1e6, "us");
    smelt__cache_close(cache);
}

static pid_t start(void (*body)(const char *folder, int entries), const char *folder, int entries) {
    fflush(NULL);
    pid_t child = fork();
    check(child >= 0, "fork");
    if (child == 0) {
        body(folder, entries);
        _exit(0);
    }
    return child;
}

static void only_count(const char *folder, int entries) {
    struct smelt__cache *cache = open_cache(folder, "", 0);
    smelt_cache_stats stats = SMELT_CACHE_STATS_INIT;
    (void)entries;
    for (int i = 0; i < 40; i++)
        check(smelt__cache_stat(cache, readonly_problem, &stats) == SMELT_OK, "stat");
    smelt__cache_close(cache);
}

static void prune_all(const char *folder, int entries) {
    struct smelt__cache *cache = open_cache(folder, "", 0);
    (void)entries;
    check(smelt__cache_prune(cache, 1, 0, NULL) == SMELT_OK, "prune");
    smelt__cache_close(cache);
}

static void time_stores(const char *title, const char *folder, uint64_t cap, int first, int count) {
    struct smelt__cache *cache = open_cache(folder, "", cap);
    for (int n = first; n < first + count; n++) {
        struct smelt__cache_entry entry;
        char why[SMELT__CACHE_WHY];
        make_entry(n, SMALL_BYTES, &entry);
        const double begin = nanoseconds();
        check(smelt__cache_store(cache, &entry.key, &entry.compiler, &entry.compiled, why) == 0,
              "store");
        add_time(begin);
    }
    print_times(title, 1e3, "ms");
    smelt__cache_close(cache);
}

static void measure_eviction(const char *folder, int entries) {
    time_lookups_during("lookups during another process that only counts", folder, entries,
                        start(only_count, folder, entries));
    time_lookups_during("lookups while another process removes every entry", folder, entries,
                        start(prune_all, folder, entries));
    time_stores("store, no cap", folder, 0, 2 * entries, 200);
    plant(folder, 0, entries, SMALL_BYTES);
    time_stores("store, nine tenths of the entries above the cap", folder,
                (uint64_t)(entries / 10) * (SMALL_BYTES + 560), 3 * entries, 200);
}

static void measure_import(const char *archive) {
    char target[PATH_BYTES + 16];
    smelt_cache_transfer transfer = SMELT_CACHE_TRANSFER_INIT;
    char *tuning;
    size_t bytes;
    snprintf(target, sizeof target, "%s/imported", scratch);
    struct smelt__cache *cache = open_cache(target, "", 0);
    const double begin = nanoseconds();
    check(smelt__cache_import(cache, archive, &tuning, &bytes, &transfer) == SMELT_OK, "import");
    printf("import of %llu entries (each waits for the disk): %.2f s\n",
           (unsigned long long)transfer.entries, 1e-9 * (nanoseconds() - begin));
    free(tuning);
    smelt__cache_close(cache);
}

int main(int argc, char **argv) {
    const char *parent = getenv("TMPDIR");
    char folder[PATH_BYTES + 16], archive[PATH_BYTES + 16];
    const int entries = argc > 1 ? atoi(argv[1]) : 10000;
    if (argc > 2 || entries < 100) {
        fprintf(stderr, "usage: cache_figures [ENTRIES], 100 and up\n");
        return 2;
    }
    snprintf(scratch, sizeof scratch, "%.400s/cache-figures-XXXXXX", parent ? parent : "/tmp");
    check(mkdtemp(scratch) != NULL, scratch);
    snprintf(folder, sizeof folder, "%s/cache", scratch);
    snprintf(archive, sizeof archive, "%s/cache.tar", scratch);
    check(mkdir(folder, 0700) == 0, folder);
    plant(folder, 0, entries, SMALL_BYTES);
    plant(folder, entries, 1, HIT_BYTES);
    measure_hits(folder, archive, entries);
    measure_stat(folder);
    measure_eviction(folder, entries);
    measure_import(archive);
    snprintf(folder, sizeof folder, "rm -r '%s'", scratch);
    check(system(folder) == 0, "removing the scratch folder");
    return 0;
}
