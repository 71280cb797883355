/* Operators as specs: any numbers and knobs are refused with a message, or give a canonical text
 * and are supported or not on every architecture; operators that are not made; descriptions. No
 * number overflows (checked by sanitizer builds). */

#include "smelt/smelt.h"
#include "test.h"

enum { SPECS = 4000 /* of each operator */ };

/* Every operator's example. */
static const char *legal_specs[64];
static int operators;

static int take_family(void *unused, const char *family) {
    (void)unused;
    smelt_family_info info = SMELT_FAMILY_INFO_INIT;
    assert_int_equal(smelt_family_get_info(family, &info), SMELT_OK);
    assert_int_equal(info.is_operator, *info.example != '\0');
    if (info.is_operator)
        legal_specs[operators++] = info.example;
    return 0;
}

static int find_operators(void **state) {
    (void)state;
    return smelt_list(SMELT_LIST_FAMILIES, take_family, NULL) != SMELT_OK || operators < 2;
}

static const char *const archs[] = {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"};
enum { ARCHS = sizeof archs / sizeof *archs };

static smelt_context *make_context(const char *arch) {
    smelt_context *context;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_COMPILE_ONLY;
    options.arch = arch;
    options.cache_disable = 1;
    assert_int_equal(smelt_context_create(&context, &options), SMELT_OK);
    return context;
}

/* ---- specs of any numbers -------------------------------------------------------------------- */

static int64_t draw_number(struct random *random) {
    static const int64_t common[] = {1,    2,    8,       16,        64,        64,  128, 512,
                                     576,  192,  256,     320,       320,       320, 512, 1024,
                                     2048, 4096, 1048576, INT32_MAX, INT32_MIN, -1};
    switch (random_below(random, 8)) {
    case 0:
        return (int64_t)random_next(random);
    case 1:
        return random_below(random, 300);
    case 2:
    case 3:
        return common[random_below(random, sizeof common / sizeof *common)];
    case 4:
        return random_below(random, 64) * 64;
    default:
        return random_below(random, 3);
    }
}

static const char *draw_more(struct random *random) {
    static const char *const more[] = {",",
                                       "=",
                                       ",stages=2",
                                       ",stages=-1",
                                       ",stages=99999999999999999999",
                                       ",variant=mma",
                                       ",variant=sm90",
                                       ",main.variant=mma",
                                       ",fwd.stages=2,fwd.stages=3",
                                       ",heads=3",
                                       ",nothing=1",
                                       ",sink=1",
                                       ",buckets=auto",
                                       ",buckets=256/512",
                                       ",buckets=512/256",
                                       ",passes=both",
                                       ",deterministic=1",
                                       ",order=score",
                                       ",dtype=fp8",
                                       ",variant"};
    return random_below(random, 2) ? "" : more[random_below(random, sizeof more / sizeof *more)];
}

/* A legal spec with some numbers changed and perhaps more keys. */
static void draw_spec(struct random *random, const char *legal, char *text, size_t size) {
    size_t used = 0;
    for (const char *at = legal; *at && used + 32 < size;) {
        const size_t digits = strspn(at, "0123456789");
        const int number = digits > 0 && at[-1] == '=';
        if (number && random_below(random, 4) == 0)
            used +=
                (size_t)snprintf(text + used, size - used, "%lld", (long long)draw_number(random));
        else
            used +=
                (size_t)snprintf(text + used, size - used, "%.*s", number ? (int)digits : 1, at);
        at += number ? digits : 1;
    }
    snprintf(text + used, size - used, "%s", draw_more(random));
}

/* Whether the spec is legal. */
static int try_spec(smelt_context *const contexts[ARCHS], const char *spec) {
    char *text = NULL, *again = NULL;
    const smelt_status parsed = smelt_spec_canonical(spec, &text);
    if (parsed) {
        assert_int_equal(parsed, SMELT_ERROR_INVALID_SPEC);
        assert_true(strlen(smelt_last_error()) > 10);
    } else {
        assert_int_equal(smelt_spec_canonical(text, &again), SMELT_OK);
        assert_string_equal(text, again);
    }
    for (int i = 0; i < ARCHS; i++) {
        const char *why = NULL;
        const smelt_status status = smelt_operator_supported(contexts[i], spec, &why);
        if (parsed)
            assert_int_equal(status, parsed);
        else if (status)
            assert_int_equal(status, SMELT_ERROR_UNSUPPORTED);
        assert_non_null(why);
        assert_int_equal(status == SMELT_OK, *why == '\0');
    }
    smelt_free(text);
    smelt_free(again);
    return parsed == SMELT_OK;
}

TEST(specs_of_any_numbers) {
    struct random random = random_begin("specs_of_any_numbers");
    smelt_context *contexts[ARCHS];
    for (int i = 0; i < ARCHS; i++)
        contexts[i] = make_context(archs[i]);
    for (int i = 0; i < operators; i++) {
        int legal = 0;
        for (int k = 0; k < SPECS; k++) {
            char spec[512];
            draw_spec(&random, legal_specs[i], spec, sizeof spec);
            legal += try_spec(contexts, spec);
        }
        printf("%s: %d of %d are legal\n", legal_specs[i], legal, SPECS);
        assert_in_range(legal, SPECS / 10, SPECS - 1);
    }
    for (int i = 0; i < ARCHS; i++)
        smelt_context_destroy(&contexts[i]);
}

TEST(supported) {
#define GLM "sparse_attn:heads=64,dqk=576,dv=512,topk=2048"
    static const struct {
        const char *spec, *why; /* "": supported */
    } cases[] = {
        {GLM, ""},
        {GLM ",fwd.stages=4,fwd.block_keys=128", "shared memory"},
        {GLM ",stages=4", ""},                 /* no backward kernel accepts it */
        {GLM ",passes=backward,stages=1", ""}, /* no forward kernel accepts it */
        {GLM ",passes=both,stages=1", "only bwd accepts it, as bwd.stages=1"},
        {"sparse_attn:heads=129,dqk=576,dv=512,topk=2048", "heads=129"},
        {"sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048", "is a kernel, not an operator"},
        {"sparse_atn:heads=64", "unknown operator 'sparse_atn', did you mean sparse_attn?"},
        {"sparse_atn", "unknown operator 'sparse_atn', did you mean sparse_attn?"},
        {"heads=64,dqk=576", "has no ':'"},
        {"sparse_attn", "heads is missing"},
        {NULL, "spec is NULL"},
    };
    smelt_context *context = make_context("sm_90a");
    const char *why = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const smelt_status status = smelt_operator_supported(context, cases[i].spec, &why);
        assert_int_equal(status == SMELT_OK, *cases[i].why == '\0');
        assert_says(why, cases[i].why, cases[i].spec);
    }
    assert_int_equal(smelt_operator_supported(context, GLM, NULL), SMELT_OK);
    assert_int_equal(smelt_operator_supported(NULL, GLM, &why), SMELT_ERROR_INVALID_ARGUMENT);
    smelt_context_destroy(&context);
}

