#include "harness/problem.h"

#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "harness/lists.h"
#include "harness/parallel.h"
#include "harness/random.h"
#include "reference/sparse_attn.h"

enum { NORMAL_BITS = 12, NORMALS = 1 << NORMAL_BITS };
enum { STREAM_Q = 1, STREAM_KV, STREAM_LENGTH, STREAM_SINK, STREAM_QUERIES };

static const uint16_t GAP = 0xffff; /* NaN as bf16: whoever reads a gap shows it */

/* ---- layout ---------------------------------------------------------------------------------- */

void smelt__problem_defaults(const smelt_sparse_attn_spec *spec,
                             struct smelt__problem_options *options) {
    if (options->batches == 0)
        options->batches = 1;
    if (options->tokens == 0)
        options->tokens = 16;
    if (options->rows == 0)
        options->rows = spec->topk > 64 ? 4 * (int64_t)spec->topk : 256;
    if (options->width == 0)
        options->width = spec->topk;
    if (options->documents == 0)
        options->documents = 4;
    if (options->scale == 0.0F)
        options->scale = (float)(1.0 / sqrt(spec->dqk));
}

/* Gaps everywhere; out and lse with heads outside tokens, as other libraries keep lse. Strides of
 * q, kv and out stay multiples of 8 elements, 16 bytes. */
static void set_strides(struct smelt__problem *problem) {
    smelt_sparse_attn_args *args = &problem->args;
    int64_t heads = problem->spec.heads, dqk = problem->spec.dqk, dv = problem->spec.dv;
    args->q.strides[2] = dqk + 8;
    args->q.strides[1] = heads * args->q.strides[2] + 16;
    args->q.strides[0] = args->tokens * args->q.strides[1] + 24;
    args->kv.strides[1] = dqk + 16;
    args->kv.strides[0] = args->rows * args->kv.strides[1] + 8;
    args->indices.strides[1] = args->width + 3;
    args->indices.strides[0] = args->tokens * args->indices.strides[1] + 5;
    args->topk_length.strides[1] = 2;
    args->topk_length.strides[0] = args->tokens * 2 + 1;
    args->out.strides[1] = dv + 8;
    args->out.strides[2] = args->tokens * args->out.strides[1] + 16;
    args->out.strides[0] = heads * args->out.strides[2] + 8;
    args->lse.strides[1] = 1;
    args->lse.strides[2] = args->tokens + 3;
    args->lse.strides[0] = heads * args->lse.strides[2] + 1;
    memcpy(args->max_logits.strides, args->lse.strides, sizeof args->lse.strides);
}

/* A stride, of 16 bytes at least, by which index `last` alone passes 2^32 elements. */
static int64_t far_stride(int64_t last) {
    return ((INT64_C(1) << 32) / (last > 0 ? last : 1) / 8 + 2) * 8;
}

/* Every dimension strides so far that its last index lies beyond 2^32 elements. The one with the
 * most indices is the innermost, else address space would run short. */
static void set_far_strides(struct smelt__problem *problem) {
    smelt_sparse_attn_args *args = &problem->args;
    int64_t heads = problem->spec.heads, tokens = args->tokens;
    int64_t head = far_stride(heads - 1), token = heads * head + far_stride(tokens - 1);
    int64_t batch = tokens * token + far_stride(args->batches - 1);
    args->q.strides[2] = args->out.strides[2] = head;
    args->q.strides[1] = args->out.strides[1] = token;
    args->q.strides[0] = args->out.strides[0] = batch;
    enum { LARGEST_ROW_STRIDE = INT32_MAX / 8 * 8 }; /* the kernels' limit, whole 16 bytes */
    args->kv.strides[1] = problem->spec.dqk + far_stride(args->rows - 1);
    if (args->kv.strides[1] > LARGEST_ROW_STRIDE)
        args->kv.strides[1] = LARGEST_ROW_STRIDE; /* three rows or fewer then stay below 2^32 */
    args->kv.strides[0] = args->rows * args->kv.strides[1] + far_stride(args->batches - 1);
    args->indices.strides[1] = args->width + far_stride(tokens - 1);
    args->indices.strides[0] = tokens * args->indices.strides[1] + far_stride(args->batches - 1);
    args->topk_length.strides[1] = far_stride(tokens - 1);
    args->topk_length.strides[0] =
        tokens * args->topk_length.strides[1] + far_stride(args->batches - 1);
    args->lse.strides[2] = head;
    args->lse.strides[1] = token;
    args->lse.strides[0] = batch;
    memcpy(args->max_logits.strides, args->lse.strides, sizeof args->lse.strides);
}

