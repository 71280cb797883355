/* Properties of plans and sources of random specs on every architecture. */
#include <ctype.h>

#include "codegen/families/sparse_attn_fwd.h"
#include "codegen/family.h"
#include "codegen/spec/keys.h"
#include "codegen/template/engine.h"
#include "random_spec.h"
#include "spec_cases.h"
#include "test.h"

/* Compares the plan's numbers with the architecture's limits. */
static void check_limits(const struct smelt__plan *plan) {
    const struct smelt__arch *arch = plan->arch;
    assert_in_range(plan->shared_bytes, 0, arch->shared_per_block);
    assert_true(plan->threads > 0 && plan->threads <= 1024 && plan->threads % 32 == 0);
    assert_true(plan->blocks_per_multiprocessor >= 1);
    assert_true(plan->blocks_per_multiprocessor * plan->threads <=
                arch->threads_per_multiprocessor);
    assert_true(plan->blocks_per_multiprocessor * (plan->shared_bytes + arch->shared_reserved) <=
                arch->shared_per_multiprocessor);
    assert_true(plan->max_registers >= 24 && plan->max_registers <= 255);
    assert_true((long)plan->max_registers * plan->threads * plan->blocks_per_multiprocessor <=
                arch->registers_per_multiprocessor);
    /* Every head has a block, and no block is idle. */
    if (smelt__spec_key(plan->spec.schema, "heads") < 0)
        return;
    int found, heads = (int)smelt__spec_get(&plan->spec, "heads");
    int each = smelt__plan_constant(plan, "BLOCK_HEADS", &found);
    each = found ? each : 64; /* the one size of sm90 with heads as rows */
    if (!plan->item)          /* the kernel does not process items */
        return;
    if (strcmp(plan->item, "tile") == 0) { /* a tile of queries and keys, with all heads */
        assert_true(smelt__plan_constant(plan, "BLOCK_QUERIES", &found) > 0 ||
                    smelt__plan_constant(plan, "ITEM_TILES", &found) > 0);
        assert_true(smelt__plan_constant(plan, "BLOCK_KEYS", &found) > 0);
        assert_int_equal(plan->blocks_per_item, 1);
        return;
    }
    if (strcmp(plan->item, "rows") == 0) { /* of queries: heads in items of their own */
        assert_true(smelt__plan_constant(plan, "QUERY_ROWS", &found) > 0);
        assert_int_equal(plan->blocks_per_item, 1);
        return;
    }
    assert_true(strcmp(plan->item, "query") == 0 || strcmp(plan->item, "group") == 0);
    const int group = smelt__plan_constant(plan, "GROUP_HEADS", &found);
    if (found && plan->blocks_per_item == smelt__plan_constant(plan, "KV_HEADS", NULL)) {
        /* an item for each KV head, with its heads, of several queries perhaps, and padded */
        const int queries = smelt__plan_constant(plan, "ITEM_QUERIES", &found);
        const int rows = (found ? queries : 1) * group;
        assert_true(each >= rows && each < rows + 16);
        return;
    }
    smelt__plan_constant(plan, "GROUP_QUERIES", &found);
    if (found) { /* rows of several queries, and of padded heads */
        const int rows = smelt__plan_constant(plan, "GROUP_QUERIES", &found) * heads;
        assert_true(each > 0 && plan->blocks_per_item > 0);
        assert_true(each * plan->blocks_per_item >= rows);
        assert_true(each * (plan->blocks_per_item - 1) < rows);
        return;
    }
    assert_true(each > 0 && plan->blocks_per_item > 0);
    if (plan->blocks_per_item == 1 && smelt__spec_key(plan->spec.schema, "topk") < 0)
        return; /* a sum over the heads, which a block processes part by part */
    assert_true(each * plan->blocks_per_item >= heads);
    assert_true(each * (plan->blocks_per_item - 1) < heads);
}

static void check_regions(const struct smelt__plan *plan) {
    int end = 0;
    for (int i = 0; i < plan->region_count; i++) {
        const struct smelt__region *region = &plan->regions[i];
        assert_true(region->bytes >= 0);    /* 0: a tile that this shape does not use */
        assert_true(region->offset >= end); /* ascending and disjoint */
        assert_int_equal(region->offset % 4, 0);
        end = region->offset + region->bytes;
    }
    assert_int_equal(end, plan->shared_bytes);
}

