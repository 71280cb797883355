/* Vector clocks. See clock.h. */
#include "emu/memory/clock.h"

#include <stdlib.h>
#include <string.h>

/* ---- words that are used ----------------------------------------------------------------------
 */

/* Most slots stay 0 for a gang's whole life, because their copies, products or barriers do not
 * exist. The used ones are tracked in blocks of slots and in runs of such blocks. */
enum { BLOCK = 64, MAX_BLOCKS = 65536 / BLOCK };

static struct {
    bool block[MAX_BLOCKS];
    struct run {
        u32 first, words;
    } runs[MAX_BLOCKS];
    int count;
    bool copies, fenced; /* some word of these is used */
} used;

static void find_runs(void) {
    used.count = 0;
    for (u32 first = 0; first < (u32)emu.slots; first += BLOCK) {
        const u32 words = (u32)emu.slots - first < BLOCK ? (u32)emu.slots - first : BLOCK;
        struct run *last = used.count > 0 ? &used.runs[used.count - 1] : NULL;
        if (!used.block[first / BLOCK])
            continue;
        if (last && last->first + last->words == first)
            last->words += words;
        else
            used.runs[used.count++] = (struct run){first, words};
    }
}

void emu_clock_use(u16 slot) {
    if (slot >= emu.thread_count && slot < 2 * emu.thread_count)
        used.copies = true;
    if (used.block[slot / BLOCK])
        return;
    used.block[slot / BLOCK] = true;
    find_runs();
}

void emu_clock_use_fenced(u16 slot) {
    emu_clock_use(slot);
    used.fenced = true;
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__)
__attribute__((target_clones("avx2", "default"), optimize("O3")))
#endif
static u32
join_words(u32 *restrict clock, const u32 *restrict other, size_t words) {
    u32 changed = 0;
    for (size_t i = 0; i < words; i++) {
        const u32 larger = clock[i] > other[i] ? clock[i] : other[i];
        changed |= larger ^ clock[i];
        clock[i] = larger;
    }
    return changed;
}

/* Returns whether the clock changed. */
static bool join(u32 *clock, const u32 *other) {
    u32 changed = 0;
    for (int i = 0; i < used.count; i++) {
        const struct run run = used.runs[i];
        const u32 fenced = (u32)emu.slots + run.first;
        changed |= join_words(clock + run.first, other + run.first, run.words);
        if (used.fenced)
            changed |= join_words(clock + fenced, other + fenced, run.words);
    }
    return changed != 0;
}

static void copy(u32 *to, const u32 *from) {
    for (int i = 0; i < used.count; i++) {
        const struct run run = used.runs[i];
        const u32 fenced = (u32)emu.slots + run.first;
        memcpy(to + run.first, from + run.first, run.words * sizeof *to);
        if (used.fenced)
            memcpy(to + fenced, from + fenced, run.words * sizeof *to);
    }
}

/* ---- clocks -----------------------------------------------------------------------------------
 */

/* Twice the slots: `seen`, then `fenced`. */
static size_t clock_words(void) {
    return 2 * (size_t)emu.slots;
}

/* Free list of zeroed clocks. */
static struct kept { struct kept *next; } * kept;
static int kept_slots;

void emu_clocks_begin(void) {
    if (kept_slots != emu.slots)
        while (kept) {
            struct kept *const next = kept->next;
            free(kept);
            kept = next;
        }
    kept_slots = emu.slots;
    memset(used.block, 0, sizeof used.block);
    used.count = 0;
    used.copies = used.fenced = false;
}

u32 *emu_clock_new(void) {
    struct kept *const first = kept;
    if (!first)
        return calloc(clock_words(), sizeof(u32));
    kept = first->next;
    first->next = NULL;
    return (void *)first;
}

void emu_clock_free(u32 *clock) {
    if (!clock)
        return;
    emu_clock_clear(clock);
    struct kept *const first = (void *)clock;
    first->next = kept;
    kept = first;
}

void emu_clock_clear(u32 *clock) {
    for (int i = 0; i < used.count; i++) {
        memset(clock + used.runs[i].first, 0, used.runs[i].words * sizeof *clock);
        memset(clock + emu.slots + used.runs[i].first, 0, used.runs[i].words * sizeof *clock);
    }
}

void emu_clock_join(u32 *clock, const u32 *other) {
    join(clock, other);
}

/* ---- editions ---------------------------------------------------------------------------------
 */

/* A step from one edition to another. `by`: the edition joined, or one of these. */
enum { BY_FENCE = 1, BY_LEARNING, FIRST_EDITION };

enum { STEPS = 256 };
static struct step { u64 from, by, to; } steps[STEPS];

u64 emu_edition_new(void) {
    static u64 last = FIRST_EDITION;
    return ++last;
}

static struct step *find_step(u64 from, u64 by) {
    return &steps[(from * 31 + by) % STEPS];
}

static bool is_known(const struct step *step, u64 from, u64 by) {
    return from && by && step->from == from && step->by == by;
}

/* Records that the thread's clock changed by a step that no other clock of its edition
 * has taken. */
static void take_edition(struct thread *thread, u64 by, bool changed) {
    const u64 from = thread->edition;
    if (!changed)
        return;
    if (!from || !by) {
        thread->edition = 0;
        return;
    }
    thread->edition = emu_edition_new();
    *find_step(from, by) = (struct step){from, by, thread->edition};
}

/* ---- a thread's -------------------------------------------------------------------------------
 */

/* A thread's own words in some clock. */
struct own {
    u32 seen, fenced, copies_seen, copies_fenced;
};

