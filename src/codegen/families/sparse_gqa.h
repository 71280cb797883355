/* What the operator sparse_gqa's kernel families share, and what the host asks of them. */
#pragma once

#include "codegen/family.h"
#include "codegen/spec/keys.h"

extern const struct smelt__kernel_family smelt__sparse_gqa_fwd;
extern const struct smelt__kernel_family smelt__sparse_gqa_bwd;      /* dq */
extern const struct smelt__kernel_family smelt__sparse_gqa_bwd_keys; /* dk, dv */
extern const struct smelt__kernel_family smelt__sparse_gqa_lists;
extern const struct smelt__kernel_family smelt__sparse_gqa_merge;
extern const struct smelt__kernel_family smelt__sparse_gqa_sums;
extern const struct smelt__kernel_family smelt__sparse_gqa_united;

/* ---- keys ------------------------------------------------------------------------------------ */

enum {
    SMELT__SPARSE_GQA_MOST_GROUP = 64 /* query heads of a KV head */
};

/* Values of the key `lists`. */
enum { SMELT__SPARSE_GQA_SHARED, SMELT__SPARSE_GQA_KV };

/* Rows of a table of keys: the shape, which every kernel has, and the sink. No kernel depends on topk: the
 * width of the lists is an argument of the call. */
#define SMELT__GQA_KEY_DQK                                                                         \
    {                                                                                              \
        SMELT__REQUIRED("dqk", "width of a query and of a key"),                                   \
            SMELT__ONE_OF(64, 96, 128, 192, 256)                                                   \
    }
#define SMELT__GQA_KEY_WIDTHS                                                                      \
    SMELT__GQA_KEY_DQK, {                                                                          \
        SMELT__REQUIRED("dv", "width of a value, at most dqk"),                                    \
            SMELT__ONE_OF(64, 96, 128, 192, 256)                                                   \
    }
#define SMELT__GQA_KEY_HEADS                                                                       \
    {SMELT__DIVIDED("heads", "query heads on this rank, a multiple of kv_heads"),                  \
     SMELT__RANGE(1, 1024)},                                                                       \
    {                                                                                              \
        SMELT__SHARED("kv_heads", "KV heads on this rank"), SMELT__RANGE(1, 1024)                  \
    }
#define SMELT__GQA_KEY_LISTS                                                                       \
    {SMELT__REQUIRED("granularity", "rows of an entry"), SMELT__ONE_OF(1, 4, 16, 64, 128)}, {      \
        SMELT__OPTIONAL("lists", "shared: one list for all heads; kv: one for each KV head"),      \
            SMELT__NAMES_2(shared, kv)                                                             \
    }
#define SMELT__GQA_KEY_TOPK                                                                        \
    { SMELT__REQUIRED("topk", "the most entries of a list"), SMELT__RANGE(1, 65536) }
#define SMELT__GQA_KEY_SHAPE SMELT__GQA_KEY_HEADS, SMELT__GQA_KEY_WIDTHS, SMELT__GQA_KEY_LISTS
#define SMELT__GQA_KEY_SINK                                                                        \
    {                                                                                              \
        SMELT__OPTIONAL("sink", "1: a learnt logit per head in the softmax denominator"),          \
            SMELT__ONE_OF(0, 1)                                                                    \
    }

/* A key of the forward pass. */
#define SMELT__GQA_KEY_UNITE                                                                       \
    {                                                                                              \
        SMELT__OPTIONAL("unite", "1: lists of neighbouring queries may be united"),                \
            SMELT__ONE_OF(0, 1)                                                                    \
    }

/* Checks what ranges cannot express: heads are whole groups of at most 64; dv, if it is a key, is
 * at most dqk. */
int smelt__sparse_gqa_check(const struct smelt__spec *spec, struct smelt__message *message);

