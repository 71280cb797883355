/* The process that compiles a kernel is stopped and never goes on: the others compile it themselves
 * when their deadline is over, not much later and not before. */
#include "torture.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static atomic_int *compiling;
static double late_percent;

static void compile_for_ever(uint64_t hash) {
    (void)hash;
    atomic_store(compiling, 1);
    for (;;)
        pause();
}

static pid_t start_holder(const smelt_context_options *options) {
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        fakes_nvrtc()->on_compile = compile_for_ever;
        obtain(torture_context(options), 0);
        _exit(1);
    }
    while (!atomic_load(compiling))
        pause_ms(1);
    REQUIRE(kill(child, SIGSTOP) == 0);
    return child;
}

static double wait_for_stopped(const char *folder, smelt_cache_lock lock, int deadline_ms) {
    smelt_context_options options = torture_options(folder, NULL);

    options.cache_lock = lock;
    options.cache_lock_timeout_ms = deadline_ms;
    atomic_store(compiling, 0);
    pid_t holder = start_holder(&options);
    smelt_context *context = torture_context(&options);
    double begin = now_seconds();
    REQUIRE(obtain(context, 0) == RIGHT);
    double waited = 1e3 * (now_seconds() - begin);
    REQUIRE(cache_errors(context) == 0);
    /* What was compiled without the lock serves the next. */
    REQUIRE(obtain(context, 0) == RIGHT);
    smelt_context_counters counters = SMELT_CONTEXT_COUNTERS_INIT;
    REQUIRE(smelt_context_get_counters(context, &counters) == SMELT_OK);
    REQUIRE(counters.compiled == 1 && counters.cache_hits == 1);
    smelt_context_destroy(&context);
    kill_child(holder);
    printf("waited %.1f ms of %d for a stopped process, scope %s\n", waited, deadline_ms,
           lock == SMELT_CACHE_LOCK_LOCAL ? "local" : "shared");
    REQUIRE(waited >= deadline_ms);
    REQUIRE(waited <= deadline_ms * (100 + late_percent) / 100);
    return 100 * waited / deadline_ms - 100;
}

int row_stop(const struct arguments *arguments) {
    static const smelt_cache_lock locks[] = {SMELT_CACHE_LOCK_SHARED, SMELT_CACHE_LOCK_LOCAL};
    int longest = (int)argument(arguments, "deadline_ms", 4000);
    const char *scratch = scratch_folder(false);
    double latest = 0;
    int waits = 0;

    late_percent = (double)argument(arguments, "late_percent", 10);
    compiling = shared_memory(sizeof *compiling);
    (void)fakes_nvrtc();
    for (int deadline = 500; deadline <= longest; deadline *= 2)
        for (int i = 0; i < 2; i++, waits++) {
            char folder[TORTURE_PATH];
            snprintf(folder, sizeof folder, "%.4000s/cache-%d", scratch, waits);
            double late = wait_for_stopped(folder, locks[i], deadline);
            latest = late > latest ? late : latest;
        }
    figure("%d waits of 500 to %d ms for a stopped process: at most %.1f %% over the deadline",
           waits, longest, latest);
    return 0;
}
