/* See sparse_attn_keys.h. */
#include "codegen/families/sparse_attn_keys.h"

#include <inttypes.h>
#include <string.h>

/* Above FEW_HEADS, heads come in whole groups of HEAD_GROUP; a KV row ends in ROPE_WIDTH columns
 * that are no value, or in none. */
enum { FEW_HEADS = 128, HEAD_GROUP = 64, MAX_HEADS = 1024, ROPE_WIDTH = 64, MAX_TOPK = 1 << 20 };

#define HEADS_LEGAL "1..128 and multiples of 64 above, up to 1024"
#define DQK_LEGAL "dv or dv+64"
#define DV_LEGAL "64, 128, 256, 512"
#define BLOCK_KEYS_LEGAL "auto, 16, 32, 64, 128"

static const char *const variants[] = {"mma", "sm90", NULL};
static const char *const orientations[] = {"heads", "keys", NULL};

/* A required key, a key with a default, a knob, a knob with names, a list. */
#define REQUIRED(name, legal, meaning, minimum, maximum)                                           \
    { name, legal, meaning, minimum, maximum, SMELT__AUTO, 1, 0, NULL, 0 }
#define OPTIONAL(name, legal, meaning, minimum, maximum, value)                                    \
    { name, legal, meaning, minimum, maximum, value, 0, 0, NULL, 0 }
#define KNOB(name, legal, meaning, minimum, maximum)                                               \
    { name, legal, meaning, minimum, maximum, SMELT__AUTO, 0, 1, NULL, 0 }
#define NAMED_KNOB(name, legal, meaning, choices)                                                  \
    { name, legal, meaning, 0, 0, SMELT__AUTO, 0, 1, choices, 0 }
#define LIST(name, legal, meaning, minimum, maximum)                                               \
    { name, legal, meaning, minimum, maximum, 0, 0, 0, NULL, 1 }

/* What is computed, and the knobs. */
/* clang-format off */
#define COMPUTED                                                                                  \
    REQUIRED("heads", HEADS_LEGAL, "query heads on this rank", 1, MAX_HEADS),                     \
    REQUIRED("dqk", DQK_LEGAL, "width of a query and of a KV row", 64, 512 + ROPE_WIDTH),         \
    REQUIRED("dv", DV_LEGAL, "width of a value: the first columns of a KV row", 64, 512),         \
    REQUIRED("topk", "1..1048576", "the most valid slots of a query", 1, MAX_TOPK),               \
    OPTIONAL("sink", "0, 1", "1: a learnt logit per head in the softmax denominator", 0, 1, 0)

#define KNOBS                                                                                     \
    NAMED_KNOB("variant", "auto, mma, sm90", "which instructions the kernel is built on", variants), \
    NAMED_KNOB("orientation", "auto, heads, keys", "what the matrices' rows are, with sm90",      \
               orientations),                                                                     \
    KNOB("compact", "auto, 0, 1", "1: a row of slots is compacted to its valid ones first", 0, 1), \
    KNOB("block_keys", BLOCK_KEYS_LEGAL, "KV rows of one step of the main loop", 16, 128),        \
    KNOB("stages", "auto, 2..4", "key blocks in flight: the depth of the gather's ring", 2, 4),   \
    KNOB("part_tiles", "auto, 2, 4", "64 columns each, come and go together: sm90, keys as rows", \
         2, 4),                                                                                   \
    KNOB("warps", "auto, 4, 8", "warps of a thread block", 4, 8),                                 \
    KNOB("blocks", "auto, 1..4", "resident thread blocks a multiprocessor is compiled for", 1, 4), \
    KNOB("turn_steps", "auto, 0..26", "k-steps of QK left when PV may begin: sm90, heads as rows", \
         0, 26),                                                                                  \
    KNOB("output_registers", "auto, 160, 168", "of a thread that computes PV: sm90, heads as rows", \
         160, 168),                                                                               \
    KNOB("gather_registers", "auto, 24..88 by eights: 24..48 with heads as rows, 64..88 with keys", "of a thread that gathers, with sm90", 24, 88), \
    KNOB("racecheck", "auto, 0, 1", "1: for compute-sanitizer, every lane arrives at barriers: sm90", 0, 1)
/* clang-format on */

