/* Running a launch: gangs one after another, the threads of a gang as fibres, who runs next. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "internal.h"
#include "watch.h"

struct machine emu;

/* A thread's stack, and beside it the shadow that says when each word was last written. Pages exist
 * when touched. */
enum { STACK_BYTES = 256 * 1024, PAGE = 4096 };
/* Of a new stack, what the kernel's own frame may take is filled with this: a register that is read
 * before it is written is then a large number, as int, float and bf16, and not 0. */
enum { UNWRITTEN = 0x7f, FILLED_BYTES = 16 * 1024 };

static u8 *stacks;
static u32 *touched;
static int stacks_for; /* threads */

/* ---- random numbers: xorshift64*, Vigna 2016 ------------------------------------------------- */

u32 emu_random(void) {
    emu.random ^= emu.random >> 12;
    emu.random ^= emu.random << 25;
    emu.random ^= emu.random >> 27;
    return (u32)((emu.random * 0x2545f4914f6cdd1dull) >> 32);
}

bool emu_lands_now(void) {
    if (emu.settings.timing == EMU_RANDOM)
        return emu_random() % 4 == 0;
    return emu.settings.timing == EMU_EARLY;
}

/* ---- who runs -------------------------------------------------------------------------------- */

static void set_ready(struct warp *warp, u32 lanes) {
    warp->ready |= lanes;
    emu.ready[warp->number / 64] |= (u64)(warp->ready != 0) << (warp->number % 64);
}

static void set_waiting(struct thread *thread) {
    struct warp *warp = thread->warp;
    warp->ready &= ~(1u << thread->lane);
    if (!warp->ready)
        emu.ready[warp->number / 64] &= ~((u64)1 << (warp->number % 64));
}

void emu_wake(struct thread *thread) {
    if (thread->wait != POLLS)
        emu.fruitless = 0;
    thread->wait = RUNS;
    thread->wait_object = NULL;
    set_ready(thread->warp, 1u << thread->lane);
}

/* The first warp that can run at or after (or, descending, at or before) `from`, going round; -1
 * when none can. */