static size_t extent(int64_t batches, int64_t batch_stride, int64_t count, int64_t stride,
                     int64_t heads, int64_t head_stride, int64_t last) {
    if (batches <= 0 || count <= 0)
        return 0;
    return (size_t)((batches - 1) * batch_stride + (count - 1) * stride +
                    (heads - 1) * head_stride + last);
}

static void set_extents(struct smelt__problem *problem) {
    smelt_sparse_attn_args a = problem->args;
    int64_t heads = problem->spec.heads;
    smelt__sparse_attn_resolve_strides(&problem->spec, &a);
    problem->q_elements = extent(a.batches, a.q.strides[0], a.tokens, a.q.strides[1], heads,
                                 a.q.strides[2], problem->spec.dqk);
    problem->kv_elements =
        extent(a.batches, a.kv.strides[0], a.rows, a.kv.strides[1], 1, 0, problem->spec.dqk);
    problem->indices_elements =
        extent(a.batches, a.indices.strides[0], a.tokens, a.indices.strides[1], 1, 0, a.width);
    if (problem->options.topk_length)
        problem->topk_length_elements = extent(a.batches, a.topk_length.strides[0], a.tokens,
                                               a.topk_length.strides[1], 1, 0, 1);
    problem->out_elements = extent(a.batches, a.out.strides[0], a.tokens, a.out.strides[1], heads,
                                   a.out.strides[2], problem->spec.dv);
    problem->lse_elements =
        extent(a.batches, a.lse.strides[0], a.tokens, a.lse.strides[1], heads, a.lse.strides[2], 1);
}

/* ---- tensors --------------------------------------------------------------------------------- */

struct fill {
    struct smelt__problem *problem;
    smelt_sparse_attn_args args; /* strides resolved */
    uint16_t normals[NORMALS];   /* quantiles of the normal distribution as bf16 */
    _Atomic int64_t valid_slots, computed;
};

