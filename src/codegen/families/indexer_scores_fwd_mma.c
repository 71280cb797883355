/*
 * The kernel family indexer_scores_fwd: the plan of its variant mma. The comment at the head of
 * templates/indexer_scores_fwd.mma.cu explains the numbers.
 *
 * The rule. A warp has the keys of 32 slots in registers, 128 of them with rows of 256 bytes shared
 * by 32 lanes: 64 a lane. Sixteen warps a multiprocessor hide one's gather behind the others'
 * products; where two blocks' queries do not fit into shared memory, one block. For compute
 * capability 9.0 ptxas takes some registers more for such rows (and spilled 8 bytes with heads that
 * are no multiple of 8), from 10.0 on for all, so that 32 slots do not leave enough.
 */
#include <limits.h>

#include "codegen/families/indexer_keys.h"
#include "codegen/families/indexer_scores_fwd.h"
#include "codegen/plan/limits.h"

enum {
    WARP = 32,            /* threads */
    QUERY_BUFFERS = 2,    /* one is read, one on its way */
    OTHER_REGISTERS = 48, /* operands, products, sums, addresses, loop state, */
    HOPPER = 9,           /* compute capability: with the wider rows, */
    WIDER_ROW = 256,      /* bytes, */
    LATER = 10,           /* and from this one on with any: */
    LATER_REGISTERS = 72,
    ALIGNMENT = 1024,
    DEFAULT_WARPS = 8,
    DEFAULT_BLOCKS = 2,
    DEFAULT_WARP_KEYS = 32,
    LATER_WARP_KEYS = 16,
};

struct choice {
    int block_heads, row_bytes, warps, blocks, warp_keys;
};

/* Whether the compiler takes the more registers. */
static int takes_more(const struct smelt__arch *arch, int row_bytes) {
    return arch->capability_major >= LATER ||
           (arch->capability_major == HOPPER && row_bytes == WIDER_ROW);
}

static int fits(const struct choice *choice, const struct smelt__arch *arch,
                const struct smelt__plan *plan, struct smelt__excess *excess) {
    const int keys = choice->warp_keys * choice->row_bytes / WARP / 4; /* registers of a lane */
    const int others = takes_more(arch, choice->row_bytes) ? LATER_REGISTERS : OTHER_REGISTERS;
    return smelt__limits_hold(arch, choice->warps * WARP, choice->blocks, plan->shared_bytes,
                              keys + others, excess);
}

static void add_constants(const struct choice *choice, const struct smelt__spec *spec,
                          struct smelt__plan *plan) {
    SMELT__PLAN_ADD(
        plan, spec, {"WARPS", "warps", choice->warps, "warps of a thread block"},
        {"WARP_KEYS", "warp_keys", choice->warp_keys, "slots that a warp reads together"},
        {"STAGES", NULL, QUERY_BUFFERS, "queries in shared memory"},
        {"ROW_BYTES", NULL, choice->row_bytes, "bytes of a key, and of a head of a query"});
}

int smelt__indexer_scores_fwd_plan_mma(const struct smelt__spec *spec,
                                       const struct smelt__arch *arch, struct smelt__plan *plan,
                                       struct smelt__message *message) {
    struct smelt__excess excess = SMELT__NO_EXCESS;
    struct choice choice = {
        .block_heads = smelt__indexer_scores_fwd_name(spec, plan),
        .row_bytes = smelt__indexer_row_bytes(spec),
        .warps = smelt__spec_knob(spec, "warps", DEFAULT_WARPS),
        .blocks = smelt__spec_knob(spec, "blocks", 0),
    };
    choice.warp_keys =
        smelt__spec_knob(spec, "warp_keys",
                         takes_more(arch, choice.row_bytes) ? LATER_WARP_KEYS : DEFAULT_WARP_KEYS);
    smelt__plan_add_region(plan, "QUERY_OFFSET",
                           QUERY_BUFFERS * choice.block_heads * choice.row_bytes, ALIGNMENT,
                           "heads of two queries");
    if (smelt__indexer_refuse_fp8(spec, arch, message))
        return -1;
    const int knob = choice.blocks;
    if (!knob) /* as many warps by rule, whatever the knob warps says */
        choice.blocks = DEFAULT_WARPS * DEFAULT_BLOCKS / choice.warps;
    while (!fits(&choice, arch, plan, &excess)) {
        if (!knob && --choice.blocks)
            continue;
        smelt__excess_explain(&excess, spec, arch, "fewer blocks",
                              "fewer warp_keys, warps or blocks", "", message);
        return -1;
    }
    add_constants(&choice, spec, plan);
    smelt__plan_set_threads(plan, choice.warps * WARP, choice.blocks);
    plan->item = "query";
    plan->persistent = 1;
    return 0;
}
