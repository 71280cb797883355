/* Calls of every operator on a fake driver, with random arguments, extents, strides and addresses of
 * every size, most of them invalid. A call must either launch or fail with a message before its
 * first launch, and never overflow (the sanitizer builds check that). A call must launch everything
 * on its stream, accept exactly the addresses with the documented alignment and the layouts in which no
 * output shares memory with itself or another tensor, accept every extent below an accepted one, and
 * refuse each illegal argument with an error that names it.
 */
#include <sys/mman.h>

#include "../unit/test.h"
#include "arguments.h"
#include "fakes.h"
#include "smelt/smelt.h"

static int calls = 3000; /* of each operator on each device, after the first call that launches */

enum {
    MOST_CALLS = 1000000, /* the first launch must occur within this number of calls */
    MOST_LAUNCHES = 1000, /* of a call: the fake driver fails further ones */
    LAYOUTS = 2,          /* of an operator */
    WORKSPACE = 64 << 20, /* bytes */
    WORD = sizeof(int64_t)
};

static struct fake_driver *driver;
static smelt_context *context;
static void *workspace; /* the fake driver's fills write to it */

/* ---- operators ------------------------------------------------------------------------------- */

/* Tested in addition to every pass of every operator's example. */
static const char *const others[] = {
    "sparse_attn:heads=8,dqk=576,dv=512,topk=1048576,sink=1,buckets=auto",
    "sparse_attn:heads=1024,dqk=64,dv=64,topk=64",
    "sparse_attn:heads=8,dqk=512,dv=512,topk=1048576,sink=1,buckets=auto,passes=backward",
    "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,passes=backward,deterministic=1",
    "sparse_attn:heads=1024,dqk=512,dv=512,topk=1048576,passes=backward,deterministic=1",
    "sparse_attn:heads=24,dqk=128,dv=64,topk=64,passes=backward,deterministic=1",
    "sparse_scores:heads=64,dqk=576,dv=512,topk=1048576",
    "indexer_logits:heads=64,dim=64,dtype=fp8,variant=mma",
    "indexer_logits:heads=3,dim=64,dtype=bf16,groups=3,block_max=4",
    "indexer_logits:heads=3,dim=64,dtype=fp8,candidate_block=8",
    "topk_select:topk=1,groups=2,pinned=1,expand=2,tail=1",
    "indexer_topk:heads=64,dim=128,dtype=fp8,topk=16,order=score",
    "indexer_scores:heads=64,dim=128,topk=1048576",
    "indexer_bwd:heads=8,dim=64,topk=1048576,deterministic=1",
    "indexer_dense_loss:heads=8,dqk=64,index_heads=4,index_dim=64,granularity=4,deterministic=1",
    "sparse_gqa:heads=16,kv_heads=2,dqk=128,dv=128,topk=16,granularity=64,unite=1",
    "sparse_gqa:heads=16,kv_heads=2,dqk=128,dv=64,topk=16,granularity=4,unite=1",
    "sparse_gqa:heads=16,kv_heads=2,dqk=64,dv=64,topk=16,granularity=16,passes=backward",
    "sparse_gqa:heads=32,kv_heads=2,dqk=64,dv=64,topk=9,granularity=4,deterministic=1",
};
enum { OTHERS = sizeof others / sizeof *others, MOST_SUBJECTS = 64 };

static struct subject subjects[MOST_SUBJECTS];
static int subject_count;

static size_t field_of(const struct smelt__args_table *table, const char *name) {
    for (int i = 0; i < table->scalar_count; i++)
        if (strcmp(table->scalars[i].name, name) == 0)
            return table->scalars[i].field;
    return 0;
}

static void add_subject(const char *spec, const char *keys) {
    struct subject *subject = &subjects[subject_count++];
    struct smelt__message message;
    struct smelt__spec parsed;
    assert_true(subject_count <= MOST_SUBJECTS);
    snprintf(subject->spec, sizeof subject->spec, "%s%s", spec, keys);
    if (smelt__spec_parse(subject->spec, &parsed, &message))
        fail_msg("%s", message.text);
    const struct smelt__operator_type *type = smelt__operator_type_of(parsed.schema);
    for (int i = 0; i < type->pass_count; i++)
        if (type->passes[i].pass & smelt__spec_passes(&parsed)) {
            subject->pass = (enum smelt_pass)type->passes[i].pass;
            subject->table = smelt__pass_table(&type->passes[i], &parsed);
        }
    subject->rows = field_of(subject->table, "rows");
    subject->tokens = field_of(subject->table, "tokens");
}

