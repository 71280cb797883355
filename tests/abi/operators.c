/* The operators' structs: the arguments of each pass of each operator's example, what get_kernel_info
 * fills, and descriptions, by which the arguments are filled. */
#include "../unit/test.h"
#include "subjects.h"

enum { WORKSPACE = 64 << 20, MOST_KERNELS = 16, MOST_TEXT = 160, TOPK = 2048 };

static smelt_context *context;

/* The fake driver's fills may write to it. */
static _Alignas(256) unsigned char workspace[WORKSPACE];

/* A device address, which no code dereferences. */
static void *address(int number) {
    return (void *)((uintptr_t)number << 32); // NOLINT: as said
}

/* ---- the passes ------------------------------------------------------------------------------ */

enum { MOST_PASSES = 64 };

static struct pass {
    char text[MOST_TEXT];
    enum smelt_pass pass;
    const char *args;  /* its struct */
    size_t args_bytes; /* as this program knows it */
    smelt_operator *made;
} passes[MOST_PASSES];
static int pass_count;

static const struct {
    const char *type;
    size_t bytes;
} structs[] = {
#define ARGS(type) {#type, sizeof(type)},
#include "args.list"
#undef ARGS
};

static void add_pass(const char *example, enum smelt_pass pass, const char *keys) {
    struct pass *const added = &passes[pass_count++];
    smelt_pass_info info = SMELT_PASS_INFO_INIT;
    unsigned all;
    assert_true(pass_count <= MOST_PASSES);
    snprintf(added->text, sizeof added->text, "%s%s", example, keys);
    added->pass = pass;
    assert_int_equal(smelt_operator_describe(added->text, pass, &all, &info), SMELT_OK);
    for (size_t i = 0; i < sizeof structs / sizeof *structs; i++)
        if (strcmp(structs[i].type, info.args_type) == 0) {
            added->args = structs[i].type;
            added->args_bytes = structs[i].bytes;
        }
    assert_non_null(added->args);
}

static int add_operator(void *unused, const char *family) {
    (void)unused;
    smelt_family_info info = SMELT_FAMILY_INFO_INIT;
    unsigned all;
    assert_int_equal(smelt_family_get_info(family, &info), SMELT_OK);
    if (!info.is_operator)
        return 0;
    assert_int_equal(smelt_operator_describe(family, SMELT_PASS_FORWARD, &all, NULL), SMELT_OK);
    const int both = all == (SMELT_PASS_FORWARD | SMELT_PASS_BACKWARD);
    if (all & SMELT_PASS_FORWARD)
        add_pass(info.example, SMELT_PASS_FORWARD, "");
    if (all & SMELT_PASS_BACKWARD)
        add_pass(info.example, SMELT_PASS_BACKWARD, both ? ",passes=backward" : "");
    return 0;
}

static const struct pass *find_pass(const char *args) {
    int i = 0;
    while (i < pass_count && strcmp(passes[i].args, args) != 0)
        i++;
    assert_true(i < pass_count);
    return &passes[i];
}

/* ---- arguments by description ---------------------------------------------------------------- */

static void put_extent(unsigned char *memory, const struct pass *pass,
                       const smelt_scalar_info *scalar) {
    int64_t topk;
    if (smelt_spec_get(pass->text, "topk", &topk) != SMELT_OK)
        topk = TOPK;
    const struct {
        const char *letter;
        int64_t value;
    } extents[] = {{"B", 1}, {"T", 4}, {"S", 100}, {"N", 100}, {"D", 2}, {"width", topk}};
    for (size_t i = 0; i < sizeof extents / sizeof *extents; i++)
        if (strcmp(scalar->letter, extents[i].letter) == 0)
            memcpy(memory + scalar->offset, &extents[i].value, sizeof extents[i].value);
}

/* Sets a required tensor, and the first one of a group of which one is required. */
static void put_tensor(unsigned char *memory, const struct pass *pass,
                       const smelt_tensor_info *tensor, int number, int last_one_of) {
    int64_t key = 0;
    if (*tensor->key)
        assert_int_equal(smelt_spec_get(pass->text, tensor->key, &key), SMELT_OK);
    if (tensor->optional || (*tensor->key && key <= 0) ||
        (tensor->one_of && tensor->one_of == last_one_of))
        return;
    void *const data = address(number + 1);
    memcpy(memory + tensor->offset, &data, sizeof data);
}

