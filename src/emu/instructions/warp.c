/* Warp-level instructions on registers and the built-in variables. None of them orders memory. */
#include <math.h>
#include <string.h>

#include "emu/formats/numbers.h"
#include "emu/machine/collective.h"
#include "emu/machine/report.h"

/* ---- votes ----------------------------------------------------------------------------------- */

struct vote {
    int predicate;
    u32 result;
};

static void execute_ballot(struct warp *warp, u32 mask, void **arguments, site at) {
    u32 votes = 0;
    (void)warp;
    (void)at;
    for (u32 lanes = mask; lanes; lanes &= lanes - 1) {
        int lane = __builtin_ctz(lanes);
        votes |= (u32)(((struct vote *)arguments[lane])->predicate != 0) << lane;
    }
    for (u32 lanes = mask; lanes; lanes &= lanes - 1)
        ((struct vote *)arguments[__builtin_ctz(lanes)])->result = votes;
}

static u32 ballot(const char *name, u32 mask, int predicate, site at) {
    struct vote vote = {predicate, 0};
    emu_collective(name, mask, execute_ballot, &vote, at);
    return vote.result;
}

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

EMU_EXPORT unsigned emu_ballot_sync(unsigned mask, int predicate) {
    return ballot("__ballot_sync", mask, predicate, EMU_SITE);
}

EMU_EXPORT int emu_any_sync(unsigned mask, int predicate) {
    return ballot("__any_sync", mask, predicate, EMU_SITE) != 0;
}

EMU_EXPORT int emu_all_sync(unsigned mask, int predicate) {
    return ballot("__all_sync", mask, predicate, EMU_SITE) == mask;
}

/* ---- shuffles and reductions ----------------------------------------------------------------- */

enum shuffle_kind { INDEXED, UP, DOWN, XOR };
static const char *const shuffle_names[] = {"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync",
                                            "__shfl_xor_sync"};

struct shuffle {
    enum shuffle_kind kind;
    u32 value, operand, result;
};

static int source_lane(const struct shuffle *shuffle, int lane) {
    int operand = (int)(shuffle->operand % WARP);
    switch (shuffle->kind) {
    case UP:
        return lane - (int)shuffle->operand < 0 ? lane : lane - (int)shuffle->operand;
    case DOWN:
        return lane + (int)shuffle->operand >= WARP ? lane : lane + (int)shuffle->operand;
    case XOR:
        return lane ^ operand;
    default:
        return operand;
    }
}

static void execute_shuffle(struct warp *warp, u32 mask, void **arguments, site at) {
    for (u32 lanes = mask; lanes; lanes &= lanes - 1) {
        int lane = __builtin_ctz(lanes);
        struct shuffle *shuffle = arguments[lane];
        int source = source_lane(shuffle, lane);
        if (!(mask >> source & 1))
            emu_fatal(
                EMU_CONVERGENCE, at, 0, "%s: %s reads lane %d, which is not in its mask 0x%08x {1}",
                emu_thread_name(warp->threads[lane]), shuffle_names[shuffle->kind], source, mask);
        shuffle->result = ((struct shuffle *)arguments[source])->value;
    }
}

static u32 shuffle(enum shuffle_kind kind, u32 mask, u32 value, u32 operand, site at) {
    struct shuffle arguments = {kind, value, operand, 0};
    emu_collective(shuffle_names[kind], mask, execute_shuffle, &arguments, at);
    return arguments.result;
}

EMU_EXPORT unsigned emu_shfl(int kind, unsigned mask, unsigned value, int operand) {
    return shuffle((enum shuffle_kind)kind, mask, value, (u32)operand, EMU_SITE);
}

