/* Calls of every operator on a fake driver, with random arguments, extents, strides and addresses of
 * every size, most of them invalid. A call must either launch or fail with a message before its
 * first launch, and never overflow (the sanitizer builds check that). A call must launch everything
 * on its stream, accept exactly the addresses with the documented alignment, and accept every extent
 * below an accepted one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "../unit/random.h"
#include "fakes.h"
#include "ops/indexer_bwd_tensors.h"
#include "ops/indexer_clean_tensors.h"
#include "ops/indexer_logits_tensors.h"
#include "ops/indexer_loss_tensors.h"
#include "ops/indexer_quantize_tensors.h"
#include "ops/indexer_scores_tensors.h"
#include "ops/indexer_topk_tensors.h"
#include "ops/indexer_windows_tensors.h"
#include "ops/sparse_attn_tensors.h"
#include "ops/sparse_scores_tensors.h"
#include "ops/topk_select_tensors.h"
#include "smelt/smelt.h"

static int calls = 3000; /* of each operator on each device, once one was launched, */

enum {
    MOST_CALLS = 1000000, /* which it is by then */
    WORKSPACE = 64 << 20, /* bytes */
    MOST_WORDS = 128,
    WORD = sizeof(int64_t)
};

union arguments {
    size_t size;
    int64_t words[MOST_WORDS];
};

static struct fake_driver *driver;
static smelt_context *context;
static void *workspace; /* the fake driver's fills write to it */

/* ---- operators ------------------------------------------------------------------------------- */

/* One configured operator's pass. */
struct subject {
    const char *spec;
    const struct smelt__tensor_table *table;
    size_t size, rows, tokens, /* of the args struct; offsets in it, 0: it has none */
        workspace, workspace_bytes;
    smelt_status (*create)(const char *spec, void **made);
    void (*destroy)(void **made);
    smelt_status (*call)(const void *made, const void *args);
    smelt_status (*ask)(const void *made, const void *args, size_t *bytes); /* NULL: no workspace */
};

#define MAKE(op, OP)                                                                               \
    static smelt_status create_##op(const char *text, void **made) {                               \
        smelt_##op##_spec spec = SMELT_##OP##_SPEC_INIT;                                           \
        smelt_##op *object = NULL;                                                                 \
        char *knobs = NULL;                                                                        \
        smelt_status status = smelt_##op##_spec_parse(text, &spec, &knobs);                        \
        if (status == SMELT_OK)                                                                    \
            status = smelt_##op##_create(&object, context, &spec);                                 \
        smelt_free(knobs);                                                                         \
        *made = object;                                                                            \
        return status;                                                                             \
    }                                                                                              \
    static void destroy_##op(void **made) {                                                        \
        smelt_##op *object = *made;                                                                \
        smelt_##op##_destroy(&object);                                                             \
        *made = object;                                                                            \
    }
#define CALL(op, pass)                                                                             \
    static smelt_status call_##op##_##pass(const void *made, const void *args) {                   \
        return smelt_##op##_##pass(made, args, driver->stream);                                    \
    }
#define ASK(op, pass)                                                                              \
    static smelt_status ask_##op##_##pass(const void *made, const void *args, size_t *bytes) {     \
        return smelt_##op##_##pass##_workspace(made, args, bytes);                                 \
    }

/* clang-format off */
MAKE(sparse_attn, SPARSE_ATTN) CALL(sparse_attn, forward) CALL(sparse_attn, backward)
ASK(sparse_attn, forward) ASK(sparse_attn, backward)
MAKE(sparse_scores, SPARSE_SCORES) CALL(sparse_scores, forward)
MAKE(indexer_windows, INDEXER_WINDOWS) CALL(indexer_windows, forward)
MAKE(indexer_quantize, INDEXER_QUANTIZE) CALL(indexer_quantize, forward)
MAKE(indexer_logits, INDEXER_LOGITS) CALL(indexer_logits, forward)
MAKE(indexer_clean, INDEXER_CLEAN) CALL(indexer_clean, forward)
MAKE(indexer_topk, INDEXER_TOPK) CALL(indexer_topk, forward) ASK(indexer_topk, forward)
MAKE(topk_select, TOPK_SELECT) CALL(topk_select, forward) ASK(topk_select, forward)
MAKE(indexer_scores, INDEXER_SCORES) CALL(indexer_scores, forward)
MAKE(indexer_loss, INDEXER_LOSS) CALL(indexer_loss, forward) ASK(indexer_loss, forward)
MAKE(indexer_bwd, INDEXER_BWD) CALL(indexer_bwd, backward) ASK(indexer_bwd, backward)