static int find_warp(int from, int step) {
    int last = -1;
    for (int i = 0; i < emu.warp_count; i++) {
        int number = (from + i * step + emu.warp_count) % emu.warp_count;
        if (!(emu.ready[number / 64] >> (number % 64) & 1))
            continue;
        if (number != emu.laggard)
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
    fibre_switch(&self->fibre, &emu.scheduler);
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
    if (emu.self->warp->number == emu.laggard || emu_random() % 16 == 0)
        to_scheduler();
}

/* In a shuffled order, three times of four, one warp runs only when no other can: what works
 * because nobody is late is found out. */
static void choose_laggard(void) {
    emu.laggard = -1;
    if (emu.settings.order == EMU_SHUFFLED && emu_random() % 4 != 0)
        emu.laggard = (int)(emu_random() % (u32)emu.warp_count);
}

static jmp_buf landing_jump; /* out of an effect that the scheduler let happen */
static bool landing;

void emu_end(void) {
    emu.ended = true;
    if (landing)
        longjmp(landing_jump, 1);
    to_scheduler();
    abort(); /* the scheduler does not come back to an ended launch */
}

/* A fruitless test in a loop: others go first. */
void emu_poll(const char *name, site at) {
    emu.pollers++;
    emu_block(POLLS, name, NULL, at);
}

static bool wake_pollers(void) {
    enum { FRUITLESS_ROUNDS = 200 };
    if (emu.pollers == 0 || emu.fruitless++ > FRUITLESS_ROUNDS)
        return false;
    emu.pollers = 0;
    for (int i = 0; i < emu.thread_count; i++)
        if (emu.threads[i].wait == POLLS)
            emu_wake(&emu.threads[i]);
    return true;
}

/* ---- what takes effect by itself ------------------------------------------------------------- */

void emu_defer(struct deferred *deferred) {
    deferred->next = NULL;
    *emu.deferred_last = deferred;
    emu.deferred_last = &deferred->next;
    emu.deferred_count++;
    emu.last_deferred = deferred->at;
}

/* Lets the oldest, or a random one, of the deferred effects happen. */
static bool land_one(void) {
    struct deferred **at = &emu.deferred;
    if (!*at)
        return false;
    if (emu.settings.timing == EMU_RANDOM)
        for (u32 skip = emu_random() % (u32)emu.deferred_count; skip > 0; skip--)
            at = &(*at)->next;
    struct deferred *deferred = *at;
    *at = deferred->next;
    if (emu.deferred_last == &deferred->next)
        emu.deferred_last = at;
    emu.deferred_count--;
    emu.self = deferred->thread;
    landing = true;
    if (setjmp(landing_jump) == 0)
        deferred->effect(deferred);
    landing = false;
    emu.self = NULL;
    emu.fruitless = 0;
    return true;
}

/* ---- collective instructions of a warp ------------------------------------------------------- */

static struct meeting *find_meeting(struct warp *warp, const char *name, u32 mask, int lane) {
    for (int i = 0; i < WARP; i++) {
        struct meeting *meeting = &warp->meetings[i];
        if (meeting->open && meeting->name == name && meeting->mask == mask &&
            !(meeting->arrived >> lane & 1))
            return meeting;
    }
    return NULL;
}

/* A lane that others wait for comes somewhere else, for which it needs one of those: neither can
 * ever happen. */
static void check_convergence(const struct warp *warp, const char *name, u32 mask, int lane,
                              site at) {
    for (int i = 0; i < WARP; i++) {
        const struct meeting *other = &warp->meetings[i];
        if (other->open && other->mask >> lane & 1 && other->arrived & mask)
            emu_fatal(EMU_CONVERGENCE, at, other->at,
                      "lanes of warp %d part: %s comes to %s (mask 0x%08x) {1}, while lanes 0x%08x "
                      "wait for it at %s (mask 0x%08x) {2}",
                      warp->index, emu_who(emu.self), name, mask, other->arrived, other->name,
                      other->mask);
    }
}

static void meet(const char *name, u32 mask, bool aligned,
                 void (*execute)(struct warp *warp, u32 mask, void **arguments, site at),
                 void *arguments, site at) {
    struct thread *self = emu.self;
    struct warp *warp = self->warp;
    emu.statistics.instructions++;
    if (!(mask >> self->lane & 1) || mask & ~warp->present)
        emu_fatal(EMU_CONVERGENCE, at, 0, "%s: %s with mask 0x%08x, which %s {1}", emu_who(self),
                  name, mask,
                  mask & ~warp->present ? "names lanes that do not exist"
                                        : "does not name the lane itself");
    struct meeting *meeting = find_meeting(warp, name, mask, self->lane);
    if (!meeting) {
        check_convergence(warp, name, mask, self->lane, at);
        for (meeting = warp->meetings; meeting->open; meeting++)
            continue;
        *meeting = (struct meeting){
            .execute = execute, .name = name, .mask = mask, .at = at, .open = true};
    }
    if (aligned && meeting->at != at && !emu_same_line(meeting->at, at))
        emu_fatal(EMU_CONVERGENCE, at, meeting->at,
                  "lanes of warp %d come to %s, which is .aligned, at two places: {1} and {2}",
                  warp->index, name);
    meeting->arrived |= 1u << self->lane;
    meeting->arguments[self->lane] = arguments;
    if (meeting->arrived != mask) {
        emu_block(AT_MEETING, name, meeting, at);
        return;
    }
    meeting->open = false;
    execute(warp, mask, meeting->arguments, at);
    for (u32 lanes = mask & ~(1u << self->lane); lanes; lanes &= lanes - 1)
        emu_wake(warp->threads[__builtin_ctz(lanes)]);
    emu_yield();
}

void emu_meet(const char *name, u32 mask,
              void (*execute)(struct warp *warp, u32 mask, void **arguments, site at),
              void *arguments, site at) {
    meet(name, mask, false, execute, arguments, at);
}

void emu_meet_whole(const char *name,
                    void (*execute)(struct warp *warp, u32 mask, void **arguments, site at),
                    void *arguments, site at) {
    if (emu.self->warp->present != ~(u32)0)
        emu_fatal(EMU_CONVERGENCE, at, 0, "%s: %s in a warp of fewer than 32 threads {1}",
                  emu_who(emu.self), name);
    meet(name, ~(u32)0, true, execute, arguments, at);
}

static void execute_nothing(struct warp *warp, u32 mask, void **arguments, site at) {
    (void)warp;
    (void)mask;
    (void)arguments;
    (void)at;
}

void emu_converge(const char *name, site at) {
    meet(name, emu.self->warp->present, true, execute_nothing, NULL, at);
}

/* ---- order ----------------------------------------------------------------------------------- */

void emu_release(u32 *clock) {
    struct thread *self = emu.self;
    emu_clock_join(clock, self->clock);
    self->clock[self->number]++;
}

void emu_acquire(const u32 *clock) {
    emu_clock_join(emu.self->clock, clock);
}

/* ---- a gang ---------------------------------------------------------------------------------- */

/* What every fibre runs. */
static void thread_body(void) {
    fibre_arrived();
    emu.kernel->entry(emu.parameters);
    struct thread *self = emu.self;
    emu_thread_leaves(self);
    self->wait = GONE;
    set_waiting(self);
    emu_cluster_leave();
    to_scheduler();
    abort();
}

static bool make_stacks(int threads) {
    size_t bytes = (size_t)STACK_BYTES * (size_t)threads;
    if (threads <= stacks_for)
        return true;
    if (stacks_for > 0) {
        munmap(stacks, (size_t)STACK_BYTES * (size_t)stacks_for);
        munmap(touched, (size_t)STACK_BYTES * (size_t)stacks_for);
        stacks_for = 0;
    }
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    void *shadow = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED || shadow == MAP_FAILED) {
        if (memory != MAP_FAILED)
            munmap(memory, bytes);
        return false;
    }
    stacks = memory;
    touched = shadow;
    stacks_for = threads;
    fibre_forget(stacks, bytes);
    for (int i = 0; i < threads; i++) /* a stack that overflows meets this page */
        mprotect(stacks + (size_t)STACK_BYTES * (size_t)i, PAGE, PROT_NONE);
    for (int i = 1; i <= threads; i++)
        memset(stacks + (size_t)STACK_BYTES * (size_t)i - FILLED_BYTES, UNWRITTEN, FILLED_BYTES);
    return true;
}