EMU_EXPORT float emu_shfl_float(int kind, unsigned mask, float value, int operand) {
    u32 bits;
    memcpy(&bits, &value, sizeof bits);
    bits = shuffle((enum shuffle_kind)kind, mask, bits, (u32)operand, EMU_SITE);
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* redux.sync */
enum reduction {
    REDUCE_OR,
    REDUCE_AND,
    REDUCE_ADD,
    REDUCE_MIN, /* these two are signed */
    REDUCE_MAX,
    REDUCE_MIN_UNSIGNED,
    REDUCE_MAX_UNSIGNED
};

struct reduce {
    enum reduction kind;
    u32 value, result;
};

static u32 combine(enum reduction kind, u32 a, u32 b) {
    switch (kind) {
    case REDUCE_OR:
        return a | b;
    case REDUCE_AND:
        return a & b;
    case REDUCE_ADD:
        return a + b;
    case REDUCE_MIN:
        return (int32_t)a < (int32_t)b ? a : b;
    case REDUCE_MAX:
        return (int32_t)a < (int32_t)b ? b : a;
    case REDUCE_MIN_UNSIGNED:
        return a < b ? a : b;
    default:
        return a < b ? b : a;
    }
}

static void execute_reduce(struct warp *warp, u32 mask, void **arguments, site at) {
    int first = __builtin_ctz(mask);
    struct reduce *one = arguments[first];
    u32 result = one->value;
    (void)warp;
    for (u32 lanes = mask & (mask - 1); lanes; lanes &= lanes - 1) {
        const struct reduce *other = arguments[__builtin_ctz(lanes)];
        if (other->kind != one->kind)
            emu_fatal(EMU_CONVERGENCE, at, 0,
                      "lanes of a warp execute different redux.sync operations {1}");
        result = combine(one->kind, result, other->value);
    }
    for (u32 lanes = mask; lanes; lanes &= lanes - 1)
        ((struct reduce *)arguments[__builtin_ctz(lanes)])->result = result;
}

EMU_EXPORT unsigned emu_reduce_sync(int kind, unsigned mask, unsigned value) {
    struct reduce reduce = {(enum reduction)kind, value, 0};
    emu_collective("redux.sync", mask, execute_reduce, &reduce, EMU_SITE);
    return reduce.result;
}

/* ---- built-in variables ---------------------------------------------------------------------- */

struct index3 { /* as device.h declares it */
    unsigned x, y, z;
};

EMU_EXPORT struct index3 emu_thread_index(void) {
    return (struct index3){emu.self->x, emu.self->y, emu.self->z};
}

EMU_EXPORT struct index3 emu_block_index(void) {
    const struct cta *cta = emu.self->cta;
    return (struct index3){cta->x, cta->y, cta->z};
}

EMU_EXPORT struct index3 emu_block_size(void) {
    return (struct index3){emu.block[0], emu.block[1], emu.block[2]};
}

EMU_EXPORT struct index3 emu_grid_size(void) {
    return (struct index3){emu.grid[0], emu.grid[1], emu.grid[2]};
}

EMU_EXPORT unsigned char *emu_arena(void) {
    return emu.self->cta->arena;
}

/* The 32-bit shared address of a pointer into the arena. */
EMU_EXPORT unsigned emu_generic_to_shared(const void *pointer) {
    size_t offset = (size_t)((const u8 *)pointer - emu.self->cta->arena);
    if (offset > ARENA_SPAN)
        emu_fatal(EMU_BOUNDS, EMU_SITE, 0, "%s: %p is not an address of shared memory {1}",
                  emu_thread_name(emu.self), pointer);
    return SHARED_BASE + (unsigned)offset;
}

EMU_EXPORT _Noreturn void emu_trap(void) {
    emu_fatal(EMU_CRASH, EMU_SITE, 0, "%s: __trap() {1}", emu_thread_name(emu.self));
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

EMU_EXPORT float emu_exp2_approximate(float x) {
    return emu_exp2(x);
}

/* On a GPU a difference with a NaN gives the canonical NaN, whose sign is clear; the CPU keeps
 * signs. */
EMU_EXPORT unsigned emu_push_greater(unsigned mask, float threshold, unsigned x) {
    float value;
    u32 sign;
    memcpy(&value, &x, sizeof value);
    const float difference = threshold - value;
    memcpy(&sign, &difference, sizeof sign);
    return mask << 1 | (isnan(difference) ? 0 : sign >> 31);
}

EMU_EXPORT float emu_minimum_nan(float x, float y) {
    return isnan(x) || isnan(y) ? NAN : x < y || (x == y && signbit(x)) ? x : y; /* -0 below +0 */
}

EMU_EXPORT float emu_maximum_nan(float x, float y) {
    return isnan(x) || isnan(y) ? NAN : x > y || (x == y && signbit(y)) ? x : y; /* +0 above -0 */
}

EMU_EXPORT float emu_log2_approximate(float x) {
    return emu_log2(x);
}

EMU_EXPORT unsigned emu_pack_bf16x2(float low, float high) {
    return emu_bf16x2(low, high);
}

EMU_EXPORT unsigned emu_pack_e4m3x2(float low, float high) {
    return emu_e4m3x2(low, high);
}