/* Knobs of variant mma. */
#define SMELT__GQA_KNOBS_MMA                                                                       \
    {SMELT__KNOB("block_keys", "rows of one step of the main loop"),                               \
     SMELT__AUTO_ONE_OF(32, 64, 128), SMELT__TUNED, .variants = "mma"},                            \
        {SMELT__KNOB("stages", "key blocks in flight"), SMELT__AUTO_RANGE(2, 4), SMELT__TUNED,     \
         .variants = "mma"},                                                                       \
        {SMELT__KNOB("key_groups", "warps that divide a block's keys"),                            \
         SMELT__AUTO_ONE_OF(1, 2, 4, 8), SMELT__TUNED, .variants = "mma"},                         \
    {                                                                                              \
        SMELT__KNOB("blocks", "resident thread blocks a multiprocessor is compiled for"),          \
            SMELT__AUTO_RANGE(1, 4), SMELT__TUNED_AT(1, 2, 3), .variants = "mma"                   \
    }

/* A knob of variant sm90. */
#define SMELT__GQA_KNOB_PART_TILES                                                                 \
    {                                                                                              \
        SMELT__KNOB("part_tiles", "tiles of 64 columns that are filled and freed together"),       \
            SMELT__AUTO_ONE_OF(1, 2, 4), SMELT__TUNED, .variants = "sm90",                         \
                                                       .only_with = "granularity=1,4,16"           \
    }

/* ---- kernels --------------------------------------------------------------------------------- */

/* The roles of the forward pass's kernels (struct smelt__expansion), in the order of launch. All but FWD
 * are launched only if FWD has variant sm90. */
enum smelt__sparse_gqa_forward_kernel {
    SMELT__SPARSE_GQA_GROUPS, /* attention_lists, pass group; for small entries with unite=1 */
    SMELT__SPARSE_GQA_UNITE,  /* sparse_gqa_lists, pass unite; for large blocks with unite=1 */
    SMELT__SPARSE_GQA_COUNT,  /* sparse_gqa_lists, passes count, scan and fill; for large blocks */
    SMELT__SPARSE_GQA_SCAN,
    SMELT__SPARSE_GQA_FILL,
    SMELT__SPARSE_GQA_UNITED, /* sparse_gqa_united; for large blocks with unite=1 */
    SMELT__SPARSE_GQA_FWD,    /* sparse_gqa_fwd, the main kernel */
    SMELT__SPARSE_GQA_MERGE   /* sparse_gqa_merge; for large blocks */
};

/* The roles of the backward pass's kernels, in the order of launch. */
enum smelt__sparse_gqa_backward_kernel {
    SMELT__SPARSE_GQA_BACKWARD_ROWS,    /* attention_bwd_rows */
    SMELT__SPARSE_GQA_BACKWARD_BOUNDS,  /* sparse_gqa_bwd, sums=bounds; for exact sums */
    SMELT__SPARSE_GQA_BACKWARD_GRAINS,  /* key_grads_grains, pass bins; for exact sums */
    SMELT__SPARSE_GQA_BACKWARD_QUERIES, /* sparse_gqa_bwd; unless KEYS is block-stationary */
    SMELT__SPARSE_GQA_BACKWARD_COUNT,   /* sparse_gqa_lists, passes count, scan and fill */
    SMELT__SPARSE_GQA_BACKWARD_SCAN,
    SMELT__SPARSE_GQA_BACKWARD_FILL,
    SMELT__SPARSE_GQA_BACKWARD_KEYS,       /* sparse_gqa_bwd_keys */
    SMELT__SPARSE_GQA_BACKWARD_QUERY_SUMS, /* sparse_gqa_sums; if KEYS is block-stationary */
    SMELT__SPARSE_GQA_BACKWARD_KEY_SUMS,   /* likewise */
    SMELT__SPARSE_GQA_BACKWARD_FINISH_DK,  /* key_grads_finish */
    SMELT__SPARSE_GQA_BACKWARD_FINISH_DV
};

/* Values of sparse_gqa_bwd's key `sums`. */
enum { SMELT__GQA_SUMS_ANY, SMELT__GQA_SUMS_BOUNDS, SMELT__GQA_SUMS_EXACT };