/* The x with P(X < x) = p, by bisection. */
static double normal_quantile(double p) {
    double low = -8, high = 8;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (erfc(-middle / sqrt(2.0)) / 2 < p)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void fill_row(const struct fill *fill, uint64_t stream, uint64_t row, uint16_t *to,
                     int count) {
    struct smelt__random random = smelt__random_at(fill->problem->options.seed, stream, row);
    for (int i = 0; i < count;) {
        uint64_t bits = smelt__random_next(&random);
        for (int k = 0; k < 64 / NORMAL_BITS && i < count; k++, bits >>= NORMAL_BITS)
            to[i++] = fill->normals[bits & (NORMALS - 1)];
    }
}

/* Spiky heads: scores are multiplied by 1, 8 or 40, and all of a head's moved by 110 or -110
 * through the last column, where every key holds 8. In every second query they are not multiplied
 * but rise from the table's first row to its last by 1000, in every second head fall, by as much or
 * by 128, through the column before, where keys hold their place in the table: key blocks in order
 * each move the maximum, or leave it far above, or in long lists a little, and all of them together
 * by more than fp32's exponents reach. */
static const float SPIKE_KEY = 8.0F, SPIKE_SHIFT = 110.0F, SPIKE_RISE = 1000.0F,
                   SPIKE_SLOW_FALL = 128.0F;

static void make_spiky(const struct fill *fill, uint64_t row, uint16_t *q) {
    static const float factors[] = {1.0F, 8.0F, 40.0F};
    int dqk = fill->problem->spec.dqk, rises = row / (uint64_t)fill->problem->spec.heads % 2 == 1;
    struct smelt__random random = smelt__random_at(fill->problem->options.seed, STREAM_Q, ~row);
    float factor = rises ? 1.0F : factors[smelt__random_below(&random, 3)];
    float shift = SPIKE_SHIFT / (SPIKE_KEY * fill->args.scale);
    for (int d = 0; d < dqk; d++)
        q[d] = smelt__bf16_from_float(factor * smelt__bf16_to_float(q[d]));
    q[dqk - 1] = smelt__bf16_from_float(smelt__random_next(&random) & 1 ? shift : -shift);
    float rise = row % 2 == 0 ? SPIKE_RISE : row % 4 == 1 ? -SPIKE_RISE : -SPIKE_SLOW_FALL;
    q[dqk - 2] = smelt__bf16_from_float(rises ? rise / fill->args.scale : 0.0F);
}

static void fill_q(void *user, int64_t begin, int64_t end) {
    struct fill *fill = user;
    const smelt_sparse_attn_args *args = &fill->args;
    int heads = fill->problem->spec.heads;
    for (int64_t row = begin; row < end; row++) {
        int64_t query = row / heads, head = row % heads;
        uint16_t *to = fill->problem->q + query / args->tokens * args->q.strides[0] +
                       query % args->tokens * args->q.strides[1] + head * args->q.strides[2];
        fill_row(fill, STREAM_Q, (uint64_t)row, to, fill->problem->spec.dqk);
        if (fill->problem->options.spiky)
            make_spiky(fill, (uint64_t)row, to);
    }
}

static void fill_kv(void *user, int64_t begin, int64_t end) {
    struct fill *fill = user;
    const smelt_sparse_attn_args *args = &fill->args;
    int dqk = fill->problem->spec.dqk;
    for (int64_t row = begin; row < end; row++) {
        int64_t number = row % args->rows;
        uint16_t *to = fill->problem->kv + row / args->rows * args->kv.strides[0] +
                       number * args->kv.strides[1];
        fill_row(fill, STREAM_KV, (uint64_t)row, to, dqk);
        if (fill->problem->options.spiky) {
            to[dqk - 1] = smelt__bf16_from_float(SPIKE_KEY);
            to[dqk - 2] = smelt__bf16_from_float((float)number / (float)args->rows);
        }
        if (smelt__lists_avoids(&fill->problem->options, number))
            memset(to, 0xff, (size_t)dqk * sizeof *to); /* NaN */
    }
}

static void fill_indices(void *user, int64_t begin, int64_t end) {
    struct fill *fill = user;
    const smelt_sparse_attn_args *args = &fill->args;
    for (int64_t query = begin; query < end; query++) {
        int64_t batch = query / args->tokens, token = query % args->tokens;
        int32_t *to = fill->problem->indices + batch * args->indices.strides[0] +
                      token * args->indices.strides[1];
        int64_t count = smelt__lists_make(&fill->problem->options, query, to);
        int32_t *length = NULL;
        if (fill->problem->topk_length)
            length = fill->problem->topk_length + batch * args->topk_length.strides[0] +
                     token * args->topk_length.strides[1];
        if (length && smelt__lists_counted(&fill->problem->options))
            *length = (int32_t)count;
        else if (length)
            *length = smelt__lists_length(&fill->problem->options, query);
    }
}

static void count_slots(void *user, int64_t begin, int64_t end) {
    struct fill *fill = user;
    int64_t slots = 0, computed = 0;
    for (int64_t query = begin; query < end; query++) {
        if (fill->problem->listed && !fill->problem->listed[query])
            continue;
        slots += smelt__problem_valid_slots(fill->problem, query);
        computed++;
    }
    atomic_fetch_add(&fill->valid_slots, slots);
    atomic_fetch_add(&fill->computed, computed);
}

int64_t smelt__problem_valid_slots(const struct smelt__problem *problem, int64_t query) {
    return smelt__sparse_attn_valid_rows(&problem->spec, &problem->args, query, NULL);
}

/* Normal values, and where there are heads enough a sink that is none, one that takes all and one
 * whose exponential is subnormal. */
static void fill_sink(const struct fill *fill) {
    uint64_t seed = fill->problem->options.seed;
    uint64_t heads = (uint64_t)fill->problem->spec.heads;
    struct smelt__random random = smelt__random_at(seed, STREAM_SINK, 0);
    for (uint64_t head = 0; head < heads; head++) {
        uint64_t bits = smelt__random_next(&random);
        fill->problem->sink[head] =
            2.0F * smelt__bf16_to_float(fill->normals[bits & (NORMALS - 1)]);
    }
    if (heads >= 3) {
        fill->problem->sink[seed % heads] = -INFINITY;
        fill->problem->sink[(seed + 1) % heads] = INFINITY;
    }
    if (heads >= 4)
        fill->problem->sink[(seed + 2) % heads] = -90.0F;
}

/* ---- query list ------------------------------------------------------------------------------ */

/* Every second query at random, in random order, with entries that are no query among them. */
static int32_t fill_query_list(struct smelt__problem *problem) {
    const struct smelt__problem_options *options = &problem->options;
    int64_t total = options->batches * options->tokens;
    const int32_t strangers[] = {-1, (int32_t)total, INT32_MAX, INT32_MIN};
    struct smelt__random random = smelt__random_at(options->seed, STREAM_QUERIES, 0);
    int32_t count = 0;
    for (int64_t query = 0; query < total; query++) {
        problem->listed[query] = query == 0 || (smelt__random_next(&random) & 1);
        if (problem->listed[query])
            problem->queries[count++] = (int32_t)query;
    }
    for (int k = 0; k < 4; k++)
        problem->queries[count++] = strangers[k];
    for (int32_t i = count - 1; i > 0; i--) {
        int32_t j = (int32_t)smelt__random_below(&random, i + 1);
        int32_t kept = problem->queries[i];
        problem->queries[i] = problem->queries[j];
        problem->queries[j] = kept;
    }
    return count;
}

static int make_query_list(struct smelt__problem *problem) {
    const struct smelt__problem_options *options = &problem->options;
    int64_t total = options->batches * options->tokens;
    problem->listed = calloc((size_t)total + 1, 1);
    problem->queries = malloc((size_t)(total + 4) * sizeof *problem->queries);
    problem->query_count = malloc(sizeof *problem->query_count);
    if (!problem->listed || !problem->queries || !problem->query_count)
        return -1;
    int32_t count = fill_query_list(problem);
    int64_t capacity = count;
    *problem->query_count = count;
    if (options->query_list == SMELT__QUERY_LIST_PARTIAL) {
        for (int64_t query = 0; query < total; query++)
            if (!problem->listed[query])
                problem->queries[capacity++] = (int32_t)query;
    } else if (options->query_list == SMELT__QUERY_LIST_CLAMPED) {
        *problem->query_count = count + 1000;
    } else if (options->query_list == SMELT__QUERY_LIST_EMPTY) {
        *problem->query_count = -5;
        memset(problem->listed, 0, (size_t)total);
    }
    problem->args.queries.data = problem->queries;
    problem->args.query_capacity = capacity;
    if (options->query_list != SMELT__QUERY_LIST_WHOLE)
        problem->args.query_count.data = problem->query_count;
    return 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

void *smelt__host_allocate(size_t bytes, int far) {
    if (!far)
        return malloc(bytes);
    void *pointer = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return pointer == MAP_FAILED ? NULL : pointer;
}

void smelt__host_free(void *pointer, size_t bytes, int far) {
    if (pointer && far)
        munmap(pointer, bytes);
    else
        free(pointer);
}

/* Memory with every byte 0xff where there are gaps; NULL for nothing. Far gaps stay zero: the
 * emulator watches them. */
static int allocate(const struct smelt__problem_options *options, void **pointer, size_t elements,
                    size_t element_bytes) {
    *pointer = NULL;
    if (elements == 0)
        return 0;
    *pointer = smelt__host_allocate(elements * element_bytes, options->far);
    if (*pointer && options->strided && !options->far)
        memset(*pointer, GAP & 0xff, elements * element_bytes);
    return *pointer ? 0 : -1;
}

static int allocate_all(struct smelt__problem *problem) {
    const struct smelt__problem_options *options = &problem->options;
    int failed = 0;
    void *q, *kv, *indices, *lengths;
    failed |= allocate(options, &q, problem->q_elements, sizeof *problem->q);
    failed |= allocate(options, &kv, problem->kv_elements, sizeof *problem->kv);
    failed |= allocate(options, &indices, problem->indices_elements, sizeof *problem->indices);
    failed |=
        allocate(options, &lengths, problem->topk_length_elements, sizeof *problem->topk_length);
    if (problem->spec.sink) {
        problem->sink = malloc((size_t)problem->spec.heads * sizeof *problem->sink);
        failed |= problem->sink == NULL;
    }
    problem->q = q;
    problem->kv = kv;
    problem->indices = indices;
    problem->topk_length = lengths;
    problem->args.q.data = q;
    problem->args.kv.data = kv;
    problem->args.indices.data = indices;
    problem->args.topk_length.data = lengths;
    problem->args.sink.data = problem->sink;
    return failed;
}

static int fill_all(struct smelt__problem *problem) {
    struct fill *fill = malloc(sizeof *fill);
    if (!fill)
        return -1;
    fill->problem = problem;
    fill->args = problem->args;
    smelt__sparse_attn_resolve_strides(&problem->spec, &fill->args);
    atomic_init(&fill->valid_slots, 0);
    atomic_init(&fill->computed, 0);
    for (int i = 0; i < NORMALS; i++)
        fill->normals[i] = smelt__bf16_from_float((float)normal_quantile((i + 0.5) / NORMALS));
    int64_t queries = problem->args.batches * problem->args.tokens;
    smelt__parallel_for(queries * problem->spec.heads, 256, fill_q, fill);
    smelt__parallel_for(problem->args.batches * problem->args.rows, 256, fill_kv, fill);
    smelt__parallel_for(queries, 16, fill_indices, fill);
    if (problem->sink)
        fill_sink(fill);
    int failed = problem->options.query_list ? make_query_list(problem) : 0;
    if (!failed)
        smelt__parallel_for(queries, 64, count_slots, fill);
    problem->valid_slots = atomic_load(&fill->valid_slots);
    problem->computed = atomic_load(&fill->computed);
    free(fill);
    return failed;
}

int smelt__problem_create(struct smelt__problem *problem, const smelt_sparse_attn_spec *spec,
                          const struct smelt__problem_options *options) {
    memset(problem, 0, sizeof *problem);
    problem->spec = *spec;
    problem->spec.knobs = NULL;
    problem->options = *options;
    smelt__problem_defaults(spec, &problem->options);
    problem->args = (smelt_sparse_attn_args)SMELT_SPARSE_ATTN_ARGS_INIT;
    problem->args.batches = problem->options.batches;
    problem->args.tokens = problem->options.tokens;
    problem->args.rows = problem->options.rows;
    problem->args.width = problem->options.width;
    problem->args.scale = problem->options.scale;
    if (problem->options.far)
        set_far_strides(problem);
    else if (problem->options.strided)
        set_strides(problem);
    set_extents(problem);
    if (allocate_all(problem) == 0 && fill_all(problem) == 0)
        return 0;
    smelt__problem_destroy(problem);
    return -1;
}

void smelt__problem_destroy(struct smelt__problem *problem) {
    const int far = problem->options.far;
    smelt__host_free(problem->q, problem->q_elements * sizeof *problem->q, far);
    smelt__host_free(problem->kv, problem->kv_elements * sizeof *problem->kv, far);
    smelt__host_free(problem->indices, problem->indices_elements * sizeof *problem->indices, far);
    smelt__host_free(problem->topk_length,
                     problem->topk_length_elements * sizeof *problem->topk_length, far);
    free(problem->queries);
    free(problem->query_count);
    free(problem->sink);
    free(problem->listed);
    memset(problem, 0, sizeof *problem);
}
