/*
 * Compares vector clocks (src/emu/memory/clock.c) with a model that joins all words one by one:
 * threads of two warps synchronise, release and acquire in a random order, and every clock is
 * compared after each step. SMELT_TEST_SEED repeats a run.
 */

#include "../unit/test.h"
#include "emu/memory/clock.h"

enum {
    WARPS = 3,
    THREADS = WARPS * WARP,
    SLOTS = 2 * THREADS + WARPS + MAX_MBARRIERS + 1,
    WORDS = 2 * SLOTS,
    BARRIERS = 2,
    MBARRIERS = 3,
    STEPS = 3000,
    GANGS = 6
};

struct machine emu;

/* The model: all words of each clock. */
static u32 model[THREADS][WORDS], barrier_model[BARRIERS][WORDS];
static u32 arriving_model[MBARRIERS][WORDS], released_model[MBARRIERS][WORDS], view_model[WORDS];

static struct thread threads[THREADS];
static struct warp warps[WARPS];
static struct joined barriers[BARRIERS];
static int waiting[THREADS]; /* 1 + the number of the barrier; 0: none */
static struct {
    struct joined arriving;
    u32 *released, phase;
    u64 edition;
} mbarriers[MBARRIERS];
static u32 view[WORDS], products[WARPS], copies[THREADS];

static void join(u32 *to, const u32 *from) {
    for (int i = 0; i < WORDS; i++)
        to[i] = to[i] > from[i] ? to[i] : from[i];
}

static u16 mbarrier_slot(int number) {
    return (u16)(2 * THREADS + WARPS + number);
}

/* ---- what may happen ---------------------------------------------------------------------------
 */

static void release(int thread, struct joined *to, u32 *to_model) {
    emu_release(&threads[thread], to);
    join(to_model, model[thread]);
    model[thread][thread]++;
}

/* A thread arrives at a barrier; most threads wait. */
static void come_to_barrier(struct random *random, int thread) {
    const int barrier = random_below(random, BARRIERS);
    release(thread, &barriers[barrier], barrier_model[barrier]);
    waiting[thread] = random_below(random, 5) ? 1 + barrier : 0;
}

static void complete_barrier(struct random *random) {
    const int barrier = random_below(random, BARRIERS);
    const u64 edition = emu_edition_new();
    for (int i = 0; i < THREADS; i++)
        if (waiting[i] == 1 + barrier) {
            waiting[i] = 0;
            emu_acquire_joined(&threads[i], &barriers[barrier], edition);
            join(model[i], barrier_model[barrier]);
        }
    emu_joined_clear(&barriers[barrier]);
    memset(barrier_model[barrier], 0, sizeof barrier_model[barrier]);
}

static void complete_phase(struct random *random) {
    const int number = random_below(random, MBARRIERS);
    const u16 slot = mbarrier_slot(number);
    const u32 phase = ++mbarriers[number].phase;
    emu_clock_join(mbarriers[number].released, mbarriers[number].arriving.clock);
    emu_clock_use_fenced(slot);
    mbarriers[number].released[slot] = mbarriers[number].released[SLOTS + slot] = phase;
    mbarriers[number].edition = emu_edition_new();
    emu_joined_clear(&mbarriers[number].arriving);
    join(released_model[number], arriving_model[number]);
    released_model[number][slot] = released_model[number][SLOTS + slot] = phase;
    memset(arriving_model[number], 0, sizeof arriving_model[number]);
}

static void wait_for_phase(struct random *random, int thread) {
    const int number = random_below(random, MBARRIERS);
    emu_acquire(&threads[thread], mbarriers[number].released, mbarriers[number].edition);
    join(model[thread], released_model[number]);
}

/* A thread's copies complete: the thread, or the waiters at an mbarrier, learn of it. */
static void complete_copies(struct random *random, int thread) {
    const int number = random_below(random, MBARRIERS);
    const u16 slot = emu_copy_slot(&threads[thread]);
    copies[thread]++;
    if (random_below(random, 2)) {
        emu_clock_use(slot);
        threads[thread].clock[slot] = model[thread][slot] = copies[thread];
        return;
    }
    emu_release_word(&mbarriers[number].arriving, slot, copies[thread]);
    arriving_model[number][slot] = copies[thread];
}

static void fence(int thread) {
    emu_clock_fence(&threads[thread]);
    threads[thread].clock[thread]++;
    for (int i = 0; i < SLOTS; i++)
        if (model[thread][SLOTS + i] < model[thread][i])
            model[thread][SLOTS + i] = model[thread][i];
    model[thread][thread]++;
}

static u32 free_lanes(const struct warp *warp) {
    u32 lanes = 0;
    for (int lane = 0; lane < WARP; lane++)
        lanes |= (u32)(waiting[warp->threads[lane]->number] == 0) << lane;
    return lanes;
}

