/* See arguments.h. */
#include "ops/arguments.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/log.h"
#include "runtime/tensor_map.h"

enum {
    MOST_MAP_STRIDE_BITS = 40, /* of the copy engine's strides, in bytes */
    MAP_COLUMNS = 64           /* of a box: 128 bytes, which the swizzle spans */
};

smelt_status smelt__check_extent(const char *name, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most)
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "%s = %" PRId64 " is out of range; legal: %" PRId64 "..%" PRId64, name,
                       value, least, most);
}

smelt_status smelt__check_scale(float scale) {
    const float most = 2e38F; /* times log2(e) this still is finite in fp32 */
    if (scale > 0.0F && scale <= most)
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "scale = %g is not legal; it must be positive and at most %g", (double)scale,
                       (double)most);
}

smelt_status smelt__check_query_weight(float weight) {
    if (isfinite(weight) && weight != 0.0F)
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "query_weight = %g is not legal; legal: finite numbers but 0, for "
                       "example 1, or 1 / tokens for a mean",
                       (double)weight);
}

smelt_status smelt__check_queries(int64_t batches, int64_t tokens) {
    SMELT__TRY(smelt__check_extent("batches", batches, 0, INT32_MAX));
    SMELT__TRY(smelt__check_extent("tokens", tokens, 0, INT32_MAX));
    return batches * tokens <= INT32_MAX
               ? SMELT_OK
               : smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                             "batches * tokens = %" PRId64 " exceeds 2^31 - 1; split the call",
                             batches * tokens);
}

smelt_status smelt__check_map_stride(const char *name, int number, int64_t stride, size_t element,
                                     const char *knob) {
    const int64_t limit = (INT64_C(1) << MOST_MAP_STRIDE_BITS) / (int64_t)element;
    if (stride < limit)
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "%s.strides[%d] = %" PRId64 " is too large for this kernel; legal: below "
                       "%" PRId64 " elements, or make the operator with %s",
                       name, number, stride, limit, knob);
}

smelt_status smelt__check_map_strides(const char *name, const struct smelt__tensor_box *box,
                                      const char *knob) {
    for (int i = 1; i < box->dimensions; i++)
        if (box->extents[i] > 1)
            SMELT__TRY(smelt__check_map_stride(name, box->dimensions - 1 - i, box->strides[i],
                                               smelt__map_element_bytes(box->element), knob));
    return SMELT_OK;
}

smelt_status smelt__make_map(const smelt_context *context, const char *name,
                             const smelt_const_tensor *tensor, int dimensions,
                             const int64_t *extents, int heads, int rows, const char *knob,
                             struct tensor_map *map) {
    struct smelt__tensor_box box = {.data = tensor->data,
                                    .element = SMELT__MAP_BF16,
                                    .swizzle = SMELT__MAP_SWIZZLE_128,
                                    .dimensions = dimensions,
                                    .box = {MAP_COLUMNS, heads, rows, 1}};
    for (int i = 0; i < dimensions; i++) {
        box.extents[i] = extents[dimensions - 1 - i];
        box.strides[i] = i > 0 ? tensor->strides[dimensions - 1 - i] : 0;
    }
    SMELT__TRY(smelt__check_map_strides(name, &box, knob));
    return smelt__tensor_map_make(context, &box, map);
}

size_t smelt__workspace_place(size_t *end, int64_t count, size_t bytes) {
    const size_t offset = *end, size = (size_t)count * bytes;
    *end = offset + (size + SMELT__WORKSPACE_ALIGNMENT - 1) / SMELT__WORKSPACE_ALIGNMENT *
                        SMELT__WORKSPACE_ALIGNMENT;
    return offset;
}

smelt_status smelt__check_workspace(const void *workspace, size_t bytes, size_t needed,
                                    size_t alignment, const char *call) {
    if (needed == 0)
        return SMELT_OK;
    if (!workspace)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "workspace is NULL; this call needs %zu bytes of device memory "
                           "(%s_workspace)",
                           needed, call);
    if ((uintptr_t)workspace % alignment != 0)
        return smelt__fail(
            SMELT_ERROR_INVALID_ARGUMENT,
            "workspace = %p is not aligned; it must start at a multiple of %zu bytes", workspace,
            alignment);
    if (bytes < needed)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "workspace_bytes = %zu is too small: this call needs %zu (%s_workspace)",
                           bytes, needed, call);
    return SMELT_OK;
}

/* ---- one tensor ------------------------------------------------------------------------------ */

/* One tensor argument with its row of the table and the extents that its shape names. */
struct argument {
    const struct smelt__args_table *table;
    const struct smelt__tensor_row *row;
    const int64_t *extents;
    smelt_tensor *tensor;
};

static int64_t extent(const struct argument *argument, int dimension) {
    return argument->extents[argument->row->shape[dimension]];
}

