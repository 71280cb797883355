/*
 * The plan of variant sm90 of sparse_attn_fwd with keys as the matrices' rows: at most 32 heads
 * (templates/sparse_attn_fwd.sm90_few.cu; few_heads.h).
 *
 * The rule. The ring has 25 tiles with 8 heads and dqk 576, 23 with 16, 18 with 32; a key block has 9
 * (measured, topk 2048: with 18 tiles 8 heads take 1.29 ms instead of 1.19, 16 heads 1.36 instead of
 * 1.21). A block's tiles are copied and released two at a time (by fours 32 heads are 5 % slower), up
 * to 16 heads by fours (2 % faster at topk 512, the same at 2048). stages=n makes the ring n whole
 * blocks. Heads are rounded up to the next 8. Registers: a math warpgroup holds a whole O^T, 8 tiles
 * of heads / 2 values a thread, 128 for 32 heads, and gets 208; the gather gets 88.
 */
#include "codegen/families/few_heads.h"
#include "codegen/families/sparse_attn_fwd.h"

enum {
    UNIT = SMELT__FEW_HEADS_UNIT,
    REGISTER_UNIT = SMELT__FEW_HEADS_REGISTER_UNIT,
    LEAST_GATHER = SMELT__FEW_HEADS_LEAST_GATHER,
    MOST_GATHER = SMELT__FEW_HEADS_GATHER,
    TILE_COLUMNS = 64,
    VALUE_WIDTH = 512, /* columns */
    QUERY_ITEM = 4,    /* bytes of an item: a query */
    QUERY_TENSOR = 4,  /* its batch */
    FEWER_HEADS = 16,  /* up to so many, parts have more tiles */
    LEAST_STAGES = 2,
    MOST_STAGES = 4,
};

/* The knobs that no other depends on; -1 with a message where one is not legal. */
static int choose_knobs(const struct smelt__spec *spec, struct smelt__few_heads *choice,
                        struct smelt__message *message) {
    const int gather = smelt__spec_knob(spec, "gather_registers", MOST_GATHER);
    if (gather < LEAST_GATHER || gather > MOST_GATHER || gather % REGISTER_UNIT != 0)
        return smelt__spec_refuse(spec, message,
                                  "gather_registers=%d is not legal with variant=sm90 and keys as "
                                  "rows; legal: multiples of 8 in %d..%d",
                                  gather, LEAST_GATHER, MOST_GATHER);
    choice->part_tiles = smelt__spec_knob(spec, "part_tiles",
                                          choice->heads <= FEWER_HEADS ? SMELT__FEW_HEADS_WIDE_PART
                                                                       : SMELT__FEW_HEADS_PART);
    smelt__few_heads_divide_registers(gather, choice);
    return 0;
}

/* As many tiles as fit, or those of the blocks that are asked for, if they do. */
static int choose_ring(const struct smelt__spec *spec, struct smelt__few_heads *choice,
                       struct smelt__plan *plan, struct smelt__message *message) {
    const int most = smelt__few_heads_ring(choice, plan), most_stages = most / choice->tiles;
    const int stages = smelt__spec_knob(spec, "stages", 0);
    if (stages > most_stages)
        return smelt__spec_refuse(spec, message,
                                  "stages=%d with %d heads (rounded up) and dqk=%d needs more than "
                                  "the %d KB of shared memory; legal: %d..%d, or auto, the %d "
                                  "tiles of 64 columns that fit, %d of them a stage",
                                  stages, choice->heads, choice->tiles * TILE_COLUMNS,
                                  SMELT__FEW_HEADS_SHARED / 1024, LEAST_STAGES, most_stages, most,
                                  choice->tiles);
    choice->ring_tiles = stages ? stages * choice->tiles : most;
    return 0;
}

int smelt__sparse_attn_fwd_plan_keys(const struct smelt__spec *spec, struct smelt__plan *plan,
                                     struct smelt__message *message) {
    struct smelt__few_heads choice = {.copy_teams = 1};
    choice.heads = ((int)smelt__spec_get(spec, "heads") + UNIT - 1) / UNIT * UNIT;
    choice.head_blocks = 1;
    choice.item_bytes = QUERY_ITEM;
    choice.tensor_bytes = QUERY_TENSOR;
    choice.query_tiles = choice.tiles = (int)smelt__spec_get(spec, "dqk") / TILE_COLUMNS;
    choice.leading_tiles = choice.tiles - VALUE_WIDTH / TILE_COLUMNS;
    choice.statistics = choice.leading_tiles == 0;
    choice.most_stages = MOST_STAGES;
    choice.p_matrices = 1;
    if (choose_knobs(spec, &choice, message) || choose_ring(spec, &choice, plan, message))
        return -1;
    smelt__plan_set_template(plan, "sm90_few");
    smelt__few_heads_plan(spec, &choice, plan);
    return 0;
}
