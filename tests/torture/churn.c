/* Writers and readers use a cache whose cap holds three entries, so that entries are evicted while
 * they are read: every kernel is correct and there are no errors. */
#include "torture.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { WRITERS = 8, READERS = 8, KEYS = 12, CUBIN_BYTES = 5000, ENTRY_BYTES = CUBIN_BYTES + 560 };

struct tally {
    atomic_long left; /* operations to do */
    atomic_long stored, hits, misses;
    atomic_long most_entries;
};

static struct tally *tally;

static void note_most(long entries) {
    long most = atomic_load(&tally->most_entries);
    while (entries > most && !atomic_compare_exchange_weak(&tally->most_entries, &most, entries))
        continue;
}

static void be_process(const char *folder, bool writes, uint64_t random) {
    struct notes notes = {0};
    smelt_context_options options = torture_options(folder, &notes);
    smelt_context_info info = SMELT_CONTEXT_INFO_INIT;
    smelt_cache_stats stats = SMELT_CACHE_STATS_INIT;
    options.cache_cap_bytes = 3 * ENTRY_BYTES;
    options.cache_recompile = writes;
    smelt_context *context = torture_context(&options);
    for (long i = 0; atomic_fetch_sub(&tally->left, 1) > 0; i++) {
        REQUIRE(obtain(context, (int)(next_random(&random) % KEYS)) == RIGHT);
        if (i % 64 == 0) {
            REQUIRE(smelt_cache_get_stats(context, &stats) == SMELT_OK);
            note_most((long)stats.entries);
            REQUIRE(!writes || smelt_cache_verify(context, NULL, NULL) == SMELT_OK);
        }
    }
    REQUIRE(smelt_context_get_info(context, &info) == SMELT_OK);
    if (notes.warnings)
        fprintf(stderr, "%s\n", notes.last);
    REQUIRE(notes.warnings == 0);
    REQUIRE(info.cache_errors == 0);
    atomic_fetch_add(&tally->stored, (long)info.compiled);
    atomic_fetch_add(&tally->hits, (long)info.cache_hits);
    atomic_fetch_add(&tally->misses, writes ? 0 : (long)info.cache_misses);
    smelt_context_destroy(&context);
    _exit(0);
}

int row_churn(const struct arguments *arguments) {
    long operations = argument(arguments, "operations", 100000);
    const char *folder = scratch_folder(true);
    uint64_t random = test_seed("churn");
    pid_t children[WRITERS + READERS];
    tally = shared_memory(sizeof *tally);
    atomic_store(&tally->left, operations);
    fakes_nvrtc()->cubin_bytes = CUBIN_BYTES;
    for (int n = 0; n < KEYS; n++)
        (void)kernel_hash(n);
    for (int i = 0; i < WRITERS + READERS; i++) {
        children[i] = fork();
        REQUIRE(children[i] >= 0);
        if (children[i] == 0)
            be_process(folder, i < WRITERS, next_random(&random));
    }
    for (int i = 0; i < WRITERS + READERS; i++)
        expect_success(children[i]);
    REQUIRE(count_files(folder, ".tmp-") == 0);
    figure("%d writers, %d readers, %ld operations under a cap of 3 entries: no error; %ld stores, "
           "%ld hits, %ld misses of readers; at most %ld entries at once",
           WRITERS, READERS, operations, atomic_load(&tally->stored), atomic_load(&tally->hits),
           atomic_load(&tally->misses), atomic_load(&tally->most_entries));
    REQUIRE(atomic_load(&tally->hits) > 0 && atomic_load(&tally->misses) > 0);
    /* Stores during an eviction may exceed the cap. */
    REQUIRE(atomic_load(&tally->most_entries) <= 3 + WRITERS + READERS);
    return 0;
}
