/* Common to the files of sparse_gqa's passes: a call of either pass, the reverse index of its lists, and
 * the launches of block-stationary kernels (sparse_gqa_index.c). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "codegen/families/sparse_gqa.h"
#include "ops/attention_call.h"
#include "ops/call.h"
#include "ops/sparse_gqa_table.h"
#include "runtime/kernel.h"

#include "common/tensor_map.h"
#include "sparse_gqa.groups.params.h"
#include "sparse_gqa.params.h"
#include "sparse_gqa_bwd.params.h"
#include "sparse_gqa_fwd.params.h"
#include "sparse_gqa_items.params.h"
#include "sparse_gqa_lists.params.h"
#include "sparse_gqa_scores_fwd.params.h"

enum { SMELT__GQA_ELEMENT = 2 /* bytes */ };

/* A call of a pass. When only the workspace's size is computed, the pointers to its arrays are not valid. */
struct smelt__gqa {
    const struct smelt__call *call;
    const struct smelt__kernel *const *kernels;    /* of the pass, by role */
    const struct smelt__sparse_gqa_launch *launch; /* of the main kernel */
    struct smelt__gqa_shape shape;
    struct smelt__attention_call fields;
    const smelt_const_tensor *q, *k, *v, *limit;
    int64_t free_multiprocessors;
    void *workspace;
    size_t bytes;    /* of the workspace */
    int64_t queries; /* entries of the query list */
    /* The reverse index; its fields work and lists are set once the strides are. */
    struct sparse_gqa_lists_params index;
    int64_t chunk; /* entries that are indexed at once */
    int64_t lists; /* of the index */
    int64_t units; /* block-stationary: units of a pair of an entry and a slot */
};

/* Initialises a call from its args struct; smelt__gqa_begin must follow. */
#define SMELT__GQA(call_, args)                                                                    \
    {                                                                                              \
        .call = (call_), .fields = SMELT__ATTENTION_CALL(args), .q = &(args)->q, .k = &(args)->k,  \
        .v = &(args)->v, .limit = &(args)->limit,                                                  \
        .free_multiprocessors = (args)->free_multiprocessors, .workspace = (args)->workspace       \
    }

/* Sets the fields that follow from the spec and the extents. `main`: the main kernel's role. Errors:
 * INVALID_ARGUMENT for an illegal number of queries or rows. */
smelt_status smelt__gqa_begin(struct smelt__gqa *gqa, int main);

/* Places the next array in the workspace. */
void *smelt__gqa_take(struct smelt__gqa *gqa, int64_t count, size_t bytes);

/* Checks the tensors and the workspace, in which all arrays are placed, and the grid. Errors:
 * INVALID_ARGUMENT. */
smelt_status smelt__gqa_check(struct smelt__gqa *gqa, struct smelt__call *call);

/* The lists and limits of a call whose strides are set. */
struct gqa_lists_params smelt__gqa_lists(const struct smelt__attention_call *fields,
                                         const smelt_const_tensor *limit);

/* Launches the kernel of a role for `items` items, on all multiprocessors but free_multiprocessors. The second
 * function, for kernels that need a thread block for each item, uses all multiprocessors. Errors: DRIVER. */
static inline smelt_status smelt__gqa_launch(const struct smelt__gqa *gqa, int role, int64_t items,
                                             const void *params) {
    return smelt__call_launch(gqa->call, gqa->kernels[role], items, gqa->free_multiprocessors,
                              params);
}
static inline smelt_status smelt__gqa_launch_all(const struct smelt__gqa *gqa, int role,
                                                 int64_t items, const void *params) {
    return smelt__call_launch(gqa->call, gqa->kernels[role], items, 0, params);
}

/* ---- the reverse index (templates/sparse_gqa_lists.params.h) --------------------------------- */

/* Places the index of gqa->chunk entries in the workspace. `segment`: pairs of a segment; `tile_entries`:
 * entries of a tile whose lists may be united, 0 if none may be. Errors: INVALID_ARGUMENT for more lists or
 * pairs than a kernel can number. */
smelt_status smelt__gqa_place_index(struct smelt__gqa *gqa, int segment, int tile_entries);

/* Sets gqa->index to the next gqa->chunk entries. Returns 0 if there are none left. */
int smelt__gqa_next_chunk(struct smelt__gqa *gqa);

/* Launches the passes count, scan and fill of sparse_gqa_lists on the entries of the index; `first`: the role
 * of count. Without keys every slot is masked: it launches no kernel and sets all places to -1. Errors: DRIVER. */
smelt_status smelt__gqa_launch_index(const struct smelt__gqa *gqa, int first);

/* ---- block-stationary kernels ---------------------------------------------------------------- */

/* Divides the queries into chunks with at most 2.5 GiB of partial results each; `unit_bytes`: bytes of a
 * unit's partial results. */
void smelt__gqa_split(struct smelt__gqa *gqa, size_t unit_bytes);

/* Fills in the inputs of these kernels: the index, q, k and v. Errors: INVALID_ARGUMENT for strides that
 * tensor maps do not support; DRIVER. */
smelt_status smelt__gqa_sources(const struct smelt__gqa *gqa, struct gqa_items_params *items,
                                struct tensor_map *q_map, struct gqa_block_source *k,
                                struct gqa_block_source *v);
/* Makes the tensor map of q or grad_out. Errors as above. */
smelt_status smelt__gqa_query_map(const struct smelt__gqa *gqa, const char *name,
                                  const smelt_const_tensor *tensor, int columns,
                                  struct tensor_map *map);

/* ---- the backward pass (sparse_gqa_backward.c): its workspace, and its launch ---------------- */

smelt_status smelt__sparse_gqa_backward_workspace(const struct smelt__call *call, size_t *bytes);
smelt_status smelt__sparse_gqa_backward_launch(struct smelt__call *call);