static void fill_args(const struct pass *pass, unsigned char *memory) {
    smelt_pass_info info = SMELT_PASS_INFO_INIT;
    unsigned all;
    int last_one_of = 0;
    assert_int_equal(smelt_operator_describe(pass->text, pass->pass, &all, &info), SMELT_OK);
    for (int i = 0; i < info.scalars; i++) {
        const float one = 1;
        smelt_scalar_info scalar = SMELT_SCALAR_INFO_INIT;
        assert_int_equal(smelt_operator_get_scalar(pass->text, pass->pass, i, &scalar), SMELT_OK);
        if (scalar.type == SMELT_SCALAR_FLOAT)
            memcpy(memory + scalar.offset, &one, sizeof one);
        put_extent(memory, pass, &scalar);
    }
    for (int i = 0; i < info.tensors; i++) {
        smelt_tensor_info tensor = SMELT_TENSOR_INFO_INIT;
        assert_int_equal(smelt_operator_get_tensor(pass->text, pass->pass, i, &tensor), SMELT_OK);
        put_tensor(memory, pass, &tensor, i, last_one_of);
        last_one_of = tensor.one_of;
    }
    if (info.workspace_offset) {
        const size_t bytes = WORKSPACE;
        void *const place = workspace;
        memcpy(memory + info.workspace_offset, &place, sizeof place);
        memcpy(memory + info.workspace_bytes_offset, &bytes, sizeof bytes);
    }
}

/* ---- the calls ------------------------------------------------------------------------------- */

static void fill_pass(void *memory) {
    fill_args(&passes[subject_pass], memory);
}

static smelt_status call_pass(void *memory) {
    const struct pass *pass = &passes[subject_pass];
    return smelt_operator_launch(pass->made, pass->pass, memory, NULL);
}

static smelt_status ask_pass(void *memory) {
    const struct pass *pass = &passes[subject_pass];
    size_t bytes;
    return smelt_operator_workspace(pass->made, pass->pass, memory, &bytes);
}

static smelt_status info_pass(void *memory) {
    const struct pass *pass = &passes[subject_pass];
    return smelt_operator_get_kernel_info(pass->made, pass->pass, 0, memory);
}

static smelt_status describe_pass(void *memory) {
    unsigned all;
    return smelt_operator_describe("sparse_attn", SMELT_PASS_FORWARD, &all, memory);
}

static smelt_status describe_tensor(void *memory) {
    return smelt_operator_get_tensor("sparse_attn", SMELT_PASS_FORWARD, 0, memory);
}

static smelt_status describe_scalar(void *memory) {
    return smelt_operator_get_scalar("sparse_attn", SMELT_PASS_FORWARD, 0, memory);
}

static const struct subject descriptions[] = {
    SUBJECT(smelt_pass_info, "info", 0, fill_nothing, describe_pass),
    SUBJECT(smelt_tensor_info, "info", 0, fill_nothing, describe_tensor),
    SUBJECT(smelt_scalar_info, "info", 0, fill_nothing, describe_scalar),
};

/* ---- all operators --------------------------------------------------------------------------- */

static void add_pass_subjects(int number) {
    const struct pass *pass = &passes[number];
    const struct subject subjects[] = {
        {pass->args, "args", pass->args_bytes, 1, number, fill_pass, call_pass},
        {pass->args, "args", pass->args_bytes, 1, number, fill_pass, ask_pass},
        {"smelt_kernel_info", "info", sizeof(smelt_kernel_info), 0, number, fill_nothing,
         info_pass},
    };
    add_subjects(subjects, sizeof subjects / sizeof *subjects);
}

smelt_status make_operators(smelt_context *of) {
    context = of;
    smelt_status status = smelt_list(SMELT_LIST_FAMILIES, add_operator, NULL);
    for (int i = 0; i < pass_count && status == SMELT_OK; i++) {
        status = smelt_operator_create(&passes[i].made, context, passes[i].text);
        add_pass_subjects(i);
    }
    add_subjects(descriptions, sizeof descriptions / sizeof *descriptions);
    return status;
}

void destroy_operators(void) {
    for (int i = 0; i < pass_count; i++)
        smelt_operator_destroy(&passes[i].made);
}