#define ROWS(op, pass, keys, tensors, of_tokens)                                                   \
    {.spec = #op keys, .table = &(tensors), .size = sizeof(smelt_##op##_args),                     \
     .rows = offsetof(smelt_##op##_args, rows), .tokens = of_tokens,                               \
     .create = create_##op, .destroy = destroy_##op, .call = call_##op##_##pass}
#define PLAIN(op, pass, keys, tensors)                                                             \
    ROWS(op, pass, keys, tensors, offsetof(smelt_##op##_args, tokens))
#define WORKING(op, pass, args, keys, tensors)                                                     \
    {.spec = #op keys, .table = &(tensors), .size = sizeof(args),                                  \
     .rows = offsetof(args, rows), .tokens = offsetof(args, tokens),                               \
     .workspace = offsetof(args, workspace), .workspace_bytes = offsetof(args, workspace_bytes),   \
     .create = create_##op, .destroy = destroy_##op, .call = call_##op##_##pass,                   \
     .ask = ask_##op##_##pass}
#define ATTENTION(keys)                                                                            \
    WORKING(sparse_attn, forward, smelt_sparse_attn_args, keys, smelt__sparse_attn_tensors)
#define GRADIENTS(keys)                                                                            \
    WORKING(sparse_attn, backward, smelt_sparse_attn_grad_args, keys, smelt__sparse_attn_grad_tensors)
#define INDEXER_GRADIENTS(keys)                                                                    \
    WORKING(indexer_bwd, backward, smelt_indexer_bwd_args, keys, smelt__indexer_bwd_tensors)
#define CHOICE(keys, dtype)                                                                        \
    WORKING(indexer_topk, forward, smelt_indexer_topk_args, keys, smelt__indexer_topk_tensors[dtype])

static const struct subject subjects[] = {
    ATTENTION(":heads=64,dqk=576,dv=512,topk=2048"),
    ATTENTION(":heads=8,dqk=576,dv=512,topk=1048576,sink=1,buckets=auto"),
    ATTENTION(":heads=1024,dqk=64,dv=64,topk=64"),
    GRADIENTS(":heads=64,dqk=576,dv=512,topk=2048,passes=backward"),
    GRADIENTS(":heads=8,dqk=512,dv=512,topk=1048576,sink=1,buckets=auto,passes=backward"),
    GRADIENTS(":heads=64,dqk=576,dv=512,topk=2048,passes=backward,deterministic=1"),
    GRADIENTS(":heads=1024,dqk=512,dv=512,topk=1048576,passes=backward,deterministic=1"),
    GRADIENTS(":heads=24,dqk=128,dv=64,topk=64,passes=backward,deterministic=1"),
    PLAIN(sparse_scores, forward, ":heads=64,dqk=576,dv=512,topk=1048576", smelt__sparse_scores_tensors),
    PLAIN(indexer_windows, forward, "", smelt__indexer_windows_tensors),
    ROWS(indexer_quantize, forward, ":dim=128", smelt__indexer_quantize_tensors, 0),
    PLAIN(indexer_logits, forward, ":heads=32,dim=128,dtype=bf16", smelt__indexer_logits_tensors[0]),
    PLAIN(indexer_logits, forward, ":heads=64,dim=64,dtype=fp8,variant=mma", smelt__indexer_logits_tensors[1]),
    PLAIN(indexer_clean, forward, "", smelt__indexer_clean_tensors),
    CHOICE(":heads=32,dim=128,dtype=bf16,topk=2048", 0),
    CHOICE(":heads=64,dim=128,dtype=fp8,topk=16,order=score", 1),
    WORKING(topk_select, forward, smelt_topk_select_args, ":topk=2048", smelt__topk_select_tensors),
    PLAIN(indexer_scores, forward, ":heads=64,dim=128,topk=1048576", smelt__indexer_scores_tensors),
    WORKING(indexer_loss, forward, smelt_indexer_loss_args, ":topk=2048", smelt__indexer_loss_tensors),
    INDEXER_GRADIENTS(":heads=64,dim=128,topk=2048"),
    INDEXER_GRADIENTS(":heads=8,dim=64,topk=1048576,deterministic=1"),
};
/* clang-format on */

/* ---- arguments ------------------------------------------------------------------------------- */

/* A word of the struct that is no tensor: mostly an extent, sometimes two ints, or 1.0F and 0. */
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

/* Never followed: places far apart, and some that are none. */
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
    if (!row->optional || random_below(random, 3) == 0)
        tensor->data = draw_address(random);
    for (int i = 0; random_below(random, 3) == 0 && i < row->dimensions - 1; i++)
        tensor->strides[i] = random_below(random, 3)
                                 ? (int64_t)(random_next(random) % (1 << 20)) * 16
                                 : draw_word(random);
}

/* All of the arguments, or a few of `good`, which were launched. */
static void draw_arguments(struct random *random, const struct subject *subject,
                           const union arguments *good, union arguments *args) {
    const struct smelt__tensor_table *table = subject->table;
    const int words = (int)(subject->size / WORD);
    args->size = subject->size;
    for (int i = 1; i < words && !good; i++)
        args->words[i] = draw_word(random);
    for (int i = 0; i < table->count && !good; i++)
        draw_tensor(random, &table->rows[i], args);
    if (good)
        memcpy(args, good, subject->size);
    for (int i = random_below(random, 3); good && i >= 0; i--)
        if (random_below(random, 2))
            draw_tensor(random, &table->rows[random_below(random, table->count)], args);
        else
            args->words[1 + random_below(random, words - 1)] = draw_word(random);
}

/* As much as the call asks for, where there is so much: what is less than it asks for is refused.
 */
static void give_workspace(const struct subject *subject, const void *made, union arguments *args) {
    size_t bytes = 0;
    void *place = workspace;
    if (!subject->ask)
        return;
    if (subject->ask(made, args, &bytes) == SMELT_OK && bytes > WORKSPACE)
        bytes--;
    memcpy((char *)args + subject->workspace, &place, sizeof place);
    memcpy((char *)args + subject->workspace_bytes, &bytes, sizeof bytes);
}

/* ---- the test -------------------------------------------------------------------------------- */

/* Calls whose queries are taken in very many chunks last, and tell nothing. */
static int takes_long(const struct subject *subject, const union arguments *args) {
    smelt_indexer_topk_args choice;
    if (subject->call != call_indexer_topk_forward)
        return 0;
    memcpy(&choice, args, sizeof choice);
    return choice.tokens > 100000 || (choice.workspace_limit > 0 && choice.tokens > 1000);
}

static int call(const struct subject *subject, const void *made, const union arguments *args) {
    driver->chain_length = 0;
    const smelt_status status = subject->call(made, args);
    assert_int_equal(driver->strays, 0);
    if (status == SMELT_OK) {
        for (int i = 0; i < driver->chain_length; i++)
            assert_in_range(driver->chain[i].blocks, 1, INT32_MAX);
        return 1;
    }
    assert_int_equal(status, SMELT_ERROR_INVALID_ARGUMENT);
    assert_true(strlen(smelt_last_error()) > 10);
    assert_int_equal(driver->chain_length, 0);
    return 0;
}

/* An operator that was called before, which it may have kept something of, launches as one that was
 * not, and refuses what that one refuses, in its words. */
static void compare_first_call(const struct subject *subject, const union arguments *args,
                               int launched) {
    static struct fake_launch again[FAKE_CHAIN];
    static char message[4096];
    const int count = driver->chain_length;
    void *first;
    memcpy(again, driver->chain, sizeof again);
    snprintf(message, sizeof message, "%s", smelt_last_error());
    assert_int_equal(subject->create(subject->spec, &first), SMELT_OK);
    assert_int_equal(call(subject, first, args), launched);
    if (!launched)
        assert_string_equal(smelt_last_error(), message);
    subject->destroy(&first);
    assert_int_equal(driver->chain_length, count);
    for (int i = 0; i < count; i++) {
        assert_int_equal(driver->chain[i].blocks, again[i].blocks);
        assert_int_equal(driver->chain[i].pdl, again[i].pdl);
    }
}

/* ---- properties of calls that launch --------------------------------------------------------- */

/* Tensors may begin at any multiple of their elements, or of whole rows, and nowhere else. */
static void shift_addresses(const struct subject *subject, const void *made,
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
            if (call(subject, made, &args) == (bytes == alignment))
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

/* Whether a call with as much workspace as it asks for is launched. */
static int takes(const struct subject *subject, const void *made, union arguments *args) {
    size_t bytes = 0;
    if (subject->ask && subject->ask(made, args, &bytes) != SMELT_OK)
        return 0;
    if (subject->ask)
        memcpy((char *)args + subject->workspace_bytes, &bytes, sizeof bytes);
    return call(subject, made, args);
}

/* If an extent is refused, so are all larger ones: no product of extents wraps. `field`: its
 * offset. */
static void grow_extent(const struct subject *subject, const void *made,
                        const union arguments *good, size_t field) {
    int refused = 0;
    driver->no_fills = 1; /* the workspace is not as large as it is said to be */
    for (int bits = 9; bits < 32; bits++)
        for (int more = -1; more < 2; more++) {
            union arguments args = plain_call(subject, good);
            const int64_t extent = (INT64_C(1) << bits) + more;
            memcpy((char *)&args + field, &extent, sizeof extent);
            const int taken = takes(subject, made, &args);
            if (taken && refused)
                fail_msg("%s: %lld %s are taken, but a smaller number is refused", subject->spec,
                         (long long)extent, field == subject->rows ? "rows" : "tokens");
            refused = !taken;
        }
    driver->no_fills = 0;
    assert_true(refused); /* 2^31 + 1 */
}

static void grow_extents(const struct subject *subject, const void *made,
                         const union arguments *good) {
    const int in_chunks =
        strstr(subject->spec, "deterministic") || subject->call == call_indexer_topk_forward;
    if (subject->tokens && !in_chunks) /* of which there would be millions */
        grow_extent(subject, made, good, subject->tokens);
    grow_extent(subject, made, good, subject->rows);
}

/* Calls of every operator that there is on a device of this compute capability. */
static void call_all(struct random *random, int major) {
    const smelt_context_options options = fakes_options();
    driver->capability_major = major;
    assert_int_equal(smelt_context_create(&context, &options), SMELT_OK);
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) {
        const struct subject *subject = &subjects[i];
        union arguments args, good;
        void *made;
        int launched = 0;
        assert_true(subject->size <= sizeof args);
        const smelt_status status = subject->create(subject->spec, &made);
        if (status == SMELT_ERROR_UNSUPPORTED && major == 8) /* fp8 comes with 8.9 */
            continue;
        assert_int_equal(status, SMELT_OK);
        for (int k = 0, since = 0; k < MOST_CALLS && since<calls; k++, since += launched> 0) {
            draw_arguments(random, subject, launched && k % 4 ? &good : NULL, &args);
            if (takes_long(subject, &args))
                continue;
            give_workspace(subject, made, &args);
            if (!call(subject, made, &args)) {
                if (k % 4 == 1)
                    compare_first_call(subject, &args, 0);
            } else if (driver->chain_length > 0) {
                compare_first_call(subject, &args, 1);
                if (launched < 4) {
                    shift_addresses(subject, made, &args);
                    grow_extents(subject, made, &args);
                }
                good = args;
                launched++;
            }
        }
        subject->destroy(&made);
        printf("sm_%d0, %s: %d of %d launched\n", major, subject->spec, launched, calls);
        assert_in_range(launched, 1, calls - 1); /* and some are refused */
    }
    smelt_context_destroy(&context);
}

static void random_arguments(void **unused) {
    (void)unused;
    struct random random = random_begin("random_arguments");
    static const int majors[] = {8, 9, 10};
    for (size_t i = 0; i < sizeof majors / sizeof *majors; i++)
        call_all(&random, majors[i]);
}

static int begin(void **unused) {
    (void)unused;
    driver = fakes_driver();
    driver->devices = 1;
    driver->context_id = 1;
    driver->chain_params = 0;
    driver->stream = (CUstream)(void *)&context; /* any that is not the default one */
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_arguments)};
    return cmocka_run_group_tests_name("arguments on fakes", tests, begin, end);
}
