/* The operators' structs: each call of each operator that takes one, and what get_kernel_info
 * fills. An operator is a text that makes it, a function that fills its arguments, and a row below.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "subjects.h"

enum { WORKSPACE = 64 << 20, MOST_KERNELS = 16, MOST_TEXT = 160 };

static smelt_context *context;

/* The fake driver's fills may write to it. */
static _Alignas(256) unsigned char workspace[WORKSPACE];

/* ---- the structs, filled --------------------------------------------------------------------- */

#define SHAPE "heads=64,dqk=576,dv=512,topk=2048"
static const char text_sparse_attn[] = "sparse_attn:" SHAPE ",passes=both";
static const char text_sparse_scores[] = "sparse_scores:" SHAPE;
static const char text_indexer_windows[] = "indexer_windows";
static const char text_indexer_quantize[] = "indexer_quantize:dim=128";
static const char text_indexer_logits[] = "indexer_logits:heads=32,dim=128,dtype=bf16";
static const char text_indexer_clean[] = "indexer_clean";
static const char text_indexer_topk[] = "indexer_topk:heads=32,dim=128,dtype=bf16,topk=2048";
static const char text_topk_select[] = "topk_select:topk=2048";
static const char text_indexer_scores[] = "indexer_scores:heads=64,dim=128,topk=2048";
static const char text_indexer_loss[] = "indexer_loss:topk=2048";
static const char text_indexer_bwd[] = "indexer_bwd:heads=64,dim=128,topk=2048";

/* Device memory, which nobody follows. */
static void *address(int number) {
    return (void *)((uintptr_t)number << 32); // NOLINT: as said
}

/* Of an operator whose args have a workspace. */
#define FILL_WORKSPACE(args) ((args)->workspace = workspace, (args)->workspace_bytes = WORKSPACE)

static void fill_sparse_attn(void *memory) {
    smelt_sparse_attn_args *args = memory;
    args->tokens = 4, args->rows = 100, args->width = 2048, args->scale = 0.25F;
    args->q.data = address(1), args->kv.data = address(2), args->indices.data = address(3);
    args->out.data = address(4), args->lse.data = address(5);
}

static void fill_sparse_attn_grad(void *memory) {
    smelt_sparse_attn_grad_args *args = memory;
    args->tokens = 4, args->rows = 100, args->width = 2048, args->scale = 0.25F;
    args->q.data = address(1), args->kv.data = address(2), args->indices.data = address(3);
    args->out.data = address(4), args->lse.data = address(5), args->grad_out.data = address(6);
    args->dq.data = address(7), args->dkv.data = address(8);
    FILL_WORKSPACE(args);
}

static void fill_sparse_scores(void *memory) {
    smelt_sparse_scores_args *args = memory;
    args->tokens = 4, args->rows = 100, args->width = 2048, args->scale = 0.25F;
    args->q.data = address(1), args->kv.data = address(2), args->indices.data = address(3);
    args->lse.data = address(4), args->target.data = address(5);
}

static void fill_indexer_windows(void *memory) {
    smelt_indexer_windows_args *args = memory;
    args->tokens = 4, args->rows = 100, args->documents = 2;
    args->cu_seqlens.data = address(1);
    args->window_begin.data = address(2), args->window_end.data = address(3);
}

static void fill_indexer_quantize(void *memory) {
    smelt_indexer_quantize_args *args = memory;
    args->rows = 100;
    args->x.data = address(1), args->y.data = address(2), args->scale.data = address(3);
}

static void fill_indexer_logits(void *memory) {
    smelt_indexer_logits_args *args = memory;
    args->tokens = 4, args->rows = 100;
    args->q.data = address(1), args->k.data = address(2), args->weights.data = address(3);
    args->window_begin.data = address(4), args->window_end.data = address(5);
    args->logits.data = address(6);
}

static void fill_indexer_clean(void *memory) {
    smelt_indexer_clean_args *args = memory;
    args->tokens = 4, args->rows = 100;
    args->window_begin.data = address(1), args->window_end.data = address(2);
    args->logits.data = address(3);
}

static void fill_indexer_topk(void *memory) {
    smelt_indexer_topk_args *args = memory;
    args->tokens = 4, args->rows = 100;
    args->q.data = address(1), args->k.data = address(2), args->weights.data = address(3);
    args->window_begin.data = address(4), args->window_end.data = address(5);
    args->indices.data = address(6);
    FILL_WORKSPACE(args);
}