static void find_subjects(void) {
    for (int i = 0; smelt__operator_type_at(i); i++) {
        const struct smelt__schema *schema = &smelt__operator_type_at(i)->family->schema;
        add_subject(schema->example, "");
        if (smelt__operator_type_at(i)->pass_count > 1)
            add_subject(schema->example, ",passes=backward");
    }
    for (int i = 0; i < OTHERS; i++)
        add_subject(others[i], "");
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* A word of the struct outside its tensors: usually an extent, sometimes two ints, or 1.0F and
 * 0. */
static int64_t draw_word(struct random *random) {
    const uint64_t any = random_next(random);
    switch (random_below(random, 20)) {
    case 0:
        return (int64_t)any;
    case 1:
        return any & 1 ? INT64_MIN : INT64_MAX;
    case 2:
        return (int64_t)(UINT64_C(1) << any % 64);
    case 3:
        return -(int64_t)(any % 3);
    case 4:
        return INT32_MAX;
    case 5:
        return (int64_t)(any % INT32_MAX);
    case 6:
    case 7:
        return 0x3f800000;
    case 8:
    case 9:
    case 10:
    case 11:
        return (int64_t)(any % 300);
    default:
        return (int64_t)(any % 2);
    }
}

/* Addresses, which are not dereferenced: far apart, some invalid. */
static void *draw_address(struct random *random) {
    const uint64_t any = random_next(random);
    switch (random_below(random, 16)) {
    case 0:
        return NULL;
    case 1:
        return (void *)(uintptr_t)any; // NOLINT
    case 2:
        return (char *)workspace + any % 4096;
    default:
        return (void *)(uintptr_t)((any % 4000 + 1) << 48); // NOLINT
    }
}

static void draw_tensor(struct random *random, const struct smelt__tensor_row *row, void *args) {
    smelt_tensor *tensor = smelt__tensor_of(row, args);
    memset(tensor, 0, sizeof *tensor);
    if (!smelt__may_be_absent(row) || random_below(random, 3) == 0)
        tensor->data = draw_address(random);
    for (int i = 0; random_below(random, 3) == 0 && i < row->dimensions - 1; i++)
        tensor->strides[i] = random_below(random, 3)
                                 ? (int64_t)(random_next(random) % (1 << 20)) * 16
                                 : draw_word(random);
}

/* Draws all arguments, or changes a few of `good`, which were launched. */
static void draw_arguments(struct random *random, const struct subject *subject,
                           const union arguments *good, union arguments *args) {
    const struct smelt__args_table *table = subject->table;
    const int words = (int)(subject->table->bytes / WORD);
    args->size = subject->table->bytes;
    for (int i = 1; i < words && !good; i++)
        args->words[i] = draw_word(random);
    for (int i = 0; i < table->count && !good; i++)
        draw_tensor(random, &table->rows[i], args);
    if (good)
        memcpy(args, good, subject->table->bytes);
    for (int i = random_below(random, 3); good && i >= 0; i--)
        if (random_below(random, 2))
            draw_tensor(random, &table->rows[random_below(random, table->count)], args);
        else
            args->words[1 + random_below(random, words - 1)] = draw_word(random);
}

/* Gives the requested workspace if it fits; less is refused. */
static void give_workspace(const struct subject *subject, const smelt_operator *made,
                           union arguments *args) {
    size_t bytes = 0;
    void *place = workspace;
    if (!subject->table->workspace)
        return;
    if (smelt_operator_workspace(made, subject->pass, args, &bytes) == SMELT_OK &&
        bytes > WORKSPACE)
        bytes--;
    memcpy((char *)args + subject->table->workspace, &place, sizeof place);
    memcpy((char *)args + subject->table->workspace_bytes, &bytes, sizeof bytes);
}

/* ---- the test -------------------------------------------------------------------------------- */

/* Whether a call needs more launches than the fake driver makes. */
static int cut_short(void) {
    return driver->launches > MOST_LAUNCHES;
}

/* The number of the first of an operator's kernels that is this function. */
static int number_of(const smelt_operator *made, CUfunction function) {
    for (int i = 0; i < made->count; i++)
        if (made->kernels[i]->function == (void *)function)
            return i;
    fail_msg("a kernel was launched that is none of the operator's");
    return -1;
}

/* The kernels' first launches come in the order of the operator's kernels. */
static void check_order(const smelt_operator *made) {
    unsigned char launched[SMELT__MAX_KERNELS] = {0};
    int last = -1;
    for (int i = 0; i < driver->chain_length; i++) {
        const int number = number_of(made, driver->chain[i].function);
        if (launched[number])
            continue;
        launched[number] = 1;
        if (number < last)
            fail_msg("%s is launched after %s", made->kernels[number]->info.spec,
                     made->kernels[last]->info.spec);
        last = number;
    }
}

int arguments_call(const struct subject *subject, const smelt_operator *made,
                   const union arguments *args) {
    driver->chain_length = driver->fills = 0;
    driver->launches = 0;
    const smelt_status status = smelt_operator_launch(made, subject->pass, args, driver->stream);
    assert_int_equal(driver->strays, 0);
    if (status == SMELT_OK || cut_short()) {
        assert_int_equal(status == SMELT_OK, !cut_short());
        for (int i = 0; i < driver->chain_length; i++)
            assert_in_range(driver->chain[i].blocks, 1, INT32_MAX);
        check_order(made);
        return 1;
    }
    assert_int_equal(status, SMELT_ERROR_INVALID_ARGUMENT);
    assert_true(strlen(smelt_last_error()) > 10);
    assert_int_equal(driver->chain_length + driver->fills, 0);
    return 0;
}

/* An operator that was called before, and may have kept state, launches and refuses exactly like a
 * new one, with the same messages. */
static void compare_first_call(const struct subject *subject, const union arguments *args,
                               int launched) {
    static struct fake_launch again[FAKE_CHAIN];
    static char message[4096];
    const int count = driver->chain_length;
    smelt_operator *first;
    memcpy(again, driver->chain, sizeof again);
    snprintf(message, sizeof message, "%s", smelt_last_error());
    assert_int_equal(smelt_operator_create(&first, context, subject->spec), SMELT_OK);
    assert_int_equal(arguments_call(subject, first, args), launched);
    if (!launched)
        assert_string_equal(smelt_last_error(), message);
    smelt_operator_destroy(&first);
    assert_int_equal(driver->chain_length, count);
    for (int i = 0; i < count; i++) {
        assert_int_equal(driver->chain[i].blocks, again[i].blocks);
        assert_int_equal(driver->chain[i].pdl, again[i].pdl);
    }
}

/* ---- properties of calls that launch --------------------------------------------------------- */

/* Tensors may begin at multiples of their alignment and nowhere else. */
static void shift_addresses(const struct subject *subject, const smelt_operator *made,
                            const union arguments *good) {
    for (int i = 0; i < subject->table->count; i++) {
        const struct smelt__tensor_row *row = &subject->table->rows[i];
        const size_t element = smelt__element_bytes(row->element);
        const size_t alignment = row->whole_rows ? SMELT__ROW_BYTES : element;
        for (size_t bytes = 1; bytes <= alignment; bytes++) {
            union arguments args = *good;
            smelt_tensor *tensor = smelt__tensor_of(row, &args);
            const uintptr_t begin = (uintptr_t)tensor->data & ~(uintptr_t)(SMELT__ROW_BYTES - 1);
            if (begin == 0)
                break;
            tensor->data = (void *)(begin + bytes); // NOLINT: never followed
            if (arguments_call(subject, made, &args) == (bytes == alignment))
                continue;
            fail_msg("%s: %s at %zu bytes past a multiple of %d", subject->spec, row->name, bytes,
                     SMELT__ROW_BYTES);
        }
    }
}

/* The same call with packed tensors that are far apart. */
static union arguments plain_call(const struct subject *subject, const union arguments *good) {
    union arguments args = *good;
    for (int i = 0; i < subject->table->count; i++) {
        smelt_tensor *tensor = smelt__tensor_of(&subject->table->rows[i], &args);
        memset(tensor->strides, 0, sizeof tensor->strides);
        if (tensor->data)
            tensor->data = (void *)((uintptr_t)(i + 1) << 57); // NOLINT: never followed
    }
    return args;
}

/* Whether a call with the requested workspace is launched. */
static int takes(const struct subject *subject, const smelt_operator *made, union arguments *args) {
    size_t bytes = 0;
    if (smelt_operator_workspace(made, subject->pass, args, &bytes) != SMELT_OK)
        return 0;
    if (subject->table->workspace)
        memcpy((char *)args + subject->table->workspace_bytes, &bytes, sizeof bytes);
    return arguments_call(subject, made, args);
}

/* ---- layouts of tensors ---------------------------------------------------------------------- */

static int too_long; /* strides that were refused for the copy engine */

/* Adds the required tensors that a call without queries or rows may leave out. */
static void give_required(const struct subject *subject, const smelt_operator *made,
                          union arguments *args) {
    int given = 0; /* bit n: one of the tensors with number n is */
    for (int i = 0; i < subject->table->count; i++)
        if (smelt__tensor_of(&subject->table->rows[i], args)->data)
            given |= 1 << subject->table->rows[i].one_of;
    for (int i = 0; i < subject->table->count; i++) {
        const struct smelt__tensor_row *row = &subject->table->rows[i];
        const int wanted = row->one_of ? !(given >> row->one_of & 1)
                                       : !row->key || smelt__spec_get(&made->spec, row->key) > 0;
        if (!wanted || row->optional)
            continue;
        given |= 1 << row->one_of;
        smelt__tensor_of(row, args)->data = (void *)((uintptr_t)(i + 1) << 57); // NOLINT: likewise
    }
}

/* Removes the optional tensors, and sets numbers to 0 that may be legal only in an empty call. */
static void make_plainest(const struct subject *subject, struct layout *layout) {
    const struct smelt__args_table *table = subject->table;
    const float one = 1;
    for (int i = 0; i < table->count; i++)
        if (table->rows[i].optional)
            smelt__tensor_of(&table->rows[i], &layout->args)->data = NULL;
    for (int i = 0; i < table->scalar_count; i++) {
        const struct smelt__scalar_row *row = &table->scalars[i];
        char *const at = (char *)&layout->args + row->field;
        if (row->type == SMELT_SCALAR_FLOAT)
            memcpy(at, &one, sizeof one);
        else if (row->least == 0 && row->field != subject->tokens && row->field != subject->rows)
            memset(at, 0, row->type == SMELT_SCALAR_INT ? sizeof(int) : sizeof(int64_t));
    }
    smelt__args_extents(table, &layout->args, layout->extents);
}

/* 1: there is one; 0: an extent that the others depend on is too small for it. */
static int lay_out(const struct subject *subject, const smelt_operator *made,
                   const union arguments *good, struct layout *layout) {
    const struct smelt__args_table *table = subject->table;
    *layout = (struct layout){subject, made, plain_call(subject, good), {0}};
    give_required(subject, made, &layout->args);
    for (int i = 0; i < table->symbol_count; i++) {
        const size_t field = table->symbols[i].field;
        const int64_t extent = 2 + i % 3;
        if (field && (field == subject->tokens || field == subject->rows ||
                      layout->args.words[field / WORD] > 0)) /* else its tensors are not given */
            memcpy((char *)&layout->args + field, &extent, sizeof extent);
        if (table->symbols[i].key)
            layout->extents[i] = smelt__spec_extent(&table->symbols[i], &made->spec);
    }
    smelt__args_extents(table, &layout->args, layout->extents);
    if (!takes(subject, made, &layout->args)) {
        make_plainest(subject, layout);
        if (!takes(subject, made, &layout->args))
            return 0;
    }
    for (int i = 0; i < table->count; i++)
        smelt__tensor_pack(&table->rows[i], layout->extents,
                           smelt__tensor_of(&table->rows[i], &layout->args));
    return 1;
}

static smelt_tensor *tensor_in(struct layout *layout, int tensor) {
    return smelt__tensor_of(&layout->subject->table->rows[tensor], &layout->args);
}

static void expect_layout(struct layout layout, int legal, const char *what, int tensor,
                          int dimension) {
    const char *const name = layout.subject->table->rows[tensor].name;
    const int taken = takes(layout.subject, layout.made, &layout.args);
    if (taken != legal || (!legal && !strstr(smelt_last_error(), name)))
        fail_msg("%s: %s, dimension %d: %s: %s", layout.subject->spec, name, dimension, what,
                 taken ? "taken" : smelt_last_error());
}

/* A dimension of extent 1 may have any stride; one of more elements that of a gap, of an input also 0, of an
 * output none below what the dimensions within it span. */
static void try_stride(const struct layout *given, int tensor, int dimension) {
    const struct smelt__tensor_row *row = &given->subject->table->rows[tensor];
    const int64_t unit =
        row->whole_rows ? SMELT__ROW_BYTES / (int64_t)smelt__element_bytes(row->element) : 1;
    const int input = row->role == SMELT__INPUT, inner = dimension + 1 == row->dimensions - 1;
    struct layout layout = *given;
    int64_t *const stride = &tensor_in(&layout, tensor)->strides[dimension];
    const int64_t packed = *stride;
    static const int64_t any[] = {-3, INT64_MIN, INT64_MAX};
    for (int i = 0; given->extents[row->shape[dimension]] == 1 && i < 3; i++) {
        *stride = any[i];
        expect_layout(layout, 1, "any stride of one element", tensor, dimension);
    }
    if (given->extents[row->shape[dimension]] < 2)
        return;
    *stride = packed;
    expect_layout(layout, 1, "explicit strides", tensor, dimension);
    *stride += 8 * unit;
    for (int i = dimension - 1; i >= 0; i--)
        tensor_in(&layout, tensor)->strides[i] =
            tensor_in(&layout, tensor)->strides[i + 1] * given->extents[row->shape[i + 1]];
    expect_layout(layout, 1, "a gap", tensor, dimension);
    layout = *given;
    *stride = -unit;
    expect_layout(layout, 0, "below 0", tensor, dimension);
    *stride = 0;
    expect_layout(layout, input || row->dimensions == 2 /* packed */, "a repeated element", tensor,
                  dimension);
    *stride = packed - unit;
    if (packed > unit)
        expect_layout(layout, input && !inner, "a step into the element before", tensor, dimension);
    if (unit > 1) {
        *stride = packed + unit / 2;
        expect_layout(layout, 0, "half a unit", tensor, dimension);
    }
    if (row->most_stride && inner) {
        *stride = row->most_stride / unit * unit + unit;
        expect_layout(layout, 0, "above the most", tensor, dimension);
    }
}

/* A stride that the copy engine does not support is taken by kernels that load the tensor otherwise, else
 * refused with the tensor's name and a remedy. The fake driver refuses it, too, with another status. */
static void try_long_stride(const struct layout *given, int tensor, int dimension) {
    const struct smelt__tensor_row *row = &given->subject->table->rows[tensor];
    const int64_t element = (int64_t)smelt__element_bytes(row->element);
    const int64_t limit = (INT64_C(1) << 40) / element;
    struct layout layout = *given;
    int64_t *const strides = tensor_in(&layout, tensor)->strides;
    char name[80];
    if (given->extents[row->shape[dimension]] < 2 || row->most_stride)
        return;
    strides[dimension] = limit;
    for (int i = dimension - 1; i >= 0; i--)
        strides[i] = strides[i + 1] * given->extents[row->shape[i + 1]];
    if (takes(layout.subject, layout.made, &layout.args))
        return;
    snprintf(name, sizeof name, "%s.strides[", row->name);
    if (!strstr(smelt_last_error(), name) || !strstr(smelt_last_error(), "variant=mma"))
        fail_msg("%s: a stride of 2^40 bytes: %s", layout.subject->spec, smelt_last_error());
    too_long++;
    strides[dimension] = limit - SMELT__ROW_BYTES / element;
    expect_layout(layout, dimension == 0, "below 2^40 bytes", tensor, dimension);
}

/* Dimensions may be stored in another order. */
static void try_order(const struct layout *given, int tensor) {
    const struct smelt__tensor_row *row = &given->subject->table->rows[tensor];
    struct layout layout = *given;
    int64_t *const strides = tensor_in(&layout, tensor)->strides;
    if (row->dimensions < 3)
        return;
    strides[0] = given->extents[row->shape[row->dimensions - 1]];
    for (int i = 1; i < row->dimensions - 1; i++)
        strides[i] = strides[i - 1] * given->extents[row->shape[i - 1]];
    expect_layout(layout, 1, "the other order", tensor, 0);
}

static int64_t span_of(const struct layout *layout, int tensor) {
    const struct smelt__tensor_row *row = &layout->subject->table->rows[tensor];
    int64_t bytes = (int64_t)smelt__element_bytes(row->element);
    for (int i = 0; i < row->dimensions; i++)
        bytes *= layout->extents[row->shape[i]];
    return smelt__tensor_in(row, &layout->args)->data ? bytes : 0;
}

/* An output may begin where another tensor ends or end where it begins, but not share an element with it. */
static void try_neighbours(const struct layout *given, int output) {
    const struct smelt__tensor_row *row = &given->subject->table->rows[output];
    const int64_t unit =
        row->whole_rows ? SMELT__ROW_BYTES : (int64_t)smelt__element_bytes(row->element);
    const int64_t own = span_of(given, output);
    for (int i = 0; i < given->subject->table->count; i++) {
        const int64_t bytes = span_of(given, i);
        if (i == output || bytes == 0 || own == 0)
            continue;
        for (int legal = 0; legal < 2; legal++) {
            struct layout layout = *given;
            char *const other = tensor_in(&layout, i)->data;
            tensor_in(&layout, output)->data =
                other + (bytes + unit - 1) / unit * unit - (legal ? 0 : unit);
            expect_layout(layout, legal, "after another tensor", output, i);
            tensor_in(&layout, output)->data =
                other - (own + unit - 1) / unit * unit + (legal ? 0 : unit);
            if (legal || own % unit == 0)
                expect_layout(layout, legal, "before another tensor", output, i);
        }
    }
}

static int try_layouts(const struct subject *subject, const smelt_operator *made,
                       const union arguments *good) {
    struct layout layout;
    driver->no_fills = 1; /* the workspace is smaller than its stated size */
    const int laid_out = lay_out(subject, made, good, &layout);
    if (laid_out)
        refusals_try(&layout, workspace);
    for (int i = 0; laid_out && i < subject->table->count; i++) {
        if (span_of(&layout, i) == 0)
            continue;
        for (int k = 0; k < subject->table->rows[i].dimensions - 1; k++)
            try_stride(&layout, i, k), try_long_stride(&layout, i, k);
        try_order(&layout, i);
        if (subject->table->rows[i].role != SMELT__INPUT)
            try_neighbours(&layout, i);
    }
    driver->no_fills = 0;
    return laid_out;
}

/* If an extent is refused, so are all larger ones: no product of extents wraps. Of extents that need
 * too many launches only the largest is called. `field`: its offset. */
static void grow_extent(const struct subject *subject, const smelt_operator *made,
                        const union arguments *good, size_t field) {
    int refused = 0, many = 0;
    driver->no_fills = 1; /* the workspace is smaller than its stated size */
    for (int bits = 9; bits < 32; bits++)
        for (int more = -1; more < 2; more++) {
            union arguments args = plain_call(subject, good);
            const int64_t extent = (INT64_C(1) << bits) + more;
            if (many && extent <= INT32_MAX)
                continue;
            memcpy((char *)&args + field, &extent, sizeof extent);
            const int taken = takes(subject, made, &args);
            if (taken && refused)
                fail_msg("%s: %lld %s are taken, but a smaller number is refused", subject->spec,
                         (long long)extent, field == subject->rows ? "rows" : "tokens");
            refused = !taken;
            many = cut_short();
        }
    driver->no_fills = 0;
    assert_true(refused); /* 2^31 + 1 */
}

static void grow_extents(const struct subject *subject, const smelt_operator *made,
                         const union arguments *good) {
    if (subject->tokens)
        grow_extent(subject, made, good, subject->tokens);
    if (subject->rows)
        grow_extent(subject, made, good, subject->rows);
}

/* Calls every operator that exists on a device of this compute capability. */
static void call_all(struct random *random, int major) {
    const smelt_context_options options = fakes_options();
    driver->capability_major = major;
    assert_int_equal(smelt_context_create(&context, &options), SMELT_OK);
    for (int i = 0; i < subject_count; i++) {
        const struct subject *subject = &subjects[i];
        union arguments args, good;
        smelt_operator *made;
        int launched = 0, laid_out = 0;
        assert_true(subject->table->bytes <= sizeof args);
        const smelt_status status = smelt_operator_create(&made, context, subject->spec);
        if (status == SMELT_ERROR_UNSUPPORTED && major == 8) /* fp8 comes with 8.9 */
            continue;
        assert_int_equal(status, SMELT_OK);
        for (int k = 0, since = 0; k < MOST_CALLS && since<calls; k++, since += launched> 0) {
            draw_arguments(random, subject, launched && k % 4 ? &good : NULL, &args);
            give_workspace(subject, made, &args);
            const int compare = k % 64 < 2; /* making an operator takes a hundred calls' time */
            if (!arguments_call(subject, made, &args)) {
                if (compare)
                    compare_first_call(subject, &args, 0);
            } else if (driver->chain_length > 0) {
                if (compare)
                    compare_first_call(subject, &args, 1);
                if (launched < 4) {
                    shift_addresses(subject, made, &args);
                    grow_extents(subject, made, &args);
                }
                if (laid_out < LAYOUTS && major == 9)
                    laid_out += try_layouts(subject, made, &args);
                good = args;
                launched++;
            }
        }
        smelt_operator_destroy(&made);
        printf("sm_%d0, %s: %d of %d launched\n", major, subject->spec, launched, calls);
        assert_in_range(launched, 1, calls - 1); /* and some are refused */
        assert_true(laid_out > 0 || major != 9);
    }
    smelt_context_destroy(&context);
}

TEST(random_arguments) {
    struct random random = random_begin("random_arguments");
    static const int majors[] = {8, 9, 10};
    for (size_t i = 0; i < sizeof majors / sizeof *majors; i++)
        call_all(&random, majors[i]);
    assert_true(too_long > 10);
    refusals_end();
}

/* An operator in a context on a device of compute capability `major`.0; close_operator ends both. */
static smelt_operator *open_operator(int major, const char *spec) {
    const smelt_context_options options = fakes_options();
    smelt_operator *made;
    driver->capability_major = major;
    assert_int_equal(smelt_context_create(&context, &options), SMELT_OK);
    assert_int_equal(smelt_operator_create(&made, context, spec), SMELT_OK);
    return made;
}

static void close_operator(smelt_operator *made) {
    smelt_operator_destroy(&made);
    smelt_context_destroy(&context);
}

/* The sizes of sparse_gqa's workspace grow with the rows of all batches times the KV heads, whose product may
 * exceed 64 bits. */
TEST(rows_of_all_batches) {
    smelt_sparse_gqa_grad_args args = SMELT_SPARSE_GQA_GRAD_ARGS_INIT;
    size_t bytes;
    smelt_operator *const made =
        open_operator(8, "sparse_gqa:heads=1024,kv_heads=1024,dqk=256,dv=256,"
                         "topk=4,granularity=1,lists=kv,passes=backward");
    args.batches = args.rows = 1 << 20, args.width = 1;
    assert_int_equal(smelt_sparse_gqa_backward_workspace(made, &args, &bytes), SMELT_OK);
    assert_true(bytes >> 61 == 1); /* two sums of 2^50 rows of 256 fp32 numbers */
    for (args.rows++; args.rows > 0; args.rows = args.rows < INT32_MAX ? INT32_MAX : 0) {
        assert_int_equal(smelt_sparse_gqa_backward_workspace(made, &args, &bytes),
                         SMELT_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(smelt_last_error(), "batches = 1048576 times rows = "));
    }
    close_operator(made);
}

/* sparse_gqa's deterministic dk and dv are exact sums unless one batch may have more than 65536 queries; else
 * the workspace also holds the lists of queries by block. */
TEST(queries_of_exact_sums) {
    enum { MOST = 65536, WIDTH = 4 };
    smelt_sparse_gqa_grad_args args = SMELT_SPARSE_GQA_GRAD_ARGS_INIT;
    smelt_operator *const made =
        open_operator(9, "sparse_gqa:heads=8,kv_heads=1,dqk=64,dv=64,topk=4,"
                         "granularity=1,deterministic=1,passes=backward");
    args.batches = 2, args.rows = 8, args.width = WIDTH;
    for (int listed = 0; listed < 2; listed++) { /* without a list a batch has its tokens */
        size_t bytes[2];
        for (int more = 0; more < 2; more++) {
            args.tokens = MOST + (listed ? 1 : more);
            args.queries.data = listed ? workspace : NULL;
            args.query_capacity = listed ? MOST + more : 0;
            assert_int_equal(smelt_sparse_gqa_backward_workspace(made, &args, &bytes[more]),
                             SMELT_OK);
        }
        assert_true(bytes[1] >= bytes[0] + MOST * WIDTH * sizeof(int));
    }
    close_operator(made);
}

/* Without keys indexer_dense_loss still launches the gradients' main kernel, whose tensor map has a limit. */
TEST(gradients_without_keys) {
    smelt_indexer_dense_loss_args args = SMELT_INDEXER_DENSE_LOSS_ARGS_INIT;
    smelt_operator *const made =
        open_operator(9, "indexer_dense_loss:heads=64,dqk=576,index_heads=64,"
                         "index_dim=128");
    args.tokens = 2, args.scale = args.query_weight = 1;
    const struct smelt__args_table *table = smelt__indexer_dense_loss_type.passes[0].tables;
    for (int i = 0; i < table->count; i++)
        if (!table->rows[i].optional && !table->rows[i].key && !table->rows[i].one_of)
            smelt__tensor_of(&table->rows[i], &args)->data = (void *)((i + 1L) << 44);
    args.index_dq.data = (void *)(1L << 50), args.index_dweights.data = (void *)(1L << 51);
    args.index_dk_fp32.data = (void *)(1L << 52);
    args.index_q.strides[0] = 1L << 39, args.index_q.strides[1] = 128;
    args.workspace = workspace, args.workspace_bytes = WORKSPACE;
    driver->chain_length = driver->fills = 0;
    assert_int_equal(smelt_indexer_dense_loss_forward(made, &args, driver->stream),
                     SMELT_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(smelt_last_error(), "index_q.strides[0] = 549755813888 is too large"));
    assert_int_equal(driver->chain_length + driver->fills, 0);
    close_operator(made);
}

static int begin(void **unused) {
    (void)unused;
    find_subjects();
    driver = fakes_driver();
    driver->devices = 1;
    driver->context_id = 1;
    driver->chain_params = 0;
    driver->most_launches = MOST_LAUNCHES;
    driver->fail_with = FAKE_UNKNOWN_ERROR;
    driver->stream = (CUstream)(void *)&context; /* any stream other than the default one */
    workspace = mmap(NULL, WORKSPACE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return workspace == MAP_FAILED ? -1 : 0;
}

static int end(void **unused) {
    (void)unused;
    munmap(workspace, WORKSPACE);
    return 0;
}

/* fault_arguments [CALLS] */
int main(int argc, char **argv) {
    if (argc > 1)
        calls = atoi(argv[1]);
    return RUN_TESTS("arguments on fakes", .group_setup = begin, .group_teardown = end);
}
