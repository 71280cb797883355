/* What the operator sparse_gqa's kernel families share, and what the host asks of them. */
#pragma once

#include "codegen/family.h"
#include "codegen/plan/limits.h"
#include "codegen/spec/keys.h"

extern const struct smelt__kernel_family smelt__sparse_gqa_lists;
extern const struct smelt__kernel_family smelt__sparse_gqa_merge;
extern const struct smelt__kernel_family smelt__sparse_gqa_sums;
extern const struct smelt__kernel_family smelt__sparse_gqa_united;

/* ---- keys ------------------------------------------------------------------------------------ */

/* Rows for tables of keys: SMELT__GQA_SHAPE, which every kernel family has, and keys that some have. No
 * kernel depends on topk: the width of the lists is an argument of the call. */
#define SMELT__GQA_HEADS                                                                           \
    SMELT__DIVIDED("heads", "query heads on this rank, a multiple of kv_heads"),                   \
        SMELT__RANGE(1, 1024)
#define SMELT__GQA_KV_HEADS                                                                        \
    SMELT__SHARED("kv_heads", "KV heads on this rank"), SMELT__RANGE(1, 1024)
#define SMELT__GQA_DQK                                                                             \
    SMELT__REQUIRED("dqk", "width of a query and of a key"), SMELT__ONE_OF(64, 96, 128, 192, 256)
#define SMELT__GQA_DV                                                                              \
    SMELT__REQUIRED("dv", "width of a value, at most dqk"), SMELT__ONE_OF(64, 96, 128, 192, 256)
#define SMELT__GQA_GRANULARITY                                                                     \
    SMELT__REQUIRED("granularity", "rows of an entry"), SMELT__ONE_OF(1, 4, 16, 64, 128)
#define SMELT__GQA_LISTS                                                                           \
    SMELT__OPTIONAL("lists", "shared: one list for all heads; kv: one for each KV head"),          \
        SMELT__NAMES_2(shared, kv)
#define SMELT__GQA_SHAPE                                                                           \
    {SMELT__GQA_HEADS}, {SMELT__GQA_KV_HEADS}, {SMELT__GQA_DQK}, {SMELT__GQA_DV},                  \
        {SMELT__GQA_GRANULARITY}, {                                                                \
        SMELT__GQA_LISTS                                                                           \
    }
#define SMELT__GQA_TOPK                                                                            \
    SMELT__REQUIRED("topk", "the most entries of a list"), SMELT__RANGE(1, 65536)
#define SMELT__GQA_UNITE                                                                           \
    SMELT__OPTIONAL("unite", "1: lists of neighbouring queries may be united"), SMELT__ONE_OF(0, 1)

/* Knobs of variant mma. */
#define SMELT__GQA_BLOCKS_KNOB                                                                     \
    SMELT__KNOB("blocks", "resident thread blocks a multiprocessor is compiled for"),              \
        SMELT__AUTO_RANGE(1, 4), SMELT__TUNED_AT(1, 2, 3), .variants = "mma"
#define SMELT__GQA_KNOBS_MMA                                                                       \
    {SMELT__KNOB("block_keys", "rows of one step of the main loop"),                               \
     SMELT__AUTO_ONE_OF(32, 64, 128), SMELT__TUNED, .variants = "mma"},                            \
        {SMELT__KNOB("stages", "key blocks in flight"), SMELT__AUTO_RANGE(2, 4), SMELT__TUNED,     \
         .variants = "mma"},                                                                       \
        {SMELT__KNOB("key_groups", "warps that divide a block's keys"),                            \
         SMELT__AUTO_ONE_OF(1, 2, 4, 8), SMELT__TUNED, .variants = "mma"},                         \
    {                                                                                              \
        SMELT__GQA_BLOCKS_KNOB                                                                     \
    }

/* Checks what ranges cannot express: heads are whole groups of at most 64; dv, if it is a key, is
 * at most dqk. */
int smelt__sparse_gqa_check(const struct smelt__spec *spec, struct smelt__message *message);

/* The shape in a spec. */
struct smelt__gqa_shape {
    int heads, kv_heads, dqk, granularity;
    int dv;    /* 0 in a family without the key */
    int lists; /* of a query */
    int group; /* query heads of a KV head */
    int units; /* groups of SMELT__GQA_UNIT of them; the last one may be incomplete */
};
struct smelt__gqa_shape smelt__sparse_gqa_shape(const struct smelt__spec *spec);

/* ---- kernels --------------------------------------------------------------------------------- */

/* The roles of the forward pass's kernels (struct smelt__expansion), in the order of launch. All but MAIN
 * are launched only if MAIN has variant sm90. */
enum smelt__sparse_gqa_forward_kernel {
    SMELT__GQA_FORWARD_GROUPS, /* attention_lists, pass group; for small entries with unite=1 */
    SMELT__GQA_FORWARD_UNITE,  /* sparse_gqa_lists, pass unite; for large blocks with unite=1 */
    SMELT__GQA_FORWARD_COUNT,  /* sparse_gqa_lists, passes count, scan and fill; for large blocks */
    SMELT__GQA_FORWARD_SCAN,
    SMELT__GQA_FORWARD_FILL,
    SMELT__GQA_FORWARD_UNITED, /* sparse_gqa_united; for large blocks with unite=1 */
    SMELT__GQA_FORWARD_MAIN,   /* sparse_gqa_fwd, the main kernel */
    SMELT__GQA_FORWARD_MERGE   /* sparse_gqa_merge; for large blocks */
};