static const char *word(const struct argument *argument, int dimension) {
    return argument->table->symbols[argument->row->shape[dimension]].word;
}

static int is_empty(const struct argument *argument) {
    for (int i = 0; i < argument->row->dimensions; i++)
        if (extent(argument, i) == 0)
            return 1;
    return 0;
}

/* Elements in SMELT__ROW_BYTES, a power of two. */
static int64_t row_elements(const struct smelt__tensor_row *row) {
    return SMELT__ROW_BYTES / (int64_t)smelt__element_bytes(row->element);
}

static uintptr_t alignment_of(const struct smelt__tensor_row *row) {
    return row->whole_rows ? SMELT__ROW_BYTES : smelt__element_bytes(row->element);
}

static smelt_status check_pointer(const struct argument *argument) {
    const struct smelt__tensor_row *row = argument->row;
    const void *data = argument->tensor->data;
    const uintptr_t alignment = alignment_of(row);
    if (!data)
        return is_empty(argument)
                   ? SMELT_OK
                   : smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                                 "%s is NULL; it must point to device memory", row->name);
    if (!((uintptr_t)data & (alignment - 1))) /* a power of two */
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "%s = %p is not aligned; it must start at a multiple of %d bytes", row->name,
                       data, (int)alignment);
}

static smelt_status check_stride(const struct argument *argument, int i) {
    const struct smelt__tensor_row *row = argument->row;
    const int64_t stride = argument->tensor->strides[i];
    const int64_t width = extent(argument, row->dimensions - 1);
    const int innermost = i == row->dimensions - 2;
    if (stride < 0)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "%s.strides[%d] (%s) = %" PRId64
                           " is negative; strides count elements forward",
                           row->name, i, word(argument, i), stride);
    if (row->whole_rows && stride & (row_elements(row) - 1))
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "%s.strides[%d] (%s) = %" PRId64 " is not a multiple of %d elements; "
                           "rows must start at multiples of %d bytes",
                           row->name, i, word(argument, i), stride, (int)row_elements(row),
                           SMELT__ROW_BYTES);
    if (row->most_stride && innermost && stride > row->most_stride)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "%s.strides[%d] (%s) = %" PRId64 " exceeds %" PRId64 " elements",
                           row->name, i, word(argument, i), stride, row->most_stride);
    /* Rows of an input may overlap, but in the innermost dimension that is a slip. 0 repeats one
     * row: see check_output. */
    if ((row->role != SMELT__INPUT || innermost) && stride != 0 && stride < width)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "%s.strides[%d] (%s) = %" PRId64 " is below the row's %" PRId64
                           " elements",
                           row->name, i, word(argument, i), stride, width);
    return SMELT_OK;
}

/* The bytes from a tensor's first to past its last; INVALID_ARGUMENT beyond 2^63. */
static smelt_status measure(const struct argument *argument, int64_t *bytes) {
    const struct smelt__tensor_row *row = argument->row;
    int64_t span = extent(argument, row->dimensions - 1);
    for (int i = 0; i < row->dimensions - 1; i++) {
        int64_t more;
        if (extent(argument, i) <= 1)
            continue;
        if (__builtin_mul_overflow(extent(argument, i) - 1, argument->tensor->strides[i], &more) ||
            __builtin_add_overflow(span, more, &span))
            return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                               "%s.strides[%d] (%s) = %" PRId64 " reaches beyond 2^63 elements",
                               row->name, i, word(argument, i), argument->tensor->strides[i]);
    }
    if (!__builtin_mul_overflow(span, (int64_t)smelt__element_bytes(row->element), bytes))
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s spans more than 2^63 bytes", row->name);
}

/* No two elements of an output may be one place: taken by ascending stride, every dimension must
 * step over all that the ones before it span. */
static smelt_status check_output(const struct argument *argument) {
    const struct smelt__tensor_row *row = argument->row;
    const int64_t *strides = argument->tensor->strides;
    int done[SMELT__MOST_DIMENSIONS] = {0};
    int64_t span = extent(argument, row->dimensions - 1);
    for (int round = 0; round < row->dimensions - 1; round++) {
        int next = -1;
        for (int i = 0; i < row->dimensions - 1; i++)
            if (!done[i] && extent(argument, i) > 1 && (next < 0 || strides[i] < strides[next]))
                next = i;
        if (next < 0)
            return SMELT_OK;
        if (strides[next] < span)
            return smelt__fail(
                SMELT_ERROR_INVALID_ARGUMENT,
                "%s.strides[%d] (%s) = %" PRId64 " makes outputs overlap: it must step over "
                "%" PRId64 " elements; give every stride of %s, or 0 for all of them when it is "
                "packed",
                row->name, next, word(argument, next), strides[next], span, row->name);
        span += (extent(argument, next) - 1) * strides[next]; /* measured before: no overflow */
        done[next] = 1;
    }
    return SMELT_OK;
}

