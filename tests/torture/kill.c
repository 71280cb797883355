/*
 * Processes that obtain and forget kernels are killed (SIGKILL) at random moments, most of them
 * with a kernel's lock held. Each victim is replaced, and the first thing its replacement wants is
 * the kernel its victim was at: the time since the kill is what a dead owner costs the next.
 */
#include "torture.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { COMPILE_MS = 3, MOST_PROCESSES = 64, CUBIN_BYTES = 50000, LIMIT_MS = 1000 };

/* What the processes tell one another. */
struct board {
    atomic_long obtained, wrong, failed, errors;
    struct seat {
        atomic_int kernel;    /* the one wanted now */
        atomic_int compiling; /* its lock is held */
        _Atomic double killed_at;
        atomic_int waiting; /* for the kernel its predecessor was at */
        _Atomic double proceeded_ms;
    } seats[MOST_PROCESSES];
};

static struct board *board;
static struct seat *own_seat;

static void note_compiling(uint64_t hash) {
    (void)hash;
    atomic_store(&own_seat->compiling, 1);
}

static void want(smelt_context *context, int kernel) {
    atomic_store(&own_seat->kernel, kernel);
    enum verdict verdict = obtain(context, kernel);
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
    fake_nvrtc()->on_compile = note_compiling;
    smelt_context *context = torture_context(&options);
    if (atomic_load(&own_seat->waiting)) {
        want(context, atomic_load(&own_seat->kernel));
        atomic_store(&own_seat->proceeded_ms,
                     1e3 * (now_seconds() - atomic_load(&own_seat->killed_at)));
        atomic_store(&own_seat->waiting, 0);
    }
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
    double slowest_ms;
};

/* Kills whoever sits there, which must have proceeded since it came. */
static void kill_one(struct tally *tally, struct seat *seat, pid_t child) {
    double limit = now_seconds() + 10;
    while (atomic_load(&seat->waiting)) {
        REQUIRE(now_seconds() < limit);
        pause_ms(0.2);
    }
    if (atomic_load(&seat->proceeded_ms) > tally->slowest_ms)
        tally->slowest_ms = atomic_load(&seat->proceeded_ms);
    kill_child(child);
    tally->kills++;
    tally->while_compiling += atomic_load(&seat->compiling);
    atomic_store(&seat->compiling, 0);
    atomic_store(&seat->killed_at, now_seconds());
    atomic_store(&seat->waiting, 1);
}

static int count_unsound(void *user, const char *file, const smelt_kernel_info *info) {
    if (info->state == SMELT_KERNEL_FAILED) {
        fprintf(stderr, "%s: %s\n", file, info->error);
        ++*(long *)user;
    }
    return 0;
}

/* After the last kill: nothing unsound is left, and every kernel can be had. */
static void require_sound(const char *folder, int keys) {
    smelt_context_options options = torture_options(folder, NULL);
    smelt_context *context = torture_context(&options);
    long unsound = 0;

    REQUIRE(smelt_cache_walk(context, count_unsound, &unsound) == SMELT_OK);
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
    const char *folder = scratch_folder(false);
    uint64_t random = test_seed();
    pid_t children[MOST_PROCESSES];
    struct tally tally = {0};

    REQUIRE(processes <= MOST_PROCESSES);
    board = shared_memory(sizeof *board);
    fake_nvrtc()->sleep_ms = COMPILE_MS;
    fake_nvrtc()->cubin_bytes = CUBIN_BYTES;
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
           "wrong, %ld failed, %ld cache errors; the next owner had its kernel within %.0f ms; %ld "
           "temporaries left to the sweep",
           processes, keys, tally.kills, tally.while_compiling, atomic_load(&board->obtained),
           atomic_load(&board->wrong), atomic_load(&board->failed), atomic_load(&board->errors),
           tally.slowest_ms, left);
    REQUIRE(atomic_load(&board->obtained) > kills);
    REQUIRE(tally.while_compiling > kills / 20);
    REQUIRE(atomic_load(&board->wrong) == 0 && atomic_load(&board->failed) == 0);
    REQUIRE(atomic_load(&board->errors) == 0);
    REQUIRE(tally.slowest_ms < LIMIT_MS);
    return 0;
}