static void fill_topk_select(void *memory) {
    smelt_topk_select_args *args = memory;
    args->tokens = 1, args->rows = 1 << 20; /* one that needs workspace */
    args->logits.data = address(1), args->indices.data = address(2);
    FILL_WORKSPACE(args);
}

static void fill_indexer_scores(void *memory) {
    smelt_indexer_scores_args *args = memory;
    args->tokens = 4, args->rows = 100, args->width = 2048;
    args->q.data = address(1), args->k.data = address(2), args->weights.data = address(3);
    args->indices.data = address(4), args->logits.data = address(5);
}

static void fill_indexer_loss(void *memory) {
    smelt_indexer_loss_args *args = memory;
    args->tokens = 4, args->rows = 100, args->width = 2048, args->query_weight = 1;
    args->logits.data = address(1), args->target.data = address(2);
    args->indices.data = address(3), args->loss.data = address(4);
    FILL_WORKSPACE(args);
}

static void fill_indexer_bwd(void *memory) {
    smelt_indexer_bwd_args *args = memory;
    args->tokens = 4, args->rows = 100, args->width = 2048;
    args->q.data = address(1), args->k.data = address(2), args->weights.data = address(3);
    args->indices.data = address(4), args->grad.data = address(5), args->dq.data = address(6);
    args->dweights.data = address(7), args->dk.data = address(8);
    FILL_WORKSPACE(args);
}

/* ---- the calls ------------------------------------------------------------------------------- */

/* OP: the stem in capitals. */
#define SPEC_CALLS(op, OP)                                                                         \
    static smelt_##op *op;                                                                         \
    static void fill_spec_##op(void *memory) {                                                     \
        smelt_##op##_spec spec = SMELT_##OP##_SPEC_INIT;                                           \
        assert_int_equal(smelt_##op##_spec_parse(text_##op, &spec, NULL), SMELT_OK);               \
        memcpy(memory, &spec, sizeof spec);                                                        \
    }                                                                                              \
    static smelt_status parse_##op(void *memory) {                                                 \
        return smelt_##op##_spec_parse(text_##op, memory, NULL);                                   \
    }                                                                                              \
    static smelt_status print_##op(void *memory) {                                                 \
        char *text;                                                                                \
        const smelt_status status = smelt_##op##_spec_print(memory, &text);                        \
        smelt_free(text);                                                                          \
        return status;                                                                             \
    }                                                                                              \
    static smelt_status support_##op(void *memory) {                                               \
        return smelt_##op##_supported(context, memory, NULL);                                      \
    }                                                                                              \
    static smelt_status create_##op(void *memory) {                                                \
        smelt_##op *made;                                                                          \
        const smelt_status status = smelt_##op##_create(&made, context, memory);                   \
        smelt_##op##_destroy(&made);                                                               \
        return status;                                                                             \
    }                                                                                              \
    static smelt_status make_##op(void) {                                                          \
        smelt_##op##_spec spec = SMELT_##OP##_SPEC_INIT;                                           \
        const smelt_status status = smelt_##op##_spec_parse(text_##op, &spec, NULL);               \
        return status ? status : smelt_##op##_create(&op, context, &spec);                         \
    }                                                                                              \
    static void destroy_##op(void) {                                                               \
        smelt_##op##_destroy(&op);                                                                 \
    }
#define PASS_CALL(op, pass)                                                                        \
    static smelt_status pass##_##op(void *memory) {                                                \
        return smelt_##op##_##pass(op, memory, NULL);                                              \
    }
#define WORKSPACE_CALL(op, pass)                                                                   \
    static smelt_status pass##_workspace_##op(void *memory) {                                      \
        size_t bytes;                                                                              \
        return smelt_##op##_##pass##_workspace(op, memory, &bytes);                                \
    }
/* Of an operator with one pass. */
#define INFO_CALLS(op)                                                                             \
    static smelt_status get_info_##op(int index, smelt_kernel_info *info) {                        \
        return smelt_##op##_get_kernel_info(op, index, info);                                      \
    }                                                                                              \
    static smelt_status get_no_info_##op(smelt_kernel_info *info) {                                \
        return smelt_##op##_get_kernel_info(NULL, 0, info);                                        \
    }                                                                                              \
    static smelt_status info_##op(void *memory) {                                                  \
        return get_info_##op(0, memory);                                                           \
    }