/* The roles of the backward pass's kernels, in the order of launch. */
enum smelt__sparse_gqa_backward_kernel {
    SMELT__GQA_BACKWARD_ROWS,    /* attention_bwd_rows */
    SMELT__GQA_BACKWARD_BOUNDS,  /* sparse_gqa_bwd, sums=bounds; for exact sums */
    SMELT__GQA_BACKWARD_GRAINS,  /* key_grads_grains, pass bins; for exact sums */
    SMELT__GQA_BACKWARD_QUERIES, /* sparse_gqa_bwd; unless KEYS is block-stationary */
    SMELT__GQA_BACKWARD_COUNT,   /* sparse_gqa_lists, passes count, scan and fill */
    SMELT__GQA_BACKWARD_SCAN,
    SMELT__GQA_BACKWARD_FILL,
    SMELT__GQA_BACKWARD_KEYS,       /* sparse_gqa_bwd_keys */
    SMELT__GQA_BACKWARD_QUERY_SUMS, /* sparse_gqa_sums; if KEYS is block-stationary */
    SMELT__GQA_BACKWARD_KEY_SUMS,   /* likewise */
    SMELT__GQA_BACKWARD_FINISH_DK,  /* key_grads_finish */
    SMELT__GQA_BACKWARD_FINISH_DV
};

/* Values of keys: `sums` of sparse_gqa_bwd; `pass` of sparse_gqa_lists; `pass` of sparse_gqa_sums. */
enum { SMELT__GQA_SUMS_ANY, SMELT__GQA_SUMS_BOUNDS, SMELT__GQA_SUMS_EXACT };
enum {
    SMELT__GQA_LISTS_COUNT,
    SMELT__GQA_LISTS_SCAN,
    SMELT__GQA_LISTS_FILL,
    SMELT__GQA_LISTS_UNITE
};
enum { SMELT__GQA_SUMS_QUERIES, SMELT__GQA_SUMS_KEYS };

enum {
    SMELT__GQA_UNIT = 8,   /* heads of a unit of block-stationary kernels' partial results */
    SMELT__GQA_BLOCK = 64, /* from this granularity on variant sm90 is block-stationary */
    /* Warpgroups that compute, of sparse_gqa_united and the block-stationary sparse_gqa_bwd_keys. */
    SMELT__GQA_CONSUMERS = 2,
    SMELT__GQA_SEGMENT = 512, /* queries of an item of sparse_gqa_bwd_keys, variant mma */
    /* Of sparse_gqa_lists, pass `unite`: the most slots of a tile whose lists it unites; tiles of a thread
     * block. Passes `count` and `fill`: lists of a thread block; a warp's counters of them are 4 KB. */
    SMELT__GQA_LISTS_MOST_SLOTS = 512,
    SMELT__GQA_LISTS_UNITE_TILES = 4,
    SMELT__GQA_LISTS_AT_ONCE = 1024
};

/* Names the kernel of a plan whose variant is set, "smelt_FAMILY_VARIANT_...", and adds the constants
 * that the spec gives: HEADS, KV_HEADS, GROUP_HEADS, DQK, DV (0 without the key), GRANULARITY,
 * LISTS_OF_KV_HEADS; PDL. */
void smelt__sparse_gqa_name(const struct smelt__spec *spec, struct smelt__plan *plan);
/* The same for kernels that write or combine partial results; also adds LIST_HEADS and UNITS. */
void smelt__sparse_gqa_name_block(const struct smelt__spec *spec, struct smelt__plan *plan);

/* The bytes of a bf16 row in tiles of 64 columns. The second function adds a region of `rows` such rows. */
static inline int smelt__gqa_row_bytes(int columns) {
    return (columns + 63) / 64 * 128;
}
static inline void smelt__gqa_add_tiles(struct smelt__plan *plan, const char *name, int rows,
                                        int columns, const char *meaning) {
    smelt__plan_add_region(plan, name, rows * smelt__gqa_row_bytes(columns), SMELT__TILE_ALIGNMENT,
                           meaning);
}

/* Each plans its variant or says why it cannot: 0, or -1 with the reason. */
#define PLAN(name)                                                                                 \
    int smelt__sparse_gqa_##name(const struct smelt__spec *spec, const struct smelt__arch *arch,   \
                                 struct smelt__plan *plan, struct smelt__message *message)
PLAN(plan_mma); /* of sparse_gqa_fwd, sparse_gqa_bwd and sparse_gqa_scores_fwd */
PLAN(bwd_keys_plan_mma);
PLAN(bwd_plan_sm90);
/* For granularity 64 and 128; for others they call the next two (sparse_gqa_sm90_few.c). */
PLAN(fwd_plan_sm90);
PLAN(bwd_keys_plan_sm90);
PLAN(fwd_plan_few);
PLAN(bwd_keys_plan_few);
#undef PLAN

/* Whether sparse_gqa_united, for united lists of large blocks, supports the shape. The second function:
 * whether the block-stationary variant sm90 of sparse_gqa_bwd_keys does. */
int smelt__sparse_gqa_can_unite(const struct smelt__gqa_shape *shape);
int smelt__sparse_gqa_grad_may_be_block(const struct smelt__gqa_shape *shape);

/* What the host reads of the plans of sparse_gqa_united and of variant sm90; 0 where it does not apply. */
struct smelt__sparse_gqa_launch {
    int segment;   /* block-stationary: pairs of an item */
    int box_heads; /* likewise: heads of a box of q's tensor map */
    int queries; /* queries of an item, or of a tile of sparse_gqa_united, whose lists are united */
};

SMELT__PLAN_LAUNCH(smelt__sparse_gqa_launch)