static int is_identifier(const char *name) {
    if (!isalpha((unsigned char)*name) && *name != '_')
        return 0;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && *name != '_')
            return 0;
    return 1;
}

/* A knob of the spec is in the plan, with the spec as its origin; every number has a meaning. */
static void check_constants(const struct smelt__plan *plan) {
    for (int i = 0; i < plan->constant_count; i++) {
        const struct smelt__constant *constant = &plan->constants[i];
        assert_true(is_identifier(constant->name));
        assert_true(constant->meaning && *constant->meaning);
        assert_null(strstr(constant->meaning, "*/"));
    }
    int knobs = 0, given = 0;
    for (int i = 0; i < plan->constant_count; i++)
        knobs += plan->constants[i].origin == SMELT__FROM_KNOB;
    for (int i = 0; i < plan->spec.schema->key_count; i++) {
        const struct smelt__key *key = &plan->spec.schema->keys[i];
        if (!key->knob || key->choices || plan->spec.values[i] == SMELT__AUTO)
            continue;
        given++;
        char name[32] = "";
        for (size_t j = 0; key->name[j]; j++)
            name[j] = (char)toupper((unsigned char)key->name[j]);
        int found;
        int value = smelt__plan_constant(plan, name, &found);
        if (found)
            assert_int_equal(value, plan->spec.values[i]);
    }
    if (knobs != given) {
        char text[SMELT__SPEC_TEXT];
        smelt__spec_print(&plan->spec, text);
        fail_msg("%s on %s: %d of %d knobs are in the plan", text, plan->arch->name, knobs, given);
    }
    assert_true(is_identifier(plan->kernel_name));
}

static void check_deterministic(const struct smelt__plan *plan) {
    struct smelt__plan again;
    struct smelt__message message = {0};
    struct smelt__text first = {0}, second = {0};
    memset(&again, 0x5a, sizeof again);
    assert_int_equal(smelt__plan_make(&plan->spec, plan->arch, &again, &message), 0);
    smelt__plan_print_text(plan, &first);
    smelt__plan_print_json(plan, &first);
    smelt__plan_print_text(&again, &second);
    smelt__plan_print_json(&again, &second);
    if (smelt__source_emit(plan, NULL, &first, &message) ||
        smelt__source_emit(&again, NULL, &second, &message))
        fail_msg("%s", message.text);
    assert_int_equal(first.failed + second.failed, 0);
    assert_string_equal(first.data, second.data);
    smelt__text_free(&first);
    smelt__text_free(&second);
}

TEST(invariants) {
    struct random random = random_begin("invariants");
    int planned = 0, refused = 0;
    for (int i = 0; i < 3000; i++) {
        struct smelt__spec spec = random_spec(&random, random_kernel(&random));
        const struct smelt__arch *arch;
        for (int a = 0; (arch = smelt__arch_at(a)); a++) {
            struct smelt__plan plan;
            struct smelt__message message = {0};
            if (smelt__plan_make(&spec, arch, &plan, &message)) {
                assert_true(strlen(message.text) > 10);
                refused++;
                continue;
            }
            check_limits(&plan);
            check_regions(&plan);
            check_constants(&plan);
            if (random_below(&random, 16) == 0)
                check_deterministic(&plan);
            planned++;
        }
    }
    printf("%d planned, %d refused with a reason\n", planned, refused);
    assert_true(planned > 10000);
}

/* Every legal spec without knobs has a plan on every architecture. */
TEST(every_shape_is_planned) {
    struct random random = random_begin("every_shape_is_planned");
    for (int i = 0; i < 2000; i++) {
        struct smelt__spec spec = random_spec(&random, &smelt__sparse_attn_fwd.schema);
        for (int k = 0; k < spec.schema->key_count; k++)
            if (spec.schema->keys[k].knob)
                spec.values[k] = SMELT__AUTO;
        const struct smelt__arch *arch;
        for (int a = 0; (arch = smelt__arch_at(a)); a++) {
            struct smelt__plan plan;
            struct smelt__message message = {0};
            char text[SMELT__SPEC_TEXT];
            smelt__spec_print(&spec, text);
            if (smelt__plan_make(&spec, arch, &plan, &message))
                fail_msg("%s on %s: %s", text, arch->name, message.text);
        }
    }
}