/* ---- what is not made ------------------------------------------------------------------------ */

/* A failed creation sets the caller's pointer to NULL, whatever it held, since most callers do not
 * initialise it. */
static void made_none(smelt_context *context, const char *spec, smelt_status expected,
                      const char *message) {
    smelt_operator *made = (smelt_operator *)(uintptr_t)64; // NOLINT: nothing is there
    assert_int_equal(smelt_operator_create(&made, context, spec), expected);
    assert_null(made);
    assert_non_null(strstr(smelt_last_error(), message));
}

/* ---- kernels of an architecture -------------------------------------------------------------- */

static int add_name(void *user, const char *text) {
    char *const names = user;
    const size_t used = strlen(names);
    snprintf(names + used, 512 - used, "%s%.*s", used ? " " : "", (int)strcspn(text, ":,"), text);
    return 0;
}

/* An operator has exactly the kernels that its calls launch on the architecture, in the order of launch. They may
 * depend on the variant of one of them, whether a knob or the rule chooses it. */
TEST(kernels_of_an_architecture) {
#define GQA "sparse_gqa:heads=16,kv_heads=2,dqk=128,dv=128,topk=16,granularity="
#define INDEX "sparse_gqa_lists sparse_gqa_lists sparse_gqa_lists "
#define BACKWARD(by_query, sums)                                                                   \
    "attention_bwd_rows " by_query INDEX "sparse_gqa_bwd_keys " sums                               \
    "key_grads_finish key_grads_finish"
    static const struct {
        const char *spec, *arch, *kernels;
    } cases[] = {
        {GQA "128", "sm_90a", INDEX "sparse_gqa_fwd sparse_gqa_merge"},
        {GQA "128", "sm_80", "sparse_gqa_fwd"},
        {GQA "128,variant=mma", "sm_90a", "sparse_gqa_fwd"},
        {GQA "64,unite=1", "sm_90a",
         "sparse_gqa_lists " INDEX "sparse_gqa_united sparse_gqa_fwd sparse_gqa_merge"},
        {GQA "64,unite=1", "sm_100a", "sparse_gqa_fwd"},
        {"sparse_gqa:heads=34,kv_heads=2,dqk=128,dv=128,topk=16,granularity=64,unite=1", "sm_90a",
         INDEX "sparse_gqa_fwd sparse_gqa_merge"},
        {GQA "4,unite=1", "sm_90a", "attention_lists sparse_gqa_fwd"},
        {GQA "4,unite=1", "sm_80", "sparse_gqa_fwd"},
        {GQA "128,passes=backward", "sm_90a", BACKWARD("", "sparse_gqa_sums sparse_gqa_sums ")},
        {GQA "128,passes=backward", "sm_80", BACKWARD("sparse_gqa_bwd ", "")},
        {GQA "128,passes=backward,bwd_keys.variant=mma", "sm_90a", BACKWARD("sparse_gqa_bwd ", "")},
        {GQA "128,passes=backward,bwd_keys.tile_rows=32", "sm_90a",
         BACKWARD("sparse_gqa_bwd ", "")},
        {GQA "16,passes=backward", "sm_90a", BACKWARD("sparse_gqa_bwd ", "")},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        smelt_context *context = i % 2 ? make_context("sm_89") : NULL;
        char names[512] = "";
        assert_int_equal(smelt_spec_expand(context, cases[i].spec, cases[i].arch, add_name, names),
                         SMELT_OK);
        assert_string_equal(names, cases[i].kernels);
        smelt_context_destroy(&context);
    }
}