/* Of one with several. */
#define PASS_INFO_CALLS(op, pass, PASS)                                                            \
    static smelt_status get_##pass##_info_##op(int index, smelt_kernel_info *info) {               \
        return smelt_##op##_get_kernel_info(op, PASS, index, info);                                \
    }                                                                                              \
    static smelt_status get_no_##pass##_info_##op(smelt_kernel_info *info) {                       \
        return smelt_##op##_get_kernel_info(NULL, PASS, 0, info);                                  \
    }                                                                                              \
    static smelt_status pass##_info_##op(void *memory) {                                           \
        return get_##pass##_info_##op(0, memory);                                                  \
    }

/* clang-format off */
SPEC_CALLS(sparse_attn, SPARSE_ATTN)
PASS_CALL(sparse_attn, forward) WORKSPACE_CALL(sparse_attn, forward)
PASS_CALL(sparse_attn, backward) WORKSPACE_CALL(sparse_attn, backward)
PASS_INFO_CALLS(sparse_attn, forward, SMELT_PASS_FORWARD)
PASS_INFO_CALLS(sparse_attn, backward, SMELT_PASS_BACKWARD)
SPEC_CALLS(sparse_scores, SPARSE_SCORES) PASS_CALL(sparse_scores, forward) INFO_CALLS(sparse_scores)
SPEC_CALLS(indexer_windows, INDEXER_WINDOWS) PASS_CALL(indexer_windows, forward) INFO_CALLS(indexer_windows)
SPEC_CALLS(indexer_quantize, INDEXER_QUANTIZE) PASS_CALL(indexer_quantize, forward) INFO_CALLS(indexer_quantize)
SPEC_CALLS(indexer_logits, INDEXER_LOGITS) PASS_CALL(indexer_logits, forward) INFO_CALLS(indexer_logits)
SPEC_CALLS(indexer_clean, INDEXER_CLEAN) PASS_CALL(indexer_clean, forward) INFO_CALLS(indexer_clean)
SPEC_CALLS(indexer_topk, INDEXER_TOPK) PASS_CALL(indexer_topk, forward) INFO_CALLS(indexer_topk)
WORKSPACE_CALL(indexer_topk, forward)
SPEC_CALLS(topk_select, TOPK_SELECT) PASS_CALL(topk_select, forward) INFO_CALLS(topk_select)
WORKSPACE_CALL(topk_select, forward)
SPEC_CALLS(indexer_scores, INDEXER_SCORES) PASS_CALL(indexer_scores, forward) INFO_CALLS(indexer_scores)
SPEC_CALLS(indexer_loss, INDEXER_LOSS) PASS_CALL(indexer_loss, forward) INFO_CALLS(indexer_loss)
WORKSPACE_CALL(indexer_loss, forward)
SPEC_CALLS(indexer_bwd, INDEXER_BWD) PASS_CALL(indexer_bwd, backward) INFO_CALLS(indexer_bwd)
WORKSPACE_CALL(indexer_bwd, backward)