/* Whether a knob's value has a plan for some shape, with no other knob than `variant`; also true if
 * the check refuses it for every shape. */
static int is_planned(struct random *random, const struct smelt__schema *schema, int key,
                      int64_t value) {
    enum { SHAPES = 400 };
    const int variant = smelt__spec_key(schema, "variant");
    int legal = 0;
    for (int i = 0; i < SHAPES; i++) {
        struct smelt__spec spec = random_spec(random, schema);
        struct smelt__message message;
        const struct smelt__arch *arch;
        for (int k = 0; k < schema->key_count; k++)
            if (schema->keys[k].knob && k != variant)
                spec.values[k] = SMELT__AUTO;
        spec.values[key] = value;
        if (smelt__spec_check(&spec, &message))
            continue;
        legal = 1;
        for (int a = 0; (arch = smelt__arch_at(a)); a++) {
            struct smelt__plan plan;
            if (smelt__plan_make(&spec, arch, &plan, &message) == 0)
                return 1;
        }
    }
    return !legal;
}

/* The next legal value of a row to try: all names and numbers; of a range the ends and the powers
 * of two between. */
static int next_index(const struct smelt__key *key, int index) {
    const int64_t last = (key->maximum - key->minimum) / (key->step ? key->step : 1);
    if (key->choices || key->values || index == 0 || index == last)
        return index + 1;
    return 2 * index < last ? 2 * index : (int)last;
}

/* Each legal value of a knob has a plan of some kernel. */
TEST(every_value_has_a_plan) {
    struct random random = random_begin("every_value_has_a_plan");
    const struct smelt__schema *schema;
    int values = 0, unplanned = 0;
    for (int f = 0; (schema = smelt__schema_at(f)); f++) {
        if (smelt__operator_of(schema))
            continue;
        for (int k = 0; k < schema->key_count; k++) {
            const struct smelt__key *key = &schema->keys[k];
            int64_t value;
            for (int i = 0; key->knob && smelt__key_value(key, i, &value) == 0;
                 i = next_index(key, i)) {
                values++;
                if (!is_planned(&random, schema, k, value)) {
                    printf("%s:%s=%lld has no plan\n", schema->name, key->name, (long long)value);
                    unplanned++;
                }
            }
        }
    }
    printf("%d values\n", values);
    assert_true(values > 150);
    assert_int_equal(unplanned, 0);
}

#define FWD64 "sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048"
#define FWD8 "sparse_attn_fwd:heads=8,dqk=576,dv=512,topk=2048"