/* ---- not made -------------------------------------------------------------------------------- */

TEST(operators_that_are_not_made) {
    smelt_context *context = make_context("sm_90a");
    for (int i = 0; i < operators; i++) {
        made_none(NULL, legal_specs[i], SMELT_ERROR_INVALID_ARGUMENT, "context is NULL");
        made_none(context, legal_specs[i], SMELT_ERROR_NO_DEVICE, "sm_90a");
        assert_refused(smelt_operator_create(NULL, context, legal_specs[i]),
                       SMELT_ERROR_INVALID_ARGUMENT, "op is NULL");
    }
    smelt_operator_destroy(NULL);
    smelt_context_destroy(&context);
}

/* ---- descriptions ---------------------------------------------------------------------------- */

TEST(described) {
    unsigned passes = 0;
    smelt_pass_info info = SMELT_PASS_INFO_INIT;
    smelt_tensor_info tensor = SMELT_TENSOR_INFO_INIT;
    smelt_scalar_info scalar = SMELT_SCALAR_INFO_INIT;
    assert_int_equal(smelt_operator_describe("sparse_attn", SMELT_PASS_FORWARD, &passes, &info),
                     SMELT_OK);
    assert_int_equal(passes, SMELT_PASS_FORWARD | SMELT_PASS_BACKWARD);
    assert_string_equal(info.args_type, "smelt_sparse_attn_args");
    assert_int_equal(info.args_bytes, sizeof(smelt_sparse_attn_args));
    assert_int_equal(info.workspace_offset, offsetof(smelt_sparse_attn_args, workspace));
    assert_int_equal(info.partition_offset, 0);
    assert_string_equal(info.flattened, "");
    assert_int_equal(smelt_operator_describe("sparse_attn", SMELT_PASS_BACKWARD, &passes, &info),
                     SMELT_OK);
    assert_int_equal(info.partition_offset, offsetof(smelt_sparse_attn_grad_args, partition));
    assert_int_equal(info.partition_bytes_offset,
                     offsetof(smelt_sparse_attn_grad_args, partition_bytes));
    assert_int_equal(smelt_operator_describe("quantize", SMELT_PASS_FORWARD, &passes, &info),
                     SMELT_OK);
    assert_string_equal(info.flattened, "N");
    assert_int_equal(smelt_operator_describe(GLM, SMELT_PASS_FORWARD, &passes, NULL), SMELT_OK);
    assert_int_equal(passes, SMELT_PASS_FORWARD);
    assert_int_equal(smelt_operator_get_tensor(GLM, SMELT_PASS_FORWARD, 0, &tensor), SMELT_OK);
    assert_string_equal(tensor.name, "q");
    assert_string_equal(tensor.element, "bf16");
    assert_int_equal(tensor.dimensions, 4);
    assert_string_equal(tensor.shape[2], "H");
    assert_int_equal(tensor.extents[1], -1);
    assert_int_equal(tensor.extents[2], 64);
    assert_int_equal(tensor.extents[3], 576);
    assert_int_equal(smelt_operator_get_tensor("indexer_logits:heads=4,dim=64,dtype=fp8",
                                               SMELT_PASS_FORWARD, 0, &tensor),
                     SMELT_OK);
    assert_string_equal(tensor.element, "e4m3");
    assert_string_equal(tensor.of[0], "");
    const char *const blocks = "indexer_logits:heads=4,dim=64,dtype=bf16,groups=2,block_max=8";
    assert_int_equal(smelt_operator_get_tensor(blocks, SMELT_PASS_FORWARD, 6, &tensor), SMELT_OK);
    assert_int_equal(tensor.extents[1], 2);
    assert_string_equal(tensor.of[2], "S");
    assert_int_equal(tensor.per[2], 8);
    assert_int_equal(tensor.times[2], 1);
    const char *const listed = "indexer_logits:heads=4,dim=64,dtype=bf16,candidate_block=16";
    assert_int_equal(smelt_operator_get_tensor(listed, SMELT_PASS_FORWARD, 6, &tensor), SMELT_OK);
    assert_string_equal(tensor.of[1], "C");
    assert_int_equal(tensor.per[1], 1);
    assert_int_equal(tensor.times[1], 16);
    assert_int_equal(
        smelt_operator_get_tensor("indexer_logits:heads=4,dim=64,dtype=bf16,candidate_block=16,"
                                  "block_max=4",
                                  SMELT_PASS_FORWARD, 6, &tensor),
        SMELT_OK);
    assert_string_equal(tensor.of[1], "C");
    assert_int_equal(tensor.per[1], 1);
    assert_int_equal(tensor.times[1], 4);
    assert_int_equal(smelt_operator_get_scalar("sparse_attn", SMELT_PASS_FORWARD, 1, &scalar),
                     SMELT_OK);
    assert_string_equal(scalar.name, "tokens");
    assert_string_equal(scalar.letter, "T");
    assert_int_equal(scalar.offset, offsetof(smelt_sparse_attn_args, tokens));
    assert_int_equal(smelt_operator_get_scalar(GLM, SMELT_PASS_FORWARD, 3, &scalar), SMELT_OK);
    assert_string_equal(scalar.name, "width");
    assert_int_equal(scalar.most, 2048);
    assert_int_equal(smelt_operator_get_scalar(GLM ",buckets=auto", SMELT_PASS_FORWARD, 3, &scalar),
                     SMELT_OK);
    assert_true(scalar.most > 2048);
}