const u8 *emu_stack_low(const struct thread *thread) {
    return stacks + (size_t)STACK_BYTES * (size_t)thread->number;
}

size_t emu_stack_bytes(void) {
    return STACK_BYTES;
}

struct taken {
    struct taken *previous, *next;
    max_align_t memory[];
};

static struct taken *all_taken;

void *emu_take(size_t bytes) {
    struct taken *taken = calloc(1, sizeof *taken + bytes);
    if (!taken)
        emu_fatal(EMU_ILLEGAL, 0, 0, "out of memory");
    taken->next = all_taken;
    if (all_taken)
        all_taken->previous = taken;
    all_taken = taken;
    return taken->memory;
}

void emu_give(void *memory) {
    if (!memory)
        return;
    struct taken *taken = (struct taken *)(void *)((u8 *)memory - offsetof(struct taken, memory));
    if (taken->next)
        taken->next->previous = taken->previous;
    if (taken->previous)
        taken->previous->next = taken->next;
    else
        all_taken = taken->next;
    free(taken);
}

static void release_thread(struct thread *thread) {
    free(thread->copies);
    free(thread->groups);
    free(thread->ranges);
    free(thread->clock);
}

static void release_gang(void) {
    while (all_taken)
        emu_give(all_taken->memory);
    for (int i = 0; i < emu.thread_count; i++)
        release_thread(&emu.threads[i]);
    for (int i = 0; i < emu.warp_count; i++)
        emu_products_free(&emu.warps[i]);
    for (int i = 0; i < emu.ctas; i++) {
        struct cta *cta = &emu.cta[i];
        for (int b = 0; b < NAMED_BARRIERS; b++)
            free(cta->barriers[b].clock);
        for (int b = 0; b < cta->mbarrier_count; b++) {
            free(cta->mbarriers[b].arriving);
            free(cta->mbarriers[b].released);
        }
    }
    free(emu.cluster_barrier.clock);
    free(emu.cluster_barrier.released);
    free(emu.threads);
    free(emu.warps);
    emu.threads = NULL;
    emu.warps = NULL;
}