TEST(refusals) {
    static const struct plan_case cases[] = {
        {"sparse_attn:heads=64,dqk=576,dv=512,topk=2048", "sm_90a", "is an operator"},
        {FWD64 ",block_keys=128,stages=4", "sm_86", "KB of shared memory"},
        {FWD64 ",block_keys=128,stages=4,blocks=1", "sm_86", "99"},
        {FWD64 ",variant=sm90", "sm_90", "runs on sm_90a only; use variant=mma on sm_90"},
        {FWD64 ",variant=sm90", "sm_100a", "runs on sm_90a only; use variant=mma on sm_100a"},
        {"sparse_attn_fwd:heads=64,dqk=128,dv=128,topk=2048,variant=sm90", "sm_90a",
         "dqk=576 or 512 with dv=512, not dqk=128 with dv=128; variant=mma has it"},
        {FWD64 ",variant=sm90,stages=4", "sm_90a", "the nearest legal one is 3, from 2..3"},
        {FWD64 ",pv_overlap=26,gather_registers=32", "sm_90a",
         "pv_overlap=26 is not legal with variant=sm90 and heads as rows; the nearest "
         "legal one is 23, from 0..23"},
        {FWD64 ",gather_registers=64", "sm_90a",
         "the nearest legal one is 48, from multiples of 8 in 24..48"},
        {FWD64 ",output_registers=168,gather_registers=40", "sm_90a",
         "the nearest legal one is 32, from multiples of 8 in 24..32"},
        {FWD64 ",stages=3,gather_registers=32", "sm_90a",
         "use fewer stages, output_registers or gather_registers"},
        {FWD8 ",pv_overlap=3", "sm_90a", "pv_overlap is a knob of orientation=heads"},
        {FWD64 ",part_tiles=2", "sm_90a", "part_tiles is a knob of orientation=keys"},
        {FWD8 ",variant=mma,part_tiles=2", "sm_90a",
         "part_tiles is a knob of variant=sm90; variant=mma has no such knob"},
        {"sparse_attn_fwd:heads=30,dqk=576,dv=512,topk=2048,variant=sm90,stages=3", "sm_90a",
         "stages=3 with 32 heads (rounded up) and dqk=576 needs more than the 227 KB of shared "
         "memory; legal: "
         "2..2, or auto, the 18 tiles"},
        {"sparse_attn_fwd:heads=8,dqk=512,dv=512,topk=2048,variant=sm90,stages=4", "sm_90a",
         "legal: 2..3, or auto, the 25 tiles"},
        {FWD8 ",variant=sm90,block_keys=32", "sm_90a",
         "block_keys=32 is not legal with variant=sm90, which has 64"},
        {FWD8 ",gather_registers=24", "sm_90a", "legal: multiples of 8 in 64..88"},
        {FWD64 ",racecheck=1", "sm_90", "runs on sm_90a only"},
        {FWD8 ",variant=mma,racecheck=1", "sm_90a",
         "racecheck is a knob of variant=sm90; variant=mma has no such knob"},
        {FWD8 ",variant=mma,gather_registers=24", "sm_90a",
         "gather_registers is a knob of variant=sm90; variant=mma has no such knob"},
        {FWD8 ",gather_registers=24", "sm_80",
         "variant=sm90 runs on sm_90a only; use variant=mma on sm_80"},
        {"sparse_gqa_united:heads=8,kv_heads=1,dqk=64,dv=64,granularity=64", "sm_80",
         "sparse_gqa_united runs on sm_90a only, not on sm_80"}, /* it has no variant mma */
        {"sparse_gqa_united:heads=17,kv_heads=1,dqk=64,dv=64,granularity=64", "sm_90a",
         "at most 16 heads of a KV head"},
        {FWD64 ",variant=sm90,block_keys=32", "sm_90a",
         "block_keys=32 is not legal with variant=sm90, which has 64"},
        {FWD64 ",variant=sm90,compact=0", "sm_90a", "compact=0 is not legal"},
        {FWD64 ",variant=sm90,warps=8", "sm_90a",
         "warps is a knob of variant=mma; variant=sm90 has no such knob"},
        {FWD64 ",variant=sm90,orientation=keys", "sm_90a",
         "at most 32 heads, not 64; orientation=heads"},
    };
    check_plans(cases, sizeof cases / sizeof *cases);
}

static const struct smelt__constant *constant_of(const struct smelt__plan *plan, const char *name) {
    for (int i = 0; i < plan->constant_count; i++)
        if (strcmp(plan->constants[i].name, name) == 0)
            return &plan->constants[i];
    fail_msg("no constant %s", name);
    return NULL;
}

static void expect_constant(const struct smelt__plan *plan, const char *name, int value,
                            enum smelt__origin origin) {
    const struct smelt__constant *constant = constant_of(plan, name);
    assert_int_equal(constant->value, value);
    assert_int_equal(constant->origin, origin);
}

/* Keys as rows: the ring takes the shared memory that two queries' Q leaves, also if that is not a
 * whole number of stages. */
