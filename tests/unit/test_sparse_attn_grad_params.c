/* A backward call that is as the one before it but for its addresses: what it is found legal by,
 * and that its kernels get what they would of a call looked through from the beginning. No device:
 * the pointers are never followed, nothing is launched. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ops/sparse_attn_grad_params.h"
#include "ops/sparse_attn_partition.h"
#include "random.h"
#include "runtime/context.h"
#include "smelt/status.h"

enum { HEADS = 16, DQK = 128, DV = 64, TOPK = 48, MOST_CHAIN = 16, CALLS = 20000 };

static const int bounds[] = {16, TOPK};
static smelt_context context;
static const struct smelt__operator operator= {.context = &context, .passes = SMELT_PASS_BACKWARD};
static const struct smelt__kernel kernel = {.threads = 256,
                                            .blocks_per_item = 1,
                                            .most_blocks = 264,
                                            .resident_blocks = 132,
                                            .multiprocessor_blocks = 1,
                                            .item = "group"};
static const struct smelt__kernel *chain[MOST_CHAIN];

/* Kinds of operators: bits. */
enum { SINK = 1, BUCKETS = 2, DETERMINISTIC = 4, GROUPS = 8, KINDS = 16 };

static struct smelt__sparse_attn_backward backward_of(int kind) {
    const int deterministic = !!(kind & DETERMINISTIC);
    for (int i = 0; i < MOST_CHAIN; i++)
        chain[i] = &kernel;
    return (struct smelt__sparse_attn_backward){
        .kernels = &operator,
        .shape = {HEADS, DQK, DV, TOPK, !!(kind & SINK), kind & BUCKETS ? 2 : 0},
        .bounds = bounds,
        .chain = chain,
        .deterministic = deterministic,
        .group_queries = kind & GROUPS ? 4 : 1,
        .query_rows = 16,
        .head_blocks = 1,
        .block_heads = kind & GROUPS ? 64 : 16,
        .sides = 1,
        .slice_blocks = deterministic ? 0 : 1,
        .sums_beside = deterministic ? 16 : 0,
        .main_blocks = 132,
    };
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* An address that is only looked at, far from all others. */
static void *address(int64_t number, uintptr_t offset) {
    return (void *)(((uintptr_t)number << 44) + offset); // NOLINT: never followed
}

/* Tensors begin at legal places, each time at others. */
static void place_tensors(struct random *random, smelt_sparse_attn_grad_args *args) {
    const struct smelt__tensor_table *table = &smelt__sparse_attn_grad_tensors;
    for (int i = 0; i < table->count; i++) {
        smelt_tensor *const tensor = smelt__tensor_of(&table->rows[i], args);
        if (tensor->data)
            tensor->data = address(i + 1, 16 * (uintptr_t)random_below(random, 64));
    }
    args->workspace = address(30, 256 * (uintptr_t)random_below(random, 64));
    if (args->partition)
        args->partition = address(31, 16 * (uintptr_t)random_below(random, 64));
}

static smelt_sparse_attn_grad_args draw_call(struct random *random,
                                             const struct smelt__sparse_attn_backward *backward) {
    smelt_sparse_attn_grad_args args = SMELT_SPARSE_ATTN_GRAD_ARGS_INIT;
    args.batches = random_below(random, 3);
    args.tokens = 1 + random_below(random, 300);
    args.rows = 1 + random_below(random, 40000);
    args.width = 1 + random_below(random, TOPK);
    args.scale = 0.25F;
    args.free_multiprocessors = random_below(random, 3) ? 0 : 8;
    args.q.data = args.kv.data = args.indices.data = address(1, 0);
    args.out.data = args.lse.data = args.grad_out.data = address(1, 0);
    args.dq.data = address(1, 0);
    *(random_below(random, 2) ? &args.dkv.data : &args.dkv_sum.data) = address(1, 0);
    if (backward->shape.sink) {
        args.sink.data = address(1, 0);
        args.dsink.data = random_below(random, 2) ? address(1, 0) : NULL;
    }
    if (random_below(random, 3) == 0) {
        args.queries.data = address(1, 0);
        args.query_capacity = 1 + random_below(random, 200);
    }
    if (random_below(random, 3) == 0)
        args.topk_length.data = address(1, 0);
    if (random_below(random, 3) == 0) {
        args.q.strides[2] = 2 * DQK;
        args.q.strides[1] = 2 * DQK * HEADS;
        args.q.strides[0] = args.q.strides[1] * args.tokens;
    }
    if (backward->shape.buckets && random_below(random, 2)) {
        args.partition = address(1, 0);
        args.partition_bytes =
            smelt__partition_layout(args.queries.data
                                        ? args.query_capacity
                                        : args.tokens * (args.batches ? args.batches : 1),
                                    backward->shape.buckets)
                .bytes;
    }
    place_tensors(random, &args);
    assert_int_equal(smelt__sparse_attn_backward_bytes(backward, &args, &args.workspace_bytes),
                     SMELT_OK);
    return args;
}

/* Something of a call, which may be legal still. */
static void change(struct random *random, smelt_sparse_attn_grad_args *args) {
    const struct smelt__tensor_table *table = &smelt__sparse_attn_grad_tensors;
    const struct smelt__tensor_row *row = &table->rows[random_below(random, table->count)];
    smelt_tensor *const tensor = smelt__tensor_of(row, args),
                        *const other = smelt__tensor_of(
                            &table->rows[random_below(random, table->count)], args);
    int64_t word;
    size_t at;
    switch (random_below(random, 9)) {
    case 0:
        tensor->data = NULL;
        break;
    case 1: /* of another alignment */
        tensor->data = (char *)tensor->data + (1 << random_below(random, 5));
        break;
    case 2: /* in another's place, or near it */
        tensor->data = (char *)other->data + 16 * random_below(random, 3);
        break;
    case 3:
        tensor->strides[random_below(random, SMELT_TENSOR_STRIDES)] +=
            (random_below(random, 3) - 1) * 8;
        break;
    case 4:
        args->workspace = (char *)args->workspace + (16 << random_below(random, 6));
        break;
    case 5:
        args->workspace = other->data;
        break;
    case 6: /* any word: extents, sizes, limits, addresses */
        at = 8 * (size_t)random_below(random, (int)(sizeof *args / 8));
        memcpy(&word, (char *)args + at, sizeof word);
        word += random_below(random, 3) - 1;
        memcpy((char *)args + at, &word, sizeof word);
        break;
    case 7:
        tensor->data = address(40, 0);
        break;
    default:
        args->partition = args->partition ? NULL : other->data;
    }
}

/* Strides of a tensor that is not there are not looked at, and reach params that nobody reads. */
static void clear_absent(smelt_sparse_attn_grad_args *args) {
    const struct smelt__tensor_table *table = &smelt__sparse_attn_grad_tensors;
    for (int i = 0; i < table->count; i++) {
        smelt_tensor *const tensor = smelt__tensor_of(&table->rows[i], args);
        if (!tensor->data)
            memset(tensor->strides, 0, sizeof tensor->strides);
    }
}

/* ---- the test -------------------------------------------------------------------------------- */

#define SAME(field) assert_memory_equal(&(one)->field, &(two)->field, sizeof(one)->field)

static void compare(const struct smelt__grad_prepared *one,
                    const struct smelt__grad_prepared *two) {
    SAME(layout);
    SAME(grid);
    SAME(zeros);
    SAME(lists);
    SAME(rows);
    SAME(main);
    SAME(finish);
    SAME(partition);
    SAME(dkv.shape);
    SAME(dkv.workspace);
}

/* Calls one after the other: one that is found prepared is legal, and its kernels get the same as
 * when it is prepared anew. */
static void one_kind(struct random *random, int kind, int counts[3]) {
    static struct smelt__grad_prepared kept, anew;
    const struct smelt__sparse_attn_backward backward = backward_of(kind);
    smelt_sparse_attn_grad_args good = draw_call(random, &backward);
    memset(&kept, 0, sizeof kept);
    for (int i = 0; i < CALLS / KINDS; i++) {
        smelt_sparse_attn_grad_args args = good;
        const int way = random_below(random, 8);
        if (way == 0)
            args = draw_call(random, &backward);
        else if (way < 4)
            place_tensors(random, &args);
        else
            change(random, &args);
        clear_absent(&args);
        memset(&anew, 0, sizeof anew);
        const int again = smelt__grad_is_prepared(&kept, &args);
        const smelt_status status = smelt__grad_prepare(&backward, &args, &anew);
        if (again && status != SMELT_OK)
            fail_msg("found legal: %s", smelt_last_error());
        counts[status != SMELT_OK ? 2 : again]++;
        if (way > 0 && way < 4 && kept.args.size && kept.checked.count)
            assert_true(again);
        if (!again) {
            memset(&kept, 0, sizeof kept);
            assert_int_equal(smelt__grad_prepare(&backward, &args, &kept), status);
        }
        if (status != SMELT_OK)
            continue;
        good = args;
        assert_int_equal(smelt__grad_point(&backward, &args, &kept), SMELT_OK);
        assert_int_equal(smelt__grad_point(&backward, &args, &anew), SMELT_OK);
        compare(&kept, &anew);
    }
}

static void calls_again(void **state) {
    (void)state;
    struct random random = random_begin("calls_again");
    int counts[3] = {0};
    for (int kind = 0; kind < KINDS; kind++)
        one_kind(&random, kind, counts);
    printf("%d prepared, %d as the one before, %d refused\n", counts[0], counts[1], counts[2]);
    for (int i = 0; i < 3; i++)
        assert_true(counts[i] > CALLS / 20);
}

/* Boxes of tensor maps are prepared, too, and refused by name. */
static void boxes(void **state) {
    struct smelt__sparse_attn_backward backward = backward_of(0);
    struct random random = random_begin("boxes");
    struct smelt__grad_prepared prepared;
    smelt_sparse_attn_grad_args args = draw_call(&random, &backward);
    (void)state;
    backward.tensor_maps = 1;
    memset(args.q.strides, 0, sizeof args.q.strides);
    args.batches = 1, args.tokens = 3; /* more than drawn, perhaps: tensors have other sizes */
    place_tensors(&random, &args);
    assert_int_equal(smelt__sparse_attn_backward_bytes(&backward, &args, &args.workspace_bytes),
                     SMELT_OK);
    assert_int_equal(smelt__grad_prepare(&backward, &args, &prepared), SMELT_OK);
    assert_int_equal(prepared.q_box.extents[0], DQK);
    assert_int_equal(prepared.q_box.strides[1], 2 * DQK);
    assert_int_equal(prepared.q_box.strides[2], 2 * DQK * HEADS);
    assert_int_equal(prepared.grad_out_box.extents[0], DV);
    assert_int_equal(prepared.grad_out_box.extents[2], 3);
    args.q.strides[0] = INT64_C(3) << 39;
    args.q.strides[1] = INT64_C(1) << 39;
    args.q.strides[2] = DQK;
    args.kv.data = address(200, 0); /* what lies behind q is far */
    assert_int_equal(smelt__grad_prepare(&backward, &args, &prepared),
                     SMELT_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(smelt_last_error(), "q.strides[1]"));
    assert_false(smelt__grad_is_prepared(&prepared, &args));
}

/* A workspace that is said to reach beyond the end of memory has everything behind it. */
static void endless_workspace(void **state) {
    const struct smelt__sparse_attn_backward backward = backward_of(0);
    struct random random = random_begin("endless_workspace");
    struct smelt__grad_prepared prepared;
    smelt_sparse_attn_grad_args args = draw_call(&random, &backward);
    (void)state;
    args.workspace = address(0x8000, 0), args.workspace_bytes = (size_t)1 << 62;
    assert_int_equal(smelt__grad_prepare(&backward, &args, &prepared), SMELT_OK);
    assert_true(smelt__grad_is_prepared(&prepared, &args));
    args.workspace = address(0xE0000, 0), args.dq.data = address(0xF0000, 0);
    assert_false(smelt__grad_is_prepared(&prepared, &args));
    args.workspace = address(0xF8000, 0);
    assert_true(smelt__grad_is_prepared(&prepared, &args));
}

/* A struct of an earlier version, which is shorter, is prepared each time. */
static void other_versions(void **state) {
    const struct smelt__sparse_attn_backward backward = backward_of(0);
    struct random random = random_begin("other_versions");
    struct smelt__grad_prepared prepared = {0};
    smelt_sparse_attn_grad_args longer[2] = {draw_call(&random, &backward)};
    (void)state;
    assert_false(smelt__grad_is_prepared(&prepared, &longer[0]));
    longer[0].size += 8;
    assert_int_equal(smelt__grad_prepare(&backward, longer, &prepared), SMELT_OK);
    assert_int_equal(prepared.args.size, sizeof prepared.args);
    assert_false(smelt__grad_is_prepared(&prepared, longer));
    longer[0].size -= 8;
    assert_true(smelt__grad_is_prepared(&prepared, longer));
    assert_false(smelt__grad_is_prepared(&prepared, NULL));
}

/* ---- several threads ------------------------------------------------------------------------- */

enum { THREADS = 6, THREAD_CALLS = 3000 };

/* What this thread's kernels must get. */
static _Thread_local const smelt_sparse_attn_grad_args *expected;
static _Thread_local int launches;
static atomic_int wrong;

static CUresult get_current(CUcontext *current) {
    *current = context.cuda;
    return CUDA_SUCCESS;
}

static CUresult get_id(CUcontext cuda, unsigned long long *id) {
    (void)cuda;
    *id = context.cuda_id;
    return CUDA_SUCCESS;
}

/* The third kernel is the main one, the fourth finishes. */
static CUresult look_at_launch(const CUlaunchConfig *config, CUfunction function, void **parameters,
                               void **extra) {
    (void)config, (void)function, (void)extra;
    const int number = launches++;
    sched_yield(); /* to a call that another thread is in the middle of */
    if (number == 0) {
        const struct sparse_attn_bwd_lists_params *lists = parameters[0];
        wrong +=
            lists->work.indices != expected->indices.data || lists->work.tokens != expected->tokens;
    } else if (number == 2) {
        const struct sparse_attn_bwd_params *main = parameters[0];
        wrong += main->q != expected->q.data || main->dq != expected->dq.data ||
                 main->tokens != expected->tokens;
    } else if (number == 3) {
        const struct sparse_attn_bwd_finish_params *finish = parameters[0];
        wrong += finish->dkv != expected->dkv.data || finish->rows != expected->rows;
    }
    return CUDA_SUCCESS;
}

struct caller {
    const struct smelt__sparse_attn_backward *backward;
    int number;
    smelt_sparse_attn_grad_args args;
};

static void *call_often(void *user) {
    struct caller *caller = user;
    struct random random = {(uint64_t)caller->number};
    smelt_sparse_attn_grad_args *const args = &caller->args;
    *args = (smelt_sparse_attn_grad_args)SMELT_SPARSE_ATTN_GRAD_ARGS_INIT;
    args->rows = 100 + caller->number;
    args->width = TOPK;
    args->scale = 0.25F;
    args->q.data = args->kv.data = args->indices.data = address(1, 0);
    args->out.data = args->lse.data = args->grad_out.data = address(1, 0);
    args->dq.data = args->dkv.data = address(1, 0);
    args->workspace_bytes = 1 << 20;
    expected = args;
    for (int i = 0; i < THREAD_CALLS; i++) {
        args->tokens = 1 + i / 8 % 2 * caller->number;
        place_tensors(&random, args);
        launches = 0;
        wrong += smelt__sparse_attn_backward_launch(caller->backward, args, NULL) != SMELT_OK;
        wrong += launches != 4;
    }
    return NULL;
}

/* Calls of one operator at the same time: each gets its own. */
static void threads(void **state) {
    static const struct smelt__driver driver = {
        .cuCtxGetCurrent = get_current, .cuCtxGetId = get_id, .cuLaunchKernelEx = look_at_launch};
    struct smelt__sparse_attn_backward backward = backward_of(0);
    pthread_t running[THREADS];
    struct caller callers[THREADS];
    (void)state;
    context.driver = &driver;
    smelt__sparse_attn_backward_keep(&backward);
    for (int i = 0; i < THREADS; i++) {
        callers[i] = (struct caller){.backward = &backward, .number = i + 1};
        assert_int_equal(pthread_create(&running[i], NULL, call_often, &callers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(running[i], NULL), 0);
    smelt__sparse_attn_backward_free(&backward);
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls_again), cmocka_unit_test(boxes),
                                       cmocka_unit_test(endless_workspace),
                                       cmocka_unit_test(other_versions), cmocka_unit_test(threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