static void make_thread(struct thread *thread, int number) {
    struct cta *cta = &emu.cta[number / emu.cta_threads];
    int index = number % emu.cta_threads;
    int warps_of_block = (emu.cta_threads + WARP - 1) / WARP;
    thread->cta = cta;
    thread->number = number;
    thread->index = index;
    thread->lane = index % WARP;
    thread->x = (unsigned)index % emu.block[0];
    thread->y = (unsigned)index / emu.block[0] % emu.block[1];
    thread->z = (unsigned)index / (emu.block[0] * emu.block[1]);
    thread->warp = &emu.warps[cta->rank * warps_of_block + index / WARP];
    thread->warp->cta = cta;
    thread->warp->index = index / WARP;
    thread->warp->threads[thread->lane] = thread;
    thread->warp->present |= 1u << thread->lane;
    thread->clock = emu_clock_new();
    thread->clock[number] = 1;
    thread->fences = ++emu.fences;
    thread->touched = touched + (size_t)(STACK_BYTES / 4) * (size_t)number;
    fibre_prepare(&thread->fibre, stacks + (size_t)STACK_BYTES * (size_t)number + PAGE,
                  STACK_BYTES - PAGE, thread_body);
}

/* Everything of the gang whose first block is (x, y, z), as at its start. */
static void make_gang(unsigned x, unsigned y, unsigned z) {
    int warps_of_block = (emu.cta_threads + WARP - 1) / WARP;
    emu.thread_count = emu.ctas * emu.cta_threads;
    emu.warp_count = emu.ctas * warps_of_block;
    emu.slots = 2 * emu.thread_count + emu.warp_count + emu.ctas * MAX_MBARRIERS + 1;
    emu.threads = calloc((size_t)emu.thread_count, sizeof *emu.threads);
    emu.warps = calloc((size_t)emu.warp_count, sizeof *emu.warps);
    emu.live = emu.thread_count;
    emu.gang++;
    memset(emu.ready, 0, sizeof emu.ready);
    memset(&emu.cluster_barrier, 0, sizeof emu.cluster_barrier);
    emu.deferred = NULL;
    emu.deferred_last = &emu.deferred;
    emu.deferred_count = 0;
    emu.pollers = emu.fruitless = 0;
    for (int i = 0; i < emu.ctas; i++) {
        struct cta *cta = &emu.cta[i];
        struct cta fresh = {
            .rank = i, .arena = cta->arena, .cells = cta->cells, .live = emu.cta_threads};
        *cta = fresh;
        unsigned rank = (unsigned)i;
        cta->x = x + rank % emu.cluster[0];
        cta->y = y + rank / emu.cluster[0] % emu.cluster[1];
        cta->z = z + rank / (emu.cluster[0] * emu.cluster[1]);
    }
    for (int i = 0; i < emu.warp_count; i++)
        emu.warps[i].number = i;
    for (int i = 0; i < emu.thread_count; i++)
        make_thread(&emu.threads[i], i);
    for (int i = 0; i < emu.warp_count; i++)
        set_ready(&emu.warps[i], emu.warps[i].present);
    choose_laggard();
    emu_shadow_begin();
    emu_products_begin();
}

/* ---- deadlock -------------------------------------------------------------------------------- */