static struct own own_words(const struct thread *thread, const u32 *clock) {
    const u32 *const seen = clock + thread->number, *const copies = clock + emu_copy_slot(thread);
    return (struct own){*seen, seen[emu.slots], *copies, copies[emu.slots]};
}

static u32 later(u32 a, u32 b) {
    return a > b ? a : b;
}

static void join_own(u32 *clock, const struct thread *thread, struct own own) {
    u32 *const seen = clock + thread->number;
    *seen = later(*seen, own.seen);
    if (used.fenced)
        seen[emu.slots] = later(seen[emu.slots], own.fenced);
    if (!used.copies)
        return;
    u32 *const copies = clock + emu_copy_slot(thread);
    *copies = later(*copies, own.copies_seen);
    copies[emu.slots] = later(copies[emu.slots], own.copies_fenced);
}

void emu_clock_begin(struct thread *thread, u64 edition) {
    thread->clock = emu_clock_new();
    thread->edition = edition;
    thread->released = thread->acquired = 0;
    emu_clock_use((u16)thread->number);
    thread->clock[thread->number] = 1;
}

void emu_clock_fence(struct thread *thread) {
    const struct step *const step = find_step(thread->edition, BY_FENCE);
    const bool known = is_known(step, thread->edition, BY_FENCE);
    u32 changed = 0;
    used.fenced = true;
    for (int i = 0; i < used.count; i++) {
        u32 *const seen = thread->clock + used.runs[i].first;
        changed |= join_words(seen + emu.slots, seen, used.runs[i].words);
    }
    if (known)
        thread->edition = step->to;
    else
        take_edition(thread, BY_FENCE, changed != 0);
}

void emu_clock_learn(struct thread *thread, u16 slot, u32 clock) {
    const u64 by = (u64)1 << 63 | (u64)slot << 32 | clock; /* larger than any edition */
    const struct step *const step = find_step(thread->edition, by);
    if (thread->clock[slot] == clock)
        return;
    emu_clock_use(slot);
    thread->clock[slot] = clock;
    if (is_known(step, thread->edition, by))
        thread->edition = step->to;
    else
        take_edition(thread, by, true);
}

/* ---- joined clocks --------------------------------------------------------------------------- */

void emu_joined_clear(struct joined *joined) {
    if (joined->clock)
        emu_clock_clear(joined->clock);
    memset(joined->editions, 0, sizeof joined->editions);
}

void emu_release(struct thread *thread, struct joined *to) {
    if (!thread->edition)
        thread->edition = emu_edition_new();
    u64 *const edition = &to->editions[thread->edition % JOINED_EDITIONS];
    if (*edition == thread->edition)
        join_own(to->clock, thread, own_words(thread, thread->clock));
    else
        join(to->clock, thread->clock);
    *edition = thread->released = thread->edition;
    thread->clock[thread->number]++;
}

void emu_release_word(struct joined *to, u16 slot, u32 clock) {
    emu_clock_use(slot);
    to->clock[slot] = later(to->clock[slot], clock);
}

void emu_acquire(struct thread *thread, const u32 *clock, u64 edition) {
    if (edition && thread->acquired == edition)
        return;
    thread->acquired = edition;
    const struct step *const step = find_step(thread->edition, edition);
    const bool known = is_known(step, thread->edition, edition);
    const bool changed = join(thread->clock, clock);
    if (known)
        thread->edition = step->to;
    else
        take_edition(thread, edition, changed);
}

void emu_acquire_joined(struct thread *thread, const struct joined *from, u64 edition) {
    if (thread->released == 0 || thread->released != thread->edition) {
        emu_acquire(thread, from->clock, edition);
        return;
    }
    const struct own own = own_words(thread, thread->clock);
    copy(thread->clock, from->clock);
    join_own(thread->clock, thread, own);
    thread->edition = edition;
}

/* ---- lanes of a warp --------------------------------------------------------------------------
 */

static bool of_one_edition(struct warp *warp, u32 lanes) {
    const u64 edition = warp->threads[__builtin_ctz(lanes)]->edition;
    for (u32 left = lanes; left; left &= left - 1)
        if (warp->threads[__builtin_ctz(left)]->edition != edition)
            return false;
    return edition != 0;
}

/* Lanes of one edition lack only each other's own words. */
static void tell_own_words(struct warp *warp, u32 lanes) {
    for (u32 left = lanes; left; left &= left - 1) {
        const struct thread *const teller = warp->threads[__builtin_ctz(left)];
        const struct own own = own_words(teller, teller->clock);
        for (u32 others = lanes; others; others &= others - 1)
            join_own(warp->threads[__builtin_ctz(others)]->clock, teller, own);
    }
}

static void tell_all(struct warp *warp, u32 lanes) {
    u32 *const together = emu_clock_new();
    if (!together)
        return;
    for (u32 left = lanes; left; left &= left - 1)
        join(together, warp->threads[__builtin_ctz(left)]->clock);
    for (u32 left = lanes; left; left &= left - 1)
        copy(warp->threads[__builtin_ctz(left)]->clock, together);
    emu_clock_free(together);
}

void emu_clocks_meet(struct warp *warp, u32 lanes) {
    const u64 edition = emu_edition_new();
    if (of_one_edition(warp, lanes))
        tell_own_words(warp, lanes);
    else
        tell_all(warp, lanes);
    for (u32 left = lanes; left; left &= left - 1) {
        struct thread *const thread = warp->threads[__builtin_ctz(left)];
        thread->edition = edition;
        thread->clock[thread->number]++;
    }
}