#define INFO(call) SUBJECT(smelt_kernel_info, "info", 0, fill_nothing, call)
#define ARGS(args, fill, call) SUBJECT(args, "args", 1, fill, call)
#define SPEC(op)                                                                                   \
    SUBJECT(smelt_##op##_spec, "spec", 0, fill_nothing, parse_##op),                               \
    SUBJECT(smelt_##op##_spec, "spec", 1, fill_spec_##op, print_##op),                             \
    SUBJECT(smelt_##op##_spec, "spec", 1, fill_spec_##op, support_##op),                           \
    SUBJECT(smelt_##op##_spec, "spec", 1, fill_spec_##op, create_##op)
#define ONE_PASS(op, pass)                                                                         \
    SPEC(op), ARGS(smelt_##op##_args, fill_##op, pass##_##op), INFO(info_##op)
#define WITH_WORKSPACE(op, pass)                                                                   \
    ONE_PASS(op, pass), ARGS(smelt_##op##_args, fill_##op, pass##_workspace_##op)

const struct subject operator_subjects[] = {
    SPEC(sparse_attn), INFO(forward_info_sparse_attn), INFO(backward_info_sparse_attn),
    ARGS(smelt_sparse_attn_args, fill_sparse_attn, forward_sparse_attn),
    ARGS(smelt_sparse_attn_args, fill_sparse_attn, forward_workspace_sparse_attn),
    ARGS(smelt_sparse_attn_grad_args, fill_sparse_attn_grad, backward_sparse_attn),
    ARGS(smelt_sparse_attn_grad_args, fill_sparse_attn_grad, backward_workspace_sparse_attn),
    ONE_PASS(sparse_scores, forward),
    ONE_PASS(indexer_windows, forward),
    ONE_PASS(indexer_quantize, forward),
    ONE_PASS(indexer_logits, forward),
    ONE_PASS(indexer_clean, forward),
    WITH_WORKSPACE(indexer_topk, forward),
    WITH_WORKSPACE(topk_select, forward),
    ONE_PASS(indexer_scores, forward),
    WITH_WORKSPACE(indexer_loss, forward),
    WITH_WORKSPACE(indexer_bwd, backward),
};
/* clang-format on */

const int operator_subject_count = sizeof operator_subjects / sizeof operator_subjects[0];

/* ---- all operators --------------------------------------------------------------------------- */

/* One operator's pass. */
struct pass {
    const char *text; /* an operator that has this pass alone */
    smelt_status (*make)(void);
    void (*destroy)(void);
    smelt_status (*get_info)(int index, smelt_kernel_info *info);
    smelt_status (*get_no_info)(smelt_kernel_info *info); /* of an operator that is NULL */
};

#define PASS(op)                                                                                   \
    { text_##op, make_##op, destroy_##op, get_info_##op, get_no_info_##op }

static const struct pass passes[] = {
    {"sparse_attn:" SHAPE, make_sparse_attn, destroy_sparse_attn, get_forward_info_sparse_attn,
     get_no_forward_info_sparse_attn},
    {"sparse_attn:" SHAPE ",passes=backward", NULL, NULL, get_backward_info_sparse_attn,
     get_no_backward_info_sparse_attn},
    PASS(sparse_scores),
    PASS(indexer_windows),
    PASS(indexer_quantize),
    PASS(indexer_logits),
    PASS(indexer_clean),
    PASS(indexer_topk),
    PASS(topk_select),
    PASS(indexer_scores),
    PASS(indexer_loss),
    PASS(indexer_bwd),
};

enum { PASSES = sizeof passes / sizeof passes[0] };

smelt_status make_operators(smelt_context *of) {
    smelt_status status = SMELT_OK;
    context = of;
    for (int i = 0; i < PASSES && status == SMELT_OK; i++)
        if (passes[i].make)
            status = passes[i].make();
    return status;
}

void destroy_operators(void) {
    for (int i = 0; i < PASSES; i++)
        if (passes[i].destroy)
            passes[i].destroy();
}

/* ---- what the calls do ----------------------------------------------------------------------- */

/* A launch is refused for what stands in the struct's last fields, whatever its size. */
void operators_work(void **state) {
    (void)state;
    smelt_sparse_attn_spec spec = SMELT_SPARSE_ATTN_SPEC_INIT;
    smelt_sparse_attn_args args = SMELT_SPARSE_ATTN_ARGS_INIT;
    smelt_kernel_info info = SMELT_KERNEL_INFO_INIT;
    smelt_sparse_attn *bucketed = NULL;
    fill_sparse_attn(&args);
    assert_int_equal(smelt_sparse_attn_forward(sparse_attn, &args, NULL), SMELT_OK);
    assert_int_equal(smelt_sparse_attn_spec_parse("sparse_attn:" SHAPE, &spec, NULL), SMELT_OK);
    spec.buckets[0] = 64, spec.buckets[1] = 512; /* the last field */
    assert_int_equal(smelt_sparse_attn_create(&bucketed, context, &spec), SMELT_OK);
    assert_int_equal(smelt_sparse_attn_get_kernel_info(bucketed, SMELT_PASS_FORWARD, 4, &info),
                     SMELT_OK);
    args.workspace = address(6);
    assert_int_equal(smelt_sparse_attn_forward_workspace(bucketed, &args, &args.workspace_bytes),
                     SMELT_OK);
    args.workspace_bytes--; /* the last field */
    assert_int_equal(smelt_sparse_attn_forward(bucketed, &args, NULL),
                     SMELT_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(smelt_last_error(), "workspace_bytes"));
    args.workspace_bytes++;
    assert_int_equal(smelt_sparse_attn_forward(bucketed, &args, NULL), SMELT_OK);
    smelt_sparse_attn_destroy(&bucketed);
}

/* ---- figures of kernels ---------------------------------------------------------------------- */

struct expansion {
    int count;
    char kernels[MOST_KERNELS][MOST_TEXT];
};

static int take_kernel(void *user, const char *text) {
    struct expansion *expansion = user;
    assert_true(expansion->count < MOST_KERNELS && strlen(text) < MOST_TEXT);
    strcpy(expansion->kernels[expansion->count++], text);
    return 0;
}

/* The fields that every kernel has, the last one of the first version besides. */
static void check_info(const smelt_kernel_info *info, const char *spec) {
    assert_string_equal(info->spec, spec);
    assert_string_equal(info->arch, "sm_90a");
    assert_string_equal(info->error, "");
    assert_true(strlen(info->kernel) > 0);
    assert_int_equal(strlen(info->key), 32);
    assert_int_equal(info->status, SMELT_OK);
    assert_int_not_equal(info->state, SMELT_KERNEL_FAILED);
    assert_true(info->threads >= 32 && info->registers > 0 && info->cubin_bytes > 0);
    assert_int_equal(info->kept, 1);
    assert_int_equal(info->emulated, 0);
}

static void all_are(const unsigned char *bytes, size_t count, unsigned char value) {
    for (size_t i = 0; i < count; i++)
        assert_int_equal(bytes[i], value);
}

/* An array of a caller's structs, one for each kernel, is filled and nothing beside. */
static void fill_infos(const struct pass *pass, const struct expansion *expansion, size_t size) {
    static _Alignas(
        16) unsigned char infos[(MOST_KERNELS + 1) * (sizeof(smelt_kernel_info) + TAIL)];
    memset(infos, CANARY, sizeof infos);
    for (int i = 0; i < expansion->count; i++)
        memcpy(infos + (size_t)i * size, &size, sizeof size);
    for (int i = expansion->count - 1; i >= 0; i--)
        assert_int_equal(pass->get_info(i, (void *)(infos + (size_t)i * size)), SMELT_OK);
    for (int i = 0; i < expansion->count; i++) {
        smelt_kernel_info info;
        memcpy(&info, infos + (size_t)i * size, sizeof info);
        assert_int_equal(info.size, size);
        check_info(&info, expansion->kernels[i]);
        if (size > sizeof info) /* its first 16 bytes a newer library may know */
            all_are(infos + (size_t)i * size + sizeof info + TAIL / 2, TAIL / 2, 0);
    }
    all_are(infos + (size_t)expansion->count * size, sizeof infos - (size_t)expansion->count * size,
            CANARY);
}

static void no_info(smelt_status status, const char *message) {
    assert_int_equal(status, SMELT_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(smelt_last_error(), message));
}

/* As many as its spec expands to, in that order; other numbers are refused. */
void kernel_infos(void **state) {
    (void)state;
    for (int i = 0; i < PASSES; i++) {
        const struct pass *pass = &passes[i];
        struct expansion expansion = {0};
        smelt_kernel_info info = SMELT_KERNEL_INFO_INIT, unset = {0};
        assert_int_equal(smelt_spec_expand(pass->text, take_kernel, &expansion), SMELT_OK);
        assert_true(expansion.count >= 1);
        fill_infos(pass, &expansion, sizeof info);
        fill_infos(pass, &expansion, sizeof info + TAIL);
        no_info(pass->get_info(expansion.count, &info), "no kernel number");
        no_info(pass->get_info(-1, &info), "no kernel number -1");
        no_info(pass->get_info(0, NULL), "info is NULL");
        no_info(pass->get_info(0, &unset), "SMELT_KERNEL_INFO_INIT");
        no_info(pass->get_no_info(&info), " is NULL");
        all_are((const unsigned char *)&info + sizeof info.size, sizeof info - sizeof info.size, 0);
    }
}
