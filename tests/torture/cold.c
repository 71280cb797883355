/* Many processes with an empty cache request the same kernels at the same time: each kernel is
 * compiled once per round, with any scope of locks. */
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COMPILE_MS = 5, MOST_PROCESSES = 256, CUBIN_BYTES = 20000, LINE_BYTES = 17 };

/* Each child starts with another kernel. */
static void be_process(const char *folder, smelt_cache_lock lock, int number, int keys,
                       const int start[2]) {
    smelt_context_options options = torture_options(folder, NULL);
    char byte;

    options.cache_lock = lock;
    close(start[1]);
    if (read(start[0], &byte, 1) != 0) /* until the parent has closed its end */
        _exit(1);
    smelt_context *context = torture_context(&options);
    for (int i = 0; i < keys; i++)
        REQUIRE(obtain(context, (number + i) % keys) == RIGHT);
    REQUIRE(cache_errors(context) == 0);
    smelt_context_destroy(&context);
    _exit(0);
}

/* The file of compilations has every kernel's hash exactly once. */
static void require_one_each(const char *path, int keys) {
    char *text = calloc(1, (size_t)keys * LINE_BYTES + 2);
    FILE *file = fopen(path, "r");
    REQUIRE(text && file);
    size_t bytes = fread(text, 1, (size_t)keys * LINE_BYTES + 1, file);
    fclose(file);
    for (int n = 0; n < keys; n++) {
        char hash[LINE_BYTES];
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)kernel_hash(n));
        if (!strstr(text, hash))
            fprintf(stderr, "kernel %d was not compiled\n", n);
        REQUIRE(strstr(text, hash));
    }
    if (bytes != (size_t)keys * LINE_BYTES)
        fprintf(stderr, "%zu compilations or more of %d kernels\n", bytes / LINE_BYTES, keys);
    REQUIRE(bytes == (size_t)keys * LINE_BYTES);
    free(text);
}

static double run_round(const char *folder, smelt_cache_lock lock, int processes, int keys) {
    pid_t children[MOST_PROCESSES];
    int start[2];
    REQUIRE(pipe(start) == 0);
    for (int i = 0; i < processes; i++) {
        children[i] = fork();
        REQUIRE(children[i] >= 0);
        if (children[i] == 0)
            be_process(folder, lock, i, keys, start);
    }
    close(start[0]);
    close(start[1]);
    double begin = now_seconds();
    for (int i = 0; i < processes; i++)
        expect_success(children[i]);
    return now_seconds() - begin;
}

int row_cold(const struct arguments *arguments) {
    int processes = (int)argument(arguments, "processes", 64);
    int keys = (int)argument(arguments, "keys", 32);
    int rounds = (int)argument(arguments, "rounds", 20);
    const char *scratch = scratch_folder(false);
    double seconds = 0;
    REQUIRE(processes <= MOST_PROCESSES);
    fakes_nvrtc()->sleep_ms = COMPILE_MS;
    fakes_nvrtc()->cubin_bytes = CUBIN_BYTES;
    for (int n = 0; n < keys; n++)
        (void)kernel_hash(n); /* known to the children */
    for (int round = 0; round < rounds; round++) {
        char folder[TORTURE_PATH], compiles[TORTURE_PATH];
        snprintf(folder, sizeof folder, "%.4000s/cache-%d", scratch, round);
        snprintf(compiles, sizeof compiles, "%.4000s/compiles-%d", scratch, round);
        setenv("FAKE_NVRTC_COMPILES", compiles, 1);
        seconds += run_round(folder, round % 2 ? SMELT_CACHE_LOCK_LOCAL : SMELT_CACHE_LOCK_SHARED,
                             processes, keys);
        require_one_each(compiles, keys);
        REQUIRE(count_files(folder, ".smelt") == keys);
        REQUIRE(count_files(folder, ".tmp-") == 0);
        remove_tree(folder);
    }
    figure("%d processes, %d keys, %d rounds: each of %d kernels compiled once, %ld obtained, "
           "%.2f s a round",
           processes, keys, rounds, keys * rounds, (long)processes * keys * rounds,
           seconds / rounds);
    return 0;
}
