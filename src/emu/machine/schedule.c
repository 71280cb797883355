/* See schedule.h. */
#include "emu/machine/schedule.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "emu/machine/stack.h"

static u64 ready[MAX_WARPS / 64]; /* warps with a lane that can run */
static int delayed;               /* a warp that runs when no other can; -1: none */
static struct fibre scheduler;
static void (*thread_body)(void);

static struct deferred *deferred, **deferred_end;
static int deferred_count;
static site last_deferred;

static int pollers, fruitless; /* polling threads; their rounds since other progress */

/* ---- random numbers: xorshift64*, Vigna 2016 ------------------------------------------------- */

static u64 state;

u32 emu_random(void) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (u32)((state * 0x2545f4914f6cdd1dull) >> 32);
}

void emu_schedule_begin_launch(void) {
    state = (emu.settings.seed + 1) * 0x9e3779b97f4a7c15ull | 1;
}

bool emu_takes_effect_now(void) {
    if (emu.settings.timing == EMU_RANDOM)
        return emu_random() % 4 == 0;
    return emu.settings.timing == EMU_EARLY;
}

/* ---- choosing a thread ----------------------------------------------------------------------- */

static void set_ready(struct warp *warp, u32 lanes) {
    warp->ready |= lanes;
    ready[warp->number / 64] |= (u64)(warp->ready != 0) << (warp->number % 64);
}

static void set_waiting(struct thread *thread) {
    struct warp *warp = thread->warp;
    warp->ready &= ~(1u << thread->lane);
    if (!warp->ready)
        ready[warp->number / 64] &= ~((u64)1 << (warp->number % 64));
}

void emu_wake(struct thread *thread) {
    if (thread->wait != POLLS)
        fruitless = 0;
    thread->wait = RUNS;
    thread->wait_object = NULL;
    set_ready(thread->warp, 1u << thread->lane);
}

/* The first runnable warp from `from` on in the direction of `step`, cyclically; -1: none. */
static int find_warp(int from, int step) {
    int last = -1;
    for (int i = 0; i < emu.warp_count; i++) {
        int number = (from + i * step + emu.warp_count) % emu.warp_count;
        if (!(ready[number / 64] >> (number % 64) & 1))
            continue;
        if (number != delayed)
            return number;
        last = number;
    }
    return last;
}

static struct thread *pick(void) {
    int from = 0, step = 1;
    if (emu.settings.order == EMU_DESCENDING) {
        from = emu.warp_count - 1;
        step = -1;
    } else if (emu.settings.order == EMU_SHUFFLED) {
        from = (int)(emu_random() % (u32)emu.warp_count);
    }
    int number = find_warp(from, step);
    if (number < 0)
        return NULL;
    struct warp *warp = &emu.warps[number];
    u32 lanes = warp->ready;
    if (emu.settings.order == EMU_DESCENDING)
        return warp->threads[31 - __builtin_clz(lanes)];
    if (emu.settings.order == EMU_SHUFFLED) {
        u32 first = emu_random() % WARP;
        u32 later = lanes >> first << first;
        return warp->threads[__builtin_ctz(later ? later : lanes)];
    }
    return warp->threads[__builtin_ctz(lanes)];
}

static void to_scheduler(void) {
    struct thread *self = emu.self;
    fibre_switch(&self->fibre, &scheduler);
}

void emu_block(enum wait_kind kind, const char *name, void *object, site at) {
    struct thread *self = emu.self;
    self->wait = kind;
    self->wait_name = name;
    self->wait_object = object;
    self->wait_site = at;
    set_waiting(self);
    to_scheduler();
}

void emu_yield(void) {
    if (emu.settings.order != EMU_SHUFFLED)
        return;
    if (emu.self->warp->number == delayed || emu_random() % 16 == 0)
        to_scheduler();
}

/* In a shuffled order, with probability 3/4, one warp runs only when no other can. This exposes
 * code that works only because no thread is late. */
