/*
 * What every operator asks of its arguments, written once: tensors by their table (args_table.h),
 * extents, workspace. Each refuses by name, with the value and what is legal. Nothing reads device
 * memory.
 */
#pragma once

#include "ops/args_table.h"
#include "smelt/context.h"
#include "smelt/status.h"

struct smelt__tensor_box;
struct tensor_map;

/* least <= value <= most, or INVALID_ARGUMENT. */
smelt_status smelt__check_extent(const char *name, int64_t value, int64_t least, int64_t most);

/* The scale of attention's scores: positive, and finite in fp32 times log2(e). */
smelt_status smelt__check_scale(float scale);

/* The argument query_weight of the indexer's losses: finite, not 0. */
smelt_status smelt__check_query_weight(float weight);

/* batches * tokens, each from 0 on, at most 2^31 - 1 together. */
smelt_status smelt__check_queries(int64_t batches, int64_t tokens);

enum { SMELT__MOST_MEMORY = 2 /* pieces of it in a call */ };

/* Memory of a call that is no tensor. */
struct smelt__memory {
    const char *name;
    const void *data;
    size_t bytes; /* 0: it is not there */
    int written;
};

/*
 * Checks all tensors. *args is the library's own copy: packed strides are filled
 * in. For each: the pointer (required ones are there, aligned to their elements or to whole rows),
 * the strides (not negative, whole rows, no slip in the innermost; those of extents of 1, which may
 * be anything, become 0), no two elements of an output in
 * one place, and no output overlapping another tensor or the `count` other pieces of
 * memory.
 */
smelt_status smelt__check_tensors(const struct smelt__args_table *table, const int64_t *extents,
                                  void *args, const struct smelt__memory *others, int count);

/* That the copy engine takes a step of so many elements, tensor `name`'s strides[number]. `knob`:
 * how the operator is told to use kernels that take it. */
smelt_status smelt__check_map_stride(const char *name, int number, int64_t stride, size_t element,
                                     const char *knob);
/* The same for all strides of a box with the dimensions of tensor `name`. */
smelt_status smelt__check_map_strides(const char *name, const struct smelt__tensor_box *box,
                                      const char *knob);

/* Makes the tensor map of a bf16 tensor of 3 or 4 dimensions, the last three of which are rows, heads and columns. A box
 * has 64 columns, `heads` heads and `rows` rows. `extents` has the outermost dimension first. Errors: INVALID_ARGUMENT
 * for strides that the copy engine does not take (`knob`: as above), DRIVER. */
smelt_status smelt__make_map(const smelt_context *context, const char *name,
                             const smelt_const_tensor *tensor, int dimensions,
                             const int64_t *extents, int heads, int rows, const char *knob,
                             struct tensor_map *map);

/* Allocates `count` elements of this size in a workspace at *end, and advances *end. Returns their offset. */
size_t smelt__workspace_place(size_t *end, int64_t count, size_t bytes);

/* `needed` bytes of device memory at a multiple of `alignment`; 0 needs nothing. `call`: the public
 * function, whose _workspace says how much. */
smelt_status smelt__check_workspace(const void *workspace, size_t bytes, size_t needed,
                                    size_t alignment, const char *call);