static void describe_wait(const struct thread *thread, char *text, size_t size) {
    if (thread->wait == AT_MEETING) {
        const struct meeting *meeting = thread->wait_object;
        u32 gone = 0;
        for (int lane = 0; lane < WARP; lane++)
            if (thread->warp->threads[lane] && thread->warp->threads[lane]->wait == GONE)
                gone |= 1u << lane;
        snprintf(text, size, "lanes 0x%08x of 0x%08x have come%s", meeting->arrived, meeting->mask,
                 gone & meeting->mask ? "; others have left the kernel" : "");
    } else if (thread->wait == AT_BARRIER) {
        const struct barrier *barrier = thread->wait_object;
        snprintf(text, size, "%d of %d threads have come", barrier->arrived, barrier->expected);
    } else if (thread->wait == AT_MBARRIER) {
        const struct mbarrier *barrier = thread->wait_object;
        snprintf(text, size,
                 "%s: waits for the end of a phase of parity %u; phase %u is under way with %d of "
                 "%d arrivals and %lld bytes to come",
                 emu_shared_name(thread->cta, barrier->offset), thread->wait_parity, barrier->phase,
                 barrier->pending, barrier->expected, (long long)barrier->bytes);
    } else {
        snprintf(text, size, "waits");
    }
}

/* One report that lists every group of threads that wait at one place. */
static void report_deadlock(void) {
    char text[3072] = "", what[320];
    size_t used = 0;
    site first = 0, second = 0;
    int groups = 0;
    for (int i = 0; i < emu.thread_count; i++) {
        const struct thread *thread = &emu.threads[i];
        if (thread->wait == GONE || thread->wait == RUNS)
            continue;
        int same = 0, earlier = 0;
        for (int j = 0; j < emu.thread_count; j++) {
            const struct thread *other = &emu.threads[j];
            if (other->wait != thread->wait || other->wait_site != thread->wait_site ||
                other->wait_parity != thread->wait_parity ||
                (thread->wait != AT_MEETING && other->wait_object != thread->wait_object))
                continue;
            same++;
            earlier += j < i;
        }
        if (earlier)
            continue;
        describe_wait(thread, what, sizeof what);
        int length = snprintf(
            text + used, sizeof text - used, "\n    %d thread%s from %s on, at %s {@%u}: %s", same,
            same == 1 ? "" : "s", emu_who(thread), thread->wait_name, thread->wait_site, what);
        if (length < 0 || (size_t)length >= sizeof text - used) {
            text[used] = '\0'; /* no half of a place */
            break;
        }
        used += (size_t)length;
        second = first ? second ? second : thread->wait_site : 0;
        first = first ? first : thread->wait_site;
        if (++groups == 12)
            break;
    }
    emu_report(EMU_DEADLOCK, first, second,
               "nothing can run any more; %d of %d threads have left%s",
               emu.thread_count - emu.live, emu.thread_count, text);
}

/* ---- running --------------------------------------------------------------------------------- */

/* What the block still owes when its last thread has left. */
static void check_leftovers(void) {
    int late = emu.deferred_count;
    emu_products_compare();
    while (!emu.ended && land_one())
        continue;
    if (late > 0 && !emu.ended)
        emu_report(
            EMU_LEFTOVER, emu.last_deferred, 0,
            "the block ended with %d asynchronous operation%s under way, the last issued {1}", late,
            late == 1 ? "" : "s");
}

static void run_gang(void) {
    while (emu.live > 0 && !emu.ended) {
        struct thread *thread = pick();
        if (emu.settings.timing == EMU_RANDOM && emu_random() % 8 == 0 && land_one() &&
            (!thread || emu.ended))
            continue; /* what landed may have woken somebody, or been reported */
        /* The laggard waits for what takes effect by itself, too. */
        if (thread && thread->warp->number == emu.laggard && emu.settings.timing == EMU_RANDOM &&
            emu_random() % 16 != 0 && land_one())
            continue;
        if (!thread) {
            if (land_one() || wake_pollers())
                continue;
            report_deadlock();
            emu.ended = true;
            break;
        }
        emu.self = thread;
        fibre_switch(&emu.scheduler, &thread->fibre);
        emu.self = NULL;
        if (emu_watch_over()) {
            emu_report(EMU_TIME, 0, 0, "the launch took more than %g s of processor time",
                       emu.settings.seconds);
            emu.ended = true;
        }
    }
    if (!emu.ended)
        check_leftovers();
}