static void choose_delayed(void) {
    delayed = -1;
    if (emu.settings.order == EMU_SHUFFLED && emu_random() % 4 != 0)
        delayed = (int)(emu_random() % (u32)emu.warp_count);
}

static jmp_buf effect_jump; /* leaves an effect that the scheduler runs */
static bool running_effect;

void emu_end(void) {
    emu.ended = true;
    if (running_effect)
        longjmp(effect_jump, 1);
    to_scheduler();
    abort(); /* the scheduler does not resume an ended launch */
}

void emu_gone(void) {
    struct thread *self = emu.self;
    self->wait = GONE;
    set_waiting(self);
    emu.live--;
}

/* ---- polling threads ------------------------------------------------------------------------- */

void emu_poll(const char *name, site at) {
    pollers++;
    emu_block(POLLS, name, NULL, at);
}

static bool wake_pollers(void) {
    enum { FRUITLESS_ROUNDS = 200 };
    if (pollers == 0 || fruitless++ > FRUITLESS_ROUNDS)
        return false;
    pollers = 0;
    for (int i = 0; i < emu.thread_count; i++)
        if (emu.threads[i].wait == POLLS)
            emu_wake(&emu.threads[i]);
    return true;
}

/* ---- deferred effects ------------------------------------------------------------------------ */

void emu_defer(struct deferred *one) {
    one->next = NULL;
    *deferred_end = one;
    deferred_end = &one->next;
    deferred_count++;
    last_deferred = one->at;
}

int emu_deferred_count(void) {
    return deferred_count;
}

site emu_deferred_last(void) {
    return last_deferred;
}

/* Runs the oldest, or with random timing any, of the deferred effects. */
static bool run_deferred(void) {
    struct deferred **at = &deferred;
    if (!*at)
        return false;
    if (emu.settings.timing == EMU_RANDOM)
        for (u32 skip = emu_random() % (u32)deferred_count; skip > 0; skip--)
            at = &(*at)->next;
    struct deferred *one = *at;
    *at = one->next;
    if (deferred_end == &one->next)
        deferred_end = at;
    deferred_count--;
    emu.self = one->thread;
    running_effect = true;
    if (setjmp(effect_jump) == 0)
        one->effect(one);
    running_effect = false;
    emu.self = NULL;
    fruitless = 0;
    return true;
}

void emu_deferred_run_all(void) {
    while (!emu.ended && run_deferred())
        continue;
}

/* ---- running --------------------------------------------------------------------------------- */

/* The body of every fibre. */
static void begin_thread(void) {
    fibre_arrived();
    thread_body();
    to_scheduler();
    abort();
}

void emu_schedule_thread(struct thread *thread, void (*body)(void)) {
    thread_body = body;
    emu_stack_prepare(thread, begin_thread);
}

void emu_schedule_begin_gang(void) {
    memset(ready, 0, sizeof ready);
    deferred = NULL;
    deferred_end = &deferred;
    deferred_count = 0;
    pollers = fruitless = 0;
    for (int i = 0; i < emu.warp_count; i++)
        set_ready(&emu.warps[i], emu.warps[i].present);
    choose_delayed();
}

enum emu_outcome emu_run_threads(void) {
    while (emu.live > 0 && !emu.ended) {
        struct thread *thread = pick();
        if (emu.settings.timing == EMU_RANDOM && emu_random() % 8 == 0 && run_deferred() &&
            (!thread || emu.ended))
            continue; /* the effect may have woken a thread or caused a report */
        /* The delayed warp waits for deferred effects, too. */
        if (thread && thread->warp->number == delayed && emu.settings.timing == EMU_RANDOM &&
            emu_random() % 16 != 0 && run_deferred())
            continue;
        if (!thread) {
            if (run_deferred() || wake_pollers())
                continue;
            return EMU_STUCK;
        }
        emu.self = thread;
        fibre_switch(&scheduler, &thread->fibre);
        emu.self = NULL;
        if (emu.late)
            return EMU_OUT_OF_TIME;
    }
    return EMU_ALL_GONE;
}