/* From granularity SMELT__SPARSE_GQA_BLOCK on variant sm90 is block-stationary. Then sparse_gqa_bwd_keys
 * takes dqk + dv up to SMELT__SPARSE_GQA_MOST_COLUMNS: a thread has a 128th of dK and dV for 64 keys. */
enum { SMELT__SPARSE_GQA_BLOCK = 64, SMELT__SPARSE_GQA_MOST_COLUMNS = 320 };

/* Queries of an item of sparse_gqa_bwd_keys, variant mma. */
enum { SMELT__SPARSE_GQA_SEGMENT = 512 };

/* Names the kernel of a plan whose variant is set, "smelt_FAMILY_VARIANT_...", and adds the constants
 * that the spec gives: HEADS, KV_HEADS, GROUP_HEADS, DQK, DV (0 without the key), GRANULARITY,
 * LISTS_OF_KV_HEADS; PDL. */
void smelt__sparse_gqa_name(const struct smelt__spec *spec, struct smelt__plan *plan);

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

/* ---- block-stationary kernels ---------------------------------------------------------------- */

/* Values of the key `pass` of sparse_gqa_lists, in launch order. */
enum smelt__gqa_lists_pass {
    SMELT__GQA_LISTS_COUNT = 0,
    SMELT__GQA_LISTS_SCAN,
    SMELT__GQA_LISTS_FILL,
    SMELT__GQA_LISTS_PASSES,
    SMELT__GQA_LISTS_UNITE = SMELT__GQA_LISTS_PASSES /* before the others, if at all */
};

/* Pass `unite`: the most slots of a tile whose lists it unites; tiles of a thread block. Passes `count` and
 * `fill`: the lists of a thread block; a warp's counters of them are 4 KB. */
enum {
    SMELT__GQA_LISTS_MOST_SLOTS = 512,
    SMELT__GQA_LISTS_UNITE_TILES = 4,
    SMELT__GQA_LISTS_AT_ONCE = 1024
};

/* Values of the key `pass` of sparse_gqa_sums. */
enum smelt__gqa_sums_pass { SMELT__GQA_SUMS_QUERIES = 0, SMELT__GQA_SUMS_KEYS };

/* Whether sparse_gqa_bwd_keys has a block-stationary variant sm90: for large blocks whose dqk + dv fits. */
int smelt__sparse_gqa_grad_may_be_block(const struct smelt__spec *spec);

/* What the host reads of a plan of a block-stationary kernel, and of the query-stationary forward one. */
struct smelt__sparse_gqa_launch {
    int segment;    /* pairs of an item */
    int units;      /* of a pair and KV head: groups of 8 of its query heads */
    int box_heads;  /* heads of a box of q's tensor map */
    int warpgroups; /* backward: those that have sums of dK and dV */
    int queries;    /* query-stationary: of an item, their lists united; 0 or 1: none are united */
    int exact;      /* sparse_gqa_bwd: 1 if its sums are exact */
};

SMELT__PLAN_LAUNCH(smelt__sparse_gqa_launch)

/* Whether there is a kernel for united lists of large blocks. */
int smelt__sparse_gqa_can_unite(const struct smelt__spec *spec);

/* What the host reads of a plan of sparse_gqa_united; zeros: it is never launched. */
struct smelt__sparse_gqa_united_launch {
    int tile_entries; /* queries of a tile */
    int part_entries; /* of a warpgroup */
};

SMELT__PLAN_LAUNCH(smelt__sparse_gqa_united_launch)

/* Units of a KV head: groups of SMELT__SPARSE_GQA_UNIT of its query heads. */
enum { SMELT__SPARSE_GQA_UNIT = 8 };
int smelt__sparse_gqa_units(const struct smelt__spec *spec);

/* Adds the constants of their kernels, those of partial results included: LIST_HEADS, UNITS. */
void smelt__sparse_gqa_block_constants(const struct smelt__spec *spec, struct smelt__plan *plan);
