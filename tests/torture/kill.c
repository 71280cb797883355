/*
 * Processes that obtain and forget kernels are killed (SIGKILL) at random moments, most of them
 * with a kernel's lock held. Each victim is replaced, and its replacement first requests the
 * victim's kernel: the time since the kill is the delay due to a dead lock holder.
 */
#include "torture.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { COMPILE_MS = 3, MOST_PROCESSES = 64, MOST_KEYS = 256, CUBIN_BYTES = 50000 };

/* Memory shared by the processes. */
struct board {
    atomic_long obtained, wrong, failed, errors;
    _Atomic double slowest; /* seconds */
    _Atomic double
        killed_at[MOST_KEYS]; /* when the kernel's owner was killed; 0: it has an owner or needs
                                 none */
    struct seat {
        atomic_int kernel;    /* the current one */
        atomic_int compiling; /* its lock is held */
        atomic_int heir;      /* does not yet have its predecessor's kernel */
    } seats[MOST_PROCESSES];
};

static struct board *board;
static struct seat *own_seat;

/* Another process has the kernel again. */
static void note_proceeding(int kernel) {
    double killed_at = atomic_exchange(&board->killed_at[kernel], 0);
    double taken = now_seconds() - killed_at, slowest = atomic_load(&board->slowest);

    while (killed_at > 0 && taken > slowest &&
           !atomic_compare_exchange_weak(&board->slowest, &slowest, taken))
        continue;
}

static void note_compiling(uint64_t hash) {
    (void)hash;
    atomic_store(&own_seat->compiling, 1);
    note_proceeding(atomic_load(&own_seat->kernel));
}

static void want(smelt_context *context, int kernel) {
    atomic_store(&own_seat->kernel, kernel);
    enum verdict verdict = obtain(context, kernel);
    note_proceeding(kernel);
    atomic_store(&own_seat->compiling, 0);
    atomic_fetch_add(verdict == RIGHT   ? &board->obtained
                     : verdict == WRONG ? &board->wrong
                                        : &board->failed,
                     1);
}

static void be_process(const char *folder, int seat, int keys, uint64_t random) {
    smelt_context_options options = torture_options(folder, NULL);
    options.cache_lock = seat % 2 ? SMELT_CACHE_LOCK_LOCAL : SMELT_CACHE_LOCK_SHARED;
    own_seat = &board->seats[seat];
    fakes_nvrtc()->on_compile = note_compiling;
    smelt_context *context = torture_context(&options);
    if (atomic_load(&own_seat->heir))
        want(context, atomic_load(&own_seat->kernel));
    atomic_store(&own_seat->heir, 0);
    for (uint64_t errors = 0;;) {
        int kernel = (int)(next_random(&random) % (uint64_t)keys);
        want(context, kernel);
        if (next_random(&random) % 2)
            forget(folder, kernel);
        uint64_t now = cache_errors(context);
        atomic_fetch_add(&board->errors, (long)(now - errors));
        errors = now;
    }
}

static pid_t start_process(const char *folder, int seat, int keys, uint64_t random) {
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0)
        be_process(folder, seat, keys, random);
    return child;
}

struct tally {
    long kills, while_compiling;
};

/* Kills the process in a slot, which must have its predecessor's kernel. */
static void kill_one(struct tally *tally, struct seat *seat, pid_t child) {
    double limit = now_seconds() + 30;
    while (atomic_load(&seat->heir)) {
        REQUIRE(now_seconds() < limit);
        pause_ms(0.2);
    }
    kill_child(child);
    tally->kills++;
    tally->while_compiling += atomic_load(&seat->compiling);
    if (atomic_load(&seat->compiling))
        atomic_store(&board->killed_at[atomic_load(&seat->kernel)], now_seconds());
    atomic_store(&seat->compiling, 0);
    atomic_store(&seat->heir, 1);
}

static int count_unsound(void *user, const char *file, const smelt_kernel_info *info) {
    if (info->state == SMELT_KERNEL_FAILED) {
        fprintf(stderr, "%s: %s\n", file, info->error);
        ++*(long *)user;
    }
    return 0;
}

/* After the last kill: no invalid entry remains, and every kernel can be obtained. */
static void require_sound(const char *folder, int keys) {
    smelt_context_options options = torture_options(folder, NULL);
    smelt_context *context = torture_context(&options);
    long unsound = 0;
    REQUIRE(smelt_cache_walk(context, NULL, count_unsound, &unsound) == SMELT_OK);
    REQUIRE(unsound == 0);
    for (int n = 0; n < keys; n++)
        REQUIRE(obtain(context, n) == RIGHT);
    REQUIRE(cache_errors(context) == 0);
    smelt_context_destroy(&context);
}

int row_kill(const struct arguments *arguments) {
    int processes = (int)argument(arguments, "processes", 32);
    int keys = (int)argument(arguments, "keys", 64);
    long kills = argument(arguments, "kills", 2000);
    long limit_ms = argument(arguments, "limit_ms", 1000);
    const char *folder = scratch_folder(false);
    uint64_t random = test_seed("kill");
    pid_t children[MOST_PROCESSES];
    struct tally tally = {0};
    REQUIRE(processes <= MOST_PROCESSES && keys <= MOST_KEYS);
    board = shared_memory(sizeof *board);
    fakes_nvrtc()->sleep_ms = COMPILE_MS;
    fakes_nvrtc()->cubin_bytes = CUBIN_BYTES;
    for (int n = 0; n < keys; n++)
        (void)kernel_hash(n);
    for (int i = 0; i < processes; i++)
        children[i] = start_process(folder, i, keys, next_random(&random));
    while (tally.kills < kills) {
        int which = (int)(next_random(&random) % (uint64_t)processes);
        pause_ms((double)(next_random(&random) % 6000) / 1000);
        kill_one(&tally, &board->seats[which], children[which]);
        children[which] = start_process(folder, which, keys, next_random(&random));
    }
    for (int i = 0; i < processes; i++)
        kill_child(children[i]);
    long left = count_files(folder, ".tmp-");
    require_sound(folder, keys);
    figure("%d processes, %d keys, %ld kills (%ld while compiling under a lock): %ld obtained, %ld "
           "wrong, %ld failed, %ld cache errors; the next owner proceeds within %.0f ms; %ld "
           "temporaries left to the sweep",
           processes, keys, tally.kills, tally.while_compiling, atomic_load(&board->obtained),
           atomic_load(&board->wrong), atomic_load(&board->failed), atomic_load(&board->errors),
           1e3 * atomic_load(&board->slowest), left);
    REQUIRE(atomic_load(&board->obtained) > kills);
#ifdef TORTURE_SANITIZED /* whose start takes most of a process's time */
    REQUIRE(tally.while_compiling > 0);
#else
    REQUIRE(tally.while_compiling > kills / 20);
#endif
    REQUIRE(atomic_load(&board->wrong) == 0 && atomic_load(&board->failed) == 0);
    REQUIRE(atomic_load(&board->errors) == 0);
    REQUIRE(1e3 * atomic_load(&board->slowest) < (double)limit_ms);
    return 0;
}