/* At most 2^30, which is beyond any limit here. */
static u64 product(const unsigned sizes[3]) {
    u64 all = 1;
    for (int i = 0; i < 3; i++) {
        all *= sizes[i];
        all = all > 1u << 30 ? 1u << 30 : all;
    }
    return all;
}

bool emu_launch_is_legal(void) {
    for (int i = 0; i < 3; i++)
        if (emu.cluster[i] == 0)
            emu.cluster[i] = 1;
    u64 ctas = product(emu.cluster), threads = product(emu.block);
    if (ctas > MAX_CLUSTER || threads == 0 || threads > MAX_BLOCK_THREADS ||
        emu.shared_bytes > ARENA_SPAN - SHARED_BASE) {
        emu_report(
            EMU_ILLEGAL, 0, 0,
            "a launch of clusters of %llu blocks of %llu threads with %u bytes of shared memory "
            "cannot be run",
            (unsigned long long)ctas, (unsigned long long)threads, emu.shared_bytes);
        return false;
    }
    if (emu.grid[0] == 0 || emu.grid[0] > INT32_MAX || emu.grid[1] == 0 || emu.grid[1] > 65535 ||
        emu.grid[2] == 0 || emu.grid[2] > 65535 || emu.block[2] > 64) {
        emu_report(EMU_ILLEGAL, 0, 0,
                   "a launch of %u x %u x %u blocks of %u x %u x %u threads: a device takes 1 to "
                   "2^31 - 1 blocks along x and 1 to 65535 along y and z, 64 threads along z",
                   emu.grid[0], emu.grid[1], emu.grid[2], emu.block[0], emu.block[1], emu.block[2]);
        return false;
    }
    for (int i = 0; i < 3; i++)
        if (emu.grid[i] % emu.cluster[i] != 0) {
            emu_report(EMU_ILLEGAL, 0, 0, "a grid of %u blocks is not a multiple of a cluster's %u",
                       emu.grid[i], emu.cluster[i]);
            return false;
        }
    emu.ctas = (int)ctas;
    emu.cta_threads = (int)threads;
    return true;
}

/* Shared memory and its shadow, for every block a gang can have; kept between launches. */
static bool make_arenas(void) {
    for (int i = 0; i < emu.ctas; i++) {
        struct cta *cta = &emu.cta[i];
        if (!cta->arena && posix_memalign((void **)&cta->arena, PAGE, ARENA_SPAN))
            return false;
        if (!cta->cells)
            cta->cells = malloc(ARENA_SPAN * sizeof *cta->cells);
        if (!cta->cells)
            return false;
    }
    return true;
}

static void run_all(void) {
    for (unsigned z = 0; z < emu.grid[2]; z += emu.cluster[2])
        for (unsigned y = 0; y < emu.grid[1]; y += emu.cluster[1])
            for (unsigned x = 0; x < emu.grid[0]; x += emu.cluster[0]) {
                make_gang(x, y, z);
                run_gang();
                for (int i = 0; i < emu.ctas; i++)
                    emu_chain_block_ends(&emu.cta[i]);
                release_gang();
                emu.statistics.blocks += (u64)emu.ctas;
                if (emu.ended)
                    return;
            }
}

bool emu_launch(struct kernel *kernel, void **parameters) {
    emu.kernel = kernel;
    emu.parameters = parameters;
    emu.random = (emu.settings.seed + 1) * 0x9e3779b97f4a7c15ull | 1;
    emu.ended = false;
    emu.statistics.launches++;
    emu.first_gang = emu.gang + 1;
    emu_chain_begin(emu.early, emu.stream);
    emu_counters_begin();
    emu_reports_begin();
    int threads = emu.ctas * emu.cta_threads;
    if (!make_arenas() || !make_stacks(threads)) {
        emu_report(EMU_ILLEGAL, 0, 0, "out of memory for %d threads", threads);
    } else {
        emu.inside = true;
        emu_watch_begin(emu.settings.seconds);
        run_all();
        emu_watch_end();
        emu.inside = false;
    }
    emu_chain_end();
    return emu_reports_end() == 0;
}