/* A stride past the tensor's dimensions would do nothing: whoever gives one means another shape. */
static smelt_status check_strides_past(const struct argument *argument) {
    const struct smelt__tensor_row *row = argument->row;
    for (int i = row->dimensions - 1; i < SMELT_TENSOR_STRIDES; i++)
        if (argument->tensor->strides[i] != 0)
            return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                               "%s.strides[%d] = %" PRId64 " is not legal: a tensor of %d "
                               "dimension%s has %d stride%s, since the last one is contiguous; "
                               "entries past them must be 0",
                               row->name, i, argument->tensor->strides[i], row->dimensions,
                               row->dimensions == 1 ? "" : "s", row->dimensions - 1,
                               row->dimensions == 2 ? "" : "s");
    return SMELT_OK;
}

/* Checks one tensor and packs its strides. *bytes: from its first on, 0 for one that is not there.
 */
static smelt_status check_tensor(const struct argument *argument, int64_t *bytes) {
    *bytes = 0;
    SMELT__TRY(check_pointer(argument));
    if (!argument->tensor->data)
        return SMELT_OK;
    SMELT__TRY(check_strides_past(argument));
    smelt__tensor_pack(argument->row, argument->extents, argument->tensor);
    for (int i = 0; i < argument->row->dimensions - 1; i++)
        if (extent(argument, i) > 1)
            SMELT__TRY(check_stride(argument, i));
    if (is_empty(argument))
        return SMELT_OK;
    SMELT__TRY(measure(argument, bytes));
    return argument->row->role != SMELT__INPUT ? check_output(argument) : SMELT_OK;
}

/*
 * Whether a tensor is as nearly all are: there, aligned, not empty, its strides packed or ascending
 * from the innermost on and legal. Fills in packed strides, and *bytes. One pass without messages,
 * since each launch makes it; what it does not take check_tensor looks at.
 */
static int is_plain(const struct smelt__tensor_row *row, const int64_t *extents,
                    smelt_tensor *tensor, int64_t *bytes) {
    const int64_t element = (int64_t)smelt__element_bytes(row->element);
    const int64_t mask = (row->whole_rows ? SMELT__ROW_BYTES : element) - 1; /* a power of two's */
    const int last = row->dimensions - 1;
    int64_t *const strides = tensor->strides;
    const int64_t given = strides[0] | strides[1] | strides[2] | strides[3];
    int64_t span = extents[row->shape[last]], packed = span;
    if (!tensor->data || ((intptr_t)tensor->data & mask) || span == 0)
        return 0;
    for (int i = last - 1; i >= 0; i--) {
        const int64_t count = extents[row->shape[i]];
        int64_t more;
        if (!given)
            strides[i] = packed;
        if (count == 1)
            continue;
        /* Unsigned: what wraps here is refused for its span. */
        if (count == 0 || ((uint64_t)strides[i] * (uint64_t)element & (uint64_t)mask) ||
            strides[i] < span || (row->most_stride && strides[i] > row->most_stride) ||
            __builtin_mul_overflow(count - 1, strides[i], &more) ||
            __builtin_add_overflow(span, more, &span))
            goto odd;
        packed = span; /* where strides are */
    }
    for (int i = last; given && i < SMELT_TENSOR_STRIDES; i++)
        if (strides[i] != 0)
            return 0;
    if (span <= INT64_MAX / SMELT__ROW_BYTES) {
        *bytes = span * element;
        return 1;
    }
odd:
    if (!given)
        memset(strides, 0, sizeof tensor->strides);
    return 0;
}

/* ---- tensors that overlap -------------------------------------------------------------------- */

/* Where a tensor lies, or other memory. */
struct range {
    uintptr_t begin, end;
    const struct smelt__tensor_row *row; /* NULL: no tensor */
    const char *name;                    /* of what is none */
};

/* All of a call. */
struct tensors {
    const struct smelt__args_table *table;
    const int64_t *extents;
    void *args;
};

/* Past the last of so many bytes. A caller's number of them may be any: then memory ends there. */
static uintptr_t end_of(uintptr_t begin, size_t bytes) {
    return bytes <= UINTPTR_MAX - begin ? begin + bytes : UINTPTR_MAX;
}

static struct argument argument_of(const struct tensors *all, const struct smelt__tensor_row *row) {
    return (struct argument){all->table, row, all->extents, smelt__tensor_of(row, all->args)};
}

static const char *name_of(const struct range *range) {
    return range->row ? range->row->name : range->name;
}