/* ---- what the calls do ----------------------------------------------------------------------- */

/* The last field of a struct is used, whatever the struct's size. */
void operators_work(void) {
    smelt_sparse_attn_args args = SMELT_SPARSE_ATTN_ARGS_INIT;
    smelt_kernel_info info = SMELT_KERNEL_INFO_INIT;
    smelt_operator *bucketed = NULL;
    const struct pass *const attention = find_pass("smelt_sparse_attn_args");
    fill_args(attention, (unsigned char *)&args);
    assert_int_equal(smelt_sparse_attn_forward(attention->made, &args, NULL), SMELT_OK);
    assert_int_equal(
        smelt_operator_create(&bucketed, context,
                              "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,buckets=64/512"),
        SMELT_OK);
    assert_int_equal(smelt_operator_get_kernel_info(bucketed, SMELT_PASS_FORWARD, 4, &info),
                     SMELT_OK);
    args.workspace = address(100);
    assert_int_equal(smelt_sparse_attn_forward_workspace(bucketed, &args, &args.workspace_bytes),
                     SMELT_OK);
    args.workspace_bytes--; /* the last field */
    assert_refused(smelt_sparse_attn_forward(bucketed, &args, NULL), SMELT_ERROR_INVALID_ARGUMENT,
                   "workspace_bytes");
    args.workspace_bytes++;
    assert_int_equal(smelt_sparse_attn_forward(bucketed, &args, NULL), SMELT_OK);
    smelt_operator_destroy(&bucketed);
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

/* Checks the fields that every kernel has, and the last field of the first version. */
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

static smelt_status get_info(int number, int index, smelt_kernel_info *info) {
    return smelt_operator_get_kernel_info(passes[number].made, passes[number].pass, index, info);
}

/* Fills a caller's array of structs, one for each kernel, and nothing outside it. */
static void fill_infos(int number, const struct expansion *expansion, size_t size) {
    static _Alignas(
        16) unsigned char infos[(MOST_KERNELS + 1) * (sizeof(smelt_kernel_info) + TAIL)];
    memset(infos, CANARY, sizeof infos);
    for (int i = 0; i < expansion->count; i++)
        memcpy(infos + (size_t)i * size, &size, sizeof size);
    for (int i = expansion->count - 1; i >= 0; i--)
        assert_int_equal(get_info(number, i, (void *)(infos + (size_t)i * size)), SMELT_OK);
    for (int i = 0; i < expansion->count; i++) {
        smelt_kernel_info info;
        memcpy(&info, infos + (size_t)i * size, sizeof info);
        assert_int_equal(info.size, size);
        check_info(&info, expansion->kernels[i]);
        if (size > sizeof info) /* a newer library may know its first 16 bytes */
            all_are(infos + (size_t)i * size + sizeof info + TAIL / 2, TAIL / 2, 0);
    }
    all_are(infos + (size_t)expansion->count * size, sizeof infos - (size_t)expansion->count * size,
            CANARY);
}

static void no_info(smelt_status status, const char *message) {
    assert_refused(status, SMELT_ERROR_INVALID_ARGUMENT, message);
}

/* There is one for each kernel of the spec, in this order; other numbers are refused. */
void kernel_infos(void) {
    for (int i = 0; i < pass_count; i++) {
        struct expansion expansion = {0};
        smelt_kernel_info info = SMELT_KERNEL_INFO_INIT, unset = {0};
        assert_int_equal(smelt_spec_expand(context, passes[i].text, NULL, take_kernel, &expansion),
                         SMELT_OK);
        assert_true(expansion.count >= 1);
        fill_infos(i, &expansion, sizeof info);
        fill_infos(i, &expansion, sizeof info + TAIL);
        no_info(get_info(i, expansion.count, &info), "no kernel number");
        no_info(get_info(i, -1, &info), "no kernel number -1");
        no_info(get_info(i, 0, NULL), "info is NULL");
        no_info(get_info(i, 0, &unset), "SMELT_KERNEL_INFO_INIT");
        no_info(smelt_operator_get_kernel_info(NULL, passes[i].pass, 0, &info), "op is NULL");
        all_are((const unsigned char *)&info + sizeof info.size, sizeof info - sizeof info.size, 0);
    }
}