TEST(ring_by_rule) {
    static const struct {
        const char *spec;
        int ring_tiles, stages, part_tiles;
        enum smelt__origin stages_from, parts_from;
    } cases[] = {
        {"heads=1,dqk=576", 25, 2, 4, SMELT__FROM_RULE, SMELT__FROM_RULE},
        {"heads=8,dqk=512", 25, 3, 4, SMELT__FROM_RULE, SMELT__FROM_RULE},
        {"heads=9,dqk=576", 23, 2, 4, SMELT__FROM_RULE, SMELT__FROM_RULE},
        {"heads=32,dqk=576", 18, 2, 2, SMELT__FROM_RULE, SMELT__FROM_RULE},
        {"heads=32,dqk=512", 18, 2, 2, SMELT__FROM_RULE, SMELT__FROM_RULE},
        {"heads=16,dqk=576,stages=2", 18, 2, 4, SMELT__FROM_KNOB, SMELT__FROM_RULE},
        {"heads=8,dqk=512,stages=3,part_tiles=2", 24, 3, 2, SMELT__FROM_KNOB, SMELT__FROM_KNOB},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[SMELT__SPEC_TEXT];
        snprintf(text, sizeof text, "sparse_attn_fwd:%s,dv=512,topk=2048", cases[i].spec);
        struct smelt__plan plan;
        struct smelt__message message;
        assert_int_equal(make_plan(text, "sm_90a", &plan, &message), 0);
        expect_constant(&plan, "RING_TILES", cases[i].ring_tiles, SMELT__DERIVED);
        expect_constant(&plan, "STAGES", cases[i].stages, cases[i].stages_from);
        expect_constant(&plan, "PART_TILES", cases[i].part_tiles, cases[i].parts_from);
        assert_string_equal(plan.template_name, "sparse_attn_fwd.sm90_few.cu");
        assert_true(plan.shared_bytes <= 227 * 1024);
    }
}

/* Pairs of thread blocks for blocks of 64 heads: if their number is even, unless the knob disables
 * it. */
TEST(backward_pairs) {
    static const struct {
        const char *spec;
        int cluster;
        enum smelt__origin from;
    } cases[] = {
        {"heads=64", 0, SMELT__FROM_RULE},
        {"heads=65", 2, SMELT__FROM_RULE},
        {"heads=128", 2, SMELT__FROM_RULE},
        {"heads=192", 0, SMELT__FROM_RULE},
        {"heads=256", 2, SMELT__FROM_RULE},
        {"heads=8", 0, SMELT__FROM_RULE},
        {"heads=128,deterministic=1", 2, SMELT__FROM_RULE},
        {"heads=192,deterministic=1", 0, SMELT__FROM_RULE},
        {"heads=128,pairs=0", 0, SMELT__FROM_KNOB},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[SMELT__SPEC_TEXT];
        snprintf(text, sizeof text, "sparse_attn_bwd:dqk=576,dv=512,variant=sm90,%s",
                 cases[i].spec);
        struct smelt__plan plan;
        struct smelt__message message;
        assert_int_equal(make_plan(text, "sm_90a", &plan, &message), 0);
        expect_constant(&plan, "PAIR", cases[i].cluster > 0, cases[i].from);
        assert_int_equal(plan.cluster, cases[i].cluster);
    }
}

/* A tuning entry gives the knobs that the spec does not, key by key, and the plan names this
 * origin. */
TEST(tuned) {
    static const char asked[] = "sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048,pv_overlap=4";
    struct smelt__spec spec;
    struct smelt__plan plan, rule;
    struct smelt__message message = {0};
    struct smelt__text text = {0};
    const struct smelt__arch *arch = smelt__arch_find("sm_90a", &message);
    assert_int_equal(smelt__spec_parse(asked, &spec, &message), 0);
    assert_int_equal(smelt__plan_make_tuned(&spec, arch, "stages=2,pv_overlap=18", &plan, &message),
                     0);
    expect_constant(&plan, "STAGES", 2, SMELT__FROM_TUNING);
    expect_constant(&plan, "PV_OVERLAP", 4, SMELT__FROM_KNOB);
    expect_constant(&plan, "GATHER_REGISTERS", 24, SMELT__FROM_RULE);
    smelt__plan_print_text(&plan, &text);
    assert_non_null(strstr(text.data, "tuned"));
    assert_non_null(strstr(text.data, asked));
    assert_null(strstr(text.data, "stages=2"));
    smelt__text_free(&text);
    /* The banner's command names them: it needs no tuning file. */
    assert_int_equal(smelt__source_emit(&plan, NULL, &text, &message), 0);
    assert_non_null(strstr(text.data, "stages=2,pv_overlap=4 --arch sm_90a"));
    smelt__text_free(&text);
    /* Without an entry, or with one without knobs: exactly the rule's plan. */
    assert_int_equal(smelt__plan_make(&spec, arch, &rule, &message), 0);
    const char *const nothing[] = {NULL, ""};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(smelt__plan_make_tuned(&spec, arch, nothing[i], &plan, &message), 0);
        assert_memory_equal(&plan, &rule, sizeof plan);
    }
    static const char *const bad[] = {"stages=9", "heads=8", "stages", "stages=4", "turn=2", "="};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(smelt__plan_make_tuned(&spec, arch, bad[i], &plan, &message), -1);
}