TEST(not_described) {
    unsigned passes;
    smelt_pass_info info = SMELT_PASS_INFO_INIT;
    smelt_tensor_info tensor = SMELT_TENSOR_INFO_INIT;
    assert_int_equal(smelt_operator_describe("attention", SMELT_PASS_FORWARD, &passes, &info),
                     SMELT_ERROR_INVALID_SPEC);
    for (int i = 0; i < operators; i++) { /* those there are */
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(legal_specs[i], ":"), legal_specs[i]);
        assert_non_null(strstr(smelt_last_error(), name));
    }
    assert_null(strstr(smelt_last_error(), "sparse_attn_fwd")); /* a kernel */
    /* A name is checked like a spec. */
    char longer[400];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    assert_refused(smelt_operator_describe(longer, SMELT_PASS_FORWARD, &passes, NULL),
                   SMELT_ERROR_INVALID_SPEC, "is too long: at most 255 characters");
    assert_refused(smelt_operator_describe("sparse\nattn", SMELT_PASS_FORWARD, &passes, NULL),
                   SMELT_ERROR_INVALID_SPEC, "byte 0x0a at position 7");
    assert_int_equal(smelt_operator_describe("topk_select", SMELT_PASS_BACKWARD, &passes, &info),
                     SMELT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(smelt_operator_describe("sparse_attn_fwd", SMELT_PASS_FORWARD, &passes, &info),
                     SMELT_ERROR_INVALID_SPEC);
    assert_refused(smelt_operator_get_tensor("topk_select", SMELT_PASS_FORWARD, 8, &tensor),
                   SMELT_ERROR_INVALID_ARGUMENT, "legal are 0..7");
    int64_t value;
    assert_int_equal(smelt_spec_get(GLM, "topk", &value), SMELT_OK);
    assert_int_equal(value, 2048);
    assert_int_equal(smelt_spec_get(GLM, "stages", &value), SMELT_ERROR_INVALID_ARGUMENT);
}

TESTS("operators", .group_setup = find_operators)