static uint64_t greatest_divisor(uint64_t a, uint64_t b) {
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The greatest common divisor of a period and the steps, in bytes, between a tensor's rows. */
static uint64_t add_steps(uint64_t period, const struct argument *argument) {
    const uint64_t element = smelt__element_bytes(argument->row->element);
    for (int i = 0; i < argument->row->dimensions - 1; i++)
        if (extent(argument, i) > 1)
            period = greatest_divisor(period, (uint64_t)argument->tensor->strides[i] * element);
    return period;
}

static uint64_t row_bytes(const struct argument *argument) {
    return (uint64_t)extent(argument, argument->row->dimensions - 1) *
           smelt__element_bytes(argument->row->element);
}

/* Whether two tensors whose ranges overlap still share no byte, for example as column ranges of one
 * buffer: all rows of both then repeat with one period, at different offsets. */
static int interleave(const struct tensors *all, const struct range *a, const struct range *b) {
    if (!a->row || !b->row)
        return 0;
    const struct range *low = a->begin <= b->begin ? a : b, *high = low == a ? b : a;
    const struct argument first = argument_of(all, low->row), second = argument_of(all, high->row);
    const uint64_t period = add_steps(add_steps(0, &first), &second);
    if (period == 0) /* one row each, and those overlap */
        return 0;
    const uint64_t gap = (high->begin - low->begin) % period; /* from a row of low to one of high */
    return gap >= row_bytes(&first) && period - gap >= row_bytes(&second);
}

static smelt_status refuse_overlap(const struct range *written, const struct range *other) {
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "%s (%zu bytes from %p) overlaps %s (%zu bytes from %p); what a call writes "
                       "must be memory of its own",
                       name_of(written), (size_t)(written->end - written->begin),
                       (void *)written->begin, name_of(other), (size_t)(other->end - other->begin),
                       (void *)other->begin);
}

/* What is written beside all the rest. */
static smelt_status check_overlaps(const struct tensors *all, const struct range *written,
                                   int writes, const struct range *read, int reads) {
    for (int i = 0; i < writes; i++) {
        const struct range one = written[i];
        for (int k = i + 1; k < writes; k++)
            if (one.begin < written[k].end && written[k].begin < one.end &&
                !interleave(all, &one, &written[k]))
                return refuse_overlap(&one, &written[k]);
        for (int k = 0; k < reads; k++)
            if (one.begin < read[k].end && read[k].begin < one.end &&
                !interleave(all, &one, &read[k]))
                return refuse_overlap(&one, &read[k]);
    }
    return SMELT_OK;
}

/* Sets the strides of dimensions of extent 1 to 0. Callers may pass any value there, and kernels
 * also multiply strides by out-of-range indices, for addresses that they never access. */
static void drop_meaningless(const struct smelt__tensor_row *row, const int64_t *extents,
                             smelt_tensor *tensor) {
    for (int i = 0; i < row->dimensions - 1; i++)
        if (extents[row->shape[i]] == 1)
            tensor->strides[i] = 0;
}

smelt_status smelt__check_tensors(const struct smelt__args_table *table, const int64_t *extents,
                                  void *args, const struct smelt__memory *others, int count) {
    const struct tensors all = {table, extents, args};
    struct range written[SMELT__MOST_TENSORS + SMELT__MOST_MEMORY],
        read[SMELT__MOST_TENSORS + SMELT__MOST_MEMORY];
    int writes = 0, reads = 0;
    for (int i = 0; i < table->count; i++) {
        const struct smelt__tensor_row *row = &table->rows[i];
        smelt_tensor *const tensor = smelt__tensor_of(row, args);
        if (!tensor->data && smelt__may_be_absent(row)) /* call.c has checked which must be there */
            continue;
        const int64_t *const strides = tensor->strides;
        const int packed = !(strides[0] | strides[1] | strides[2] | strides[3]);
        int64_t bytes;
        if (!is_plain(row, extents, tensor, &bytes)) {
            const struct argument argument = argument_of(&all, row);
            SMELT__TRY(check_tensor(&argument, &bytes));
            if (bytes == 0)
                continue;
        }
        if (!packed)
            drop_meaningless(row, extents, tensor);
        const uintptr_t begin = (uintptr_t)tensor->data;
        struct range *range = row->role == SMELT__INPUT ? &read[reads++] : &written[writes++];
        *range = (struct range){begin, end_of(begin, (size_t)bytes), row, NULL};
    }
    for (int i = 0; i < count; i++) {
        const uintptr_t begin = (uintptr_t)others[i].data;
        struct range *range = others[i].written ? &written[writes] : &read[reads];
        if (others[i].bytes == 0)
            continue;
        *range = (struct range){begin, end_of(begin, others[i].bytes), NULL, others[i].name};
        *(others[i].written ? &writes : &reads) += 1;
    }
    return check_overlaps(&all, written, writes, read, reads);
}