/* The arena's arithmetic, and a family's additions. */
TEST(building) {
    struct smelt__plan plan = {0};
    int found;
    smelt__plan_add(&plan, "ONE", 1, SMELT__DERIVED, "one");
    assert_int_equal(smelt__plan_add_region(&plan, "A_OFFSET", 100, 16, "a"), 0);
    assert_int_equal(plan.shared_bytes, 100);
    assert_int_equal(smelt__plan_add_region(&plan, "B_OFFSET", 4, 128, "b"), 128);
    assert_int_equal(plan.shared_bytes, 132);
    assert_int_equal(smelt__plan_constant(&plan, "ONE", &found), 1);
    assert_int_equal(smelt__plan_constant(&plan, "B_OFFSET", &found), 128);
    assert_int_equal(smelt__plan_constant(&plan, "SHARED_BYTES", &found), 132);
    assert_int_equal(found, 1);
    smelt__plan_constant(&plan, "TWO", &found);
    assert_int_equal(found, 0);
}

/* ---- variants, of a family made for it ------------------------------------------------------- */

static int takes(const struct smelt__spec *spec, const struct smelt__arch *arch,
                 struct smelt__plan *plan, struct smelt__message *message) {
    (void)spec, (void)arch, (void)plan, (void)message;
    return 0;
}

static int refuses(const struct smelt__spec *spec, const struct smelt__arch *arch,
                   struct smelt__plan *plan, struct smelt__message *message) {
    (void)spec, (void)arch, (void)plan;
    smelt__message_set(message, "refused");
    return -1;
}

static const struct smelt__key made_keys[] = {
    {SMELT__KNOB("variant", ""), SMELT__NAMES_3(best, second, last)},
    {SMELT__KNOB("shared", ""), SMELT__AUTO_ONE_OF(1), .variants = "best, second"},
    {SMELT__KNOB("own", ""), SMELT__AUTO_ONE_OF(1), .variants = "best"}};

/* The best variant refuses every spec; the knob `shared` belongs to it and to the second one, not
 * to the last. */
TEST(knobs_of_variants) {
    static const struct smelt__variant variants[] = {
        {"best", refuses}, {"second", takes}, {"last", takes}, {NULL, NULL}};
    static const struct smelt__kernel_family family = {
        .schema = {.name = "made", .keys = made_keys, .key_count = 3}, .variants = variants};
    static const struct {
        const char *knobs, *variant, *refusal; /* one of the two */
    } cases[] = {
        {"", "second", NULL},
        {"shared=1", "second", NULL},
        {"variant=last", "last", NULL},
        {"own=1", NULL, "refused"},
        {"variant=best", NULL, "refused"},
        {"variant=second,own=1", NULL,
         "own is a knob of variant=best; variant=second has no such knob"},
        {"variant=last,shared=1", NULL,
         "shared is a knob of variant=best, second; variant=last has no such knob"},
    };
    struct smelt__message message;
    const struct smelt__arch *arch = smelt__arch_find("sm_80", &message);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct smelt__spec spec;
        struct smelt__plan plan;
        smelt__spec_init(&spec, &family.schema);
        assert_int_equal(smelt__spec_parse_keys(cases[i].knobs, 1, &spec, &message), 0);
        const int status = smelt__plan_make(&spec, arch, &plan, &message);
        assert_int_equal(status, cases[i].variant ? 0 : -1);
        if (cases[i].variant)
            assert_string_equal(plan.variant, cases[i].variant);
        else
            assert_non_null(strstr(message.text, cases[i].refusal));
    }
}

TESTS("plan")