const struct smelt__key smelt__sparse_attn_keys[SMELT__SPARSE_ATTN_KEY_COUNT] = {COMPUTED, KNOBS};

const struct smelt__key smelt__sparse_attn_operator_keys[SMELT__SPARSE_ATTN_KEY_COUNT + 1] = {
    COMPUTED,
    LIST("buckets", "auto, or up to 8 ascending numbers 1..1048576, 256/512/1024",
         "queries with at most so many valid slots get a kernel of their own", 1, MAX_TOPK),
    KNOBS};

static int is_one_of(int64_t value, const int *values, int count) {
    for (int i = 0; i < count; i++)
        if (values[i] == value)
            return 1;
    return 0;
}

static int refuse(const struct smelt__spec *spec, const char *key, const char *legal,
                  struct smelt__message *message) {
    smelt__message_set(message, "%s: %s=%" PRId64 " is not legal; legal: %s", spec->family->name,
                       key, smelt__spec_get(spec, key), legal);
    return -1;
}

int smelt__sparse_attn_check(const struct smelt__spec *spec, struct smelt__message *message) {
    static const int widths[] = {64, 128, 256, 512};
    static const int key_blocks[] = {16, 32, 64, 128};
    static const int warp_counts[] = {4, 8};
    static const int part_widths[] = {2, 4};

    int64_t heads = smelt__spec_get(spec, "heads");
    if (heads > FEW_HEADS && heads % HEAD_GROUP != 0)
        return refuse(spec, "heads", HEADS_LEGAL, message);

    int64_t dqk = smelt__spec_get(spec, "dqk"), dv = smelt__spec_get(spec, "dv");
    if (!is_one_of(dv, widths, 4))
        return refuse(spec, "dv", DV_LEGAL, message);
    if (dqk != dv && dqk != dv + ROPE_WIDTH) {
        smelt__message_set(message,
                           "%s: dqk=%" PRId64 " is not legal with dv=%" PRId64 "; legal: %" PRId64
                           " or %" PRId64 " (%s)",
                           spec->family->name, dqk, dv, dv, dv + ROPE_WIDTH, DQK_LEGAL);
        return -1;
    }

    int64_t block_keys = smelt__spec_get(spec, "block_keys");
    if (block_keys != SMELT__AUTO && !is_one_of(block_keys, key_blocks, 4))
        return refuse(spec, "block_keys", BLOCK_KEYS_LEGAL, message);
    int64_t warps = smelt__spec_get(spec, "warps");
    if (warps != SMELT__AUTO && !is_one_of(warps, warp_counts, 2))
        return refuse(spec, "warps", "auto, 4, 8", message);
    int64_t part_tiles = smelt__spec_get(spec, "part_tiles");
    if (part_tiles != SMELT__AUTO && !is_one_of(part_tiles, part_widths, 2))
        return refuse(spec, "part_tiles", "auto, 2, 4", message);
    return 0;
}

int smelt__sparse_attn_tries(const struct smelt__key *key, int named,
                             int64_t values[SMELT__MAX_TRIES]) {
    static const struct {
        const char *name;
        int only_named, count, values[SMELT__MAX_TRIES];
    } tried[] = {
        {"variant", 0, 2, {SMELT__SPARSE_ATTN_MMA, SMELT__SPARSE_ATTN_SM90}},
        {"orientation", 0, 2, {SMELT__SPARSE_ATTN_HEADS, SMELT__SPARSE_ATTN_KEYS}},
        {"compact", 1, 2, {0, 1}}, /* 0 wins on full lists alone */
        {"block_keys", 0, 4, {16, 32, 64, 128}},
        {"stages", 0, 3, {2, 3, 4}},
        {"part_tiles", 0, 2, {2, 4}},
        {"warps", 0, 2, {4, 8}},
        {"blocks", 0, 3, {1, 2, 3}},
        {"turn_steps", 0, 4, {4, 10, 16, 22}},
        {"output_registers", 0, 2, {160, 168}},
        {"gather_registers", 0, 7, {24, 32, 40, 48, 64, 72, 80}},
    };
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
        if (strcmp(key->name, tried[i].name) != 0 || (tried[i].only_named && !named))
            continue;
        for (int k = 0; k < tried[i].count; k++)
            values[k] = tried[i].values[k];
        return tried[i].count;
    }
    return 0;
}