static void meet(struct random *random, int warp, u32 lanes) {
    u32 together[WORDS] = {0};
    if (random_below(random, 3) == 0)
        lanes &= (u32)random_next(random);
    if (!lanes)
        return;
    emu_clocks_meet(&warps[warp], lanes);
    for (int lane = 0; lane < WARP; lane++)
        if (lanes >> lane & 1)
            join(together, model[warp * WARP + lane]);
    for (int lane = 0; lane < WARP; lane++)
        if (lanes >> lane & 1) {
            memcpy(model[warp * WARP + lane], together, sizeof together);
            model[warp * WARP + lane][warp * WARP + lane]++;
        }
}

static void finish_products(int warp) {
    const u16 slot = (u16)(2 * THREADS + warp);
    products[warp]++;
    for (int i = warp * WARP; i < (warp + 1) * WARP; i++) {
        emu_clock_learn(&threads[i], slot, products[warp]);
        model[i][slot] = products[warp];
    }
}

/* A thread joins another's earlier clock. */
static void look_back(struct random *random, int thread) {
    if (random_below(random, 2)) {
        memcpy(view, threads[thread].clock, sizeof view);
        memcpy(view_model, model[thread], sizeof view_model);
        return;
    }
    emu_acquire(&threads[thread], view, 0);
    join(model[thread], view_model);
}

static void act_alone(struct random *random, int thread) {
    const int number = random_below(random, MBARRIERS);
    switch (random_below(random, 8)) {
    case 0:
        release(thread, &mbarriers[number].arriving, arriving_model[number]);
        return;
    case 1:
        wait_for_phase(random, thread);
        return;
    case 2:
        complete_copies(random, thread);
        return;
    case 3:
        fence(thread);
        return;
    case 4:
        emu_clock_learn(&threads[thread], SLOTS - 1, 1);
        model[thread][SLOTS - 1] = 1;
        return;
    case 5:
        look_back(random, thread);
        return;
    default:
        come_to_barrier(random, thread);
    }
}

/* Usually all lanes perform the same action. */
static void act(struct random *random) {
    const int warp = random_below(random, WARPS);
    const u32 lanes = free_lanes(&warps[warp]);
    const u64 state = random->state;
    switch (random_below(random, 10)) {
    case 0:
        complete_barrier(random);
        return;
    case 1:
        complete_phase(random);
        return;
    case 2:
    case 3:
        meet(random, warp, lanes);
        return;
    case 4:
        finish_products(warp); /* also while threads wait at a barrier, where no shortcut is
                                  valid */
        return;
    default:
        for (int lane = 0; lane < WARP; lane++) {
            struct random same = {state};
            if (lanes >> lane & 1)
                act_alone(random_below(random, 9) ? &same : random, warp * WARP + lane);
        }
    }
}

/* ---- gangs -------------------------------------------------------------------------------------
 */

static void begin(void) {
    const u64 edition = emu_edition_new();
    memset(model, 0, sizeof model);
    memset(barrier_model, 0, sizeof barrier_model);
    memset(arriving_model, 0, sizeof arriving_model);
    memset(released_model, 0, sizeof released_model);
    memset(view, 0, sizeof view);
    memset(view_model, 0, sizeof view_model);
    memset(waiting, 0, sizeof waiting);
    memset(products, 0, sizeof products);
    memset(copies, 0, sizeof copies);
    emu.thread_count = THREADS;
    emu.warp_count = WARPS;
    emu.slots = SLOTS;
    emu_clocks_begin();
    for (int i = 0; i < THREADS; i++) {
        warps[i / WARP].threads[i % WARP] = &threads[i];
        threads[i].number = i;
        emu_clock_begin(&threads[i], edition);
        model[i][i] = 1;
    }
    memset(barriers, 0, sizeof barriers);
    memset(mbarriers, 0, sizeof mbarriers);
    for (int i = 0; i < BARRIERS; i++)
        barriers[i].clock = emu_clock_new();
    for (int i = 0; i < MBARRIERS; i++) {
        mbarriers[i].arriving.clock = emu_clock_new();
        mbarriers[i].released = emu_clock_new();
    }
}

static void end(void) {
    for (int i = 0; i < THREADS; i++)
        emu_clock_free(threads[i].clock);
    for (int i = 0; i < BARRIERS; i++)
        emu_clock_free(barriers[i].clock);
    for (int i = 0; i < MBARRIERS; i++) {
        emu_clock_free(mbarriers[i].arriving.clock);
        emu_clock_free(mbarriers[i].released);
    }
}

TEST(random_gangs) {
    struct random random = random_begin("test_clock");
    for (int gang = 0; gang < GANGS; gang++) {
        begin();
        for (int step = 0; step < STEPS; step++) {
            act(&random);
            for (int i = 0; i < THREADS; i++)
                assert_memory_equal(threads[i].clock, model[i], sizeof model[i]);
        }
        end();
    }
}

TESTS("clock")
