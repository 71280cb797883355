/* Rows of knobs: a row's contents are true for its family, and plans read only knobs with a row.
 * This file intercepts plan functions' reads of a spec (the linker's --wrap, meson.build). */

#include "codegen/family.h"
#include "codegen/spec/keys.h"
#include "random_spec.h"
#include "test.h"

/* ---- reads of a plan function ------------------------------------------------------------------- */

int64_t __real_smelt__spec_get(const struct smelt__spec *spec, const char *name);
int __real_smelt__spec_knob(const struct smelt__spec *spec, const char *name, int otherwise);
enum smelt__origin __real_smelt__plan_origin(const struct smelt__spec *spec, const char *knob);
int64_t __wrap_smelt__spec_get(const struct smelt__spec *spec, const char *name);
int __wrap_smelt__spec_knob(const struct smelt__spec *spec, const char *name, int otherwise);
enum smelt__origin __wrap_smelt__plan_origin(const struct smelt__spec *spec, const char *knob);

static const struct smelt__variant *planned; /* whose function runs; NULL: none */
static int was_read[SMELT__MAX_KEYS];

/* Records a read of a value, or only of its origin, which functions of all variants read. */
static void note(const struct smelt__spec *spec, const char *name, int is_value) {
    if (!planned)
        return;
    const int key = smelt__spec_key(spec->schema, name);
    if (key < 0)
        fail_msg("%s: variant %s reads %s, which has no row", spec->schema->name, planned->name,
                 name);
    const struct smelt__key *row = &spec->schema->keys[key];
    if (is_value && row->variants && !smelt__name_listed(row->variants, planned->name))
        fail_msg("%s: variant %s reads %s, a knob of %s alone", spec->schema->name, planned->name,
                 name, row->variants);
    was_read[key] |= is_value;
}

int64_t __wrap_smelt__spec_get(const struct smelt__spec *spec, const char *name) {
    note(spec, name, 1);
    return __real_smelt__spec_get(spec, name);
}

int __wrap_smelt__spec_knob(const struct smelt__spec *spec, const char *name, int otherwise) {
    note(spec, name, 1);
    return __real_smelt__spec_knob(spec, name, otherwise);
}

enum smelt__origin __wrap_smelt__plan_origin(const struct smelt__spec *spec, const char *knob) {
    note(spec, knob, 0);
    return __real_smelt__plan_origin(spec, knob);
}

/* Plans a random spec with a variant, which has its knobs. */
static void plan_with(struct random *random, const struct smelt__schema *schema,
                      const struct smelt__variant *variant) {
    struct smelt__spec spec = random_spec(random, schema);
    struct smelt__message message;
    /* Half of the time, an architecture with every variant. */
    const struct smelt__arch *arch = random_below(random, 2)
                                         ? smelt__arch_at(random_below(random, 16))
                                         : smelt__arch_find("sm_90a", &message);
    struct smelt__plan plan = {.arch = arch, .variant = variant->name, .blocks_per_item = 1};
    for (int i = 0; i < schema->key_count; i++)
        if (schema->keys[i].variants &&
            !smelt__name_listed(schema->keys[i].variants, variant->name))
            spec.values[i] = SMELT__AUTO;
    plan.spec = spec;
    planned = variant;
    const int status = variant->plan(&spec, plan.arch, &plan, &message);
    planned = NULL;
    if (!status && plan.defect)
        fail_msg("%s: variant %s: %s", schema->name, variant->name, plan.defect);
}

/* Each knob that a plan reads has a row that names the variant, and each row is read. */
TEST(what_plans_read) {
    enum { SPECS = 1000 };
    struct random random = random_begin("what_plans_read");
    const struct smelt__schema *schema;
    for (int f = 0; (schema = smelt__schema_at(f)); f++) {
        if (smelt__operator_of(schema))
            continue;
        memset(was_read, 0, sizeof was_read);
        const struct smelt__variant *variant = smelt__kernels_of(schema)->variants;
        for (; variant->name; variant++)
            for (int i = 0; i < SPECS; i++)
                plan_with(&random, schema, variant);
        for (int k = 0; k < schema->key_count; k++)
            if (!was_read[k] && strcmp(schema->keys[k].name, "variant") != 0)
                fail_msg("%s: no plan reads %s", schema->name, schema->keys[k].name);
    }
}

/* ---- rows --------------------------------------------------------------------------------------- */

static int has_variant(const struct smelt__schema *schema, const char *name) {
    const struct smelt__variant *variant = smelt__kernels_of(schema)->variants;
    while (variant->name && strcmp(variant->name, name) != 0)
        variant++;
    return variant->name != NULL;
}

/* Checks that each name of "a, b" is known. */
static void check_names(const struct smelt__schema *schema, const char *list,
                        int (*is_known)(const struct smelt__schema *, const char *)) {
    char copy[80], *rest = copy;
    snprintf(copy, sizeof copy, "%s", list);
    for (char *name; (name = strsep(&rest, ","));)
        if (!is_known(schema, name + strspn(name, " ")))
            fail_msg("%s: '%s': unknown '%s'", schema->name, list, name);
}

static const struct smelt__key *condition; /* the key of an only_with that is checked */

static int is_its_value(const struct smelt__schema *schema, const char *name) {
    struct smelt__spec spec;
    struct smelt__message message;
    char text[80];
    smelt__spec_init(&spec, schema);
    snprintf(text, sizeof text, "%s=%s", condition->name, name);
    return smelt__spec_parse_keys(text, 0, &spec, &message) == 0;
}

static void check_only_with(const struct smelt__schema *schema, const struct smelt__key *key) {
    char name[40];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(key->only_with, "="), key->only_with);
    const int index = smelt__spec_key(schema, name);
    assert_true(index >= 0);
    condition = &schema->keys[index];
    check_names(schema, key->only_with + strlen(name) + 1, is_its_value);
}

/* Legal values ascend and agree with their text. */
static void check_legal(const struct smelt__key *key) {
    int64_t value, before = INT64_MIN;
    if (key->list)
        return;
    assert_int_equal(strncmp(key->legal, "auto, ", 6) == 0, key->knob);
    for (int i = 0; smelt__key_value(key, i, &value) == 0 && i < 4096; i++) {
        assert_true(value > before);
        assert_true(smelt__key_takes(key, value));
        if (key->choices && !smelt__name_listed(key->legal, key->choices[i]))
            fail_msg("%s: '%s' lacks %s", key->name, key->legal, key->choices[i]);
        before = value;
    }
    assert_true(before > INT64_MIN);
    assert_false(smelt__key_takes(key, before + 1) && before < 4000);
    assert_false(smelt__key_takes(key, SMELT__AUTO));
}

/* Candidates are legal and distinct. */
static void check_candidates(const struct smelt__schema *schema, const struct smelt__key *key) {
    int64_t value, other;
    int count = 0;
    for (; smelt__key_candidate(key, count, &value) == 0; count++) {
        if (!smelt__key_takes(key, value))
            fail_msg("%s: %s=%d is no legal value", schema->name, key->name, (int)value);
        for (int i = 0; i < count; i++) {
            smelt__key_candidate(key, i, &other);
            assert_true(other != value);
        }
    }
    assert_int_equal(key->tuned, count > 0);
    assert_in_range(count, 0, 12); /* in a search over all knobs */
}

TEST(rows) {
    const struct smelt__schema *schema;
    int tuned = 0;
    for (int f = 0; (schema = smelt__schema_at(f)); f++)
        for (int k = 0; k < schema->key_count; k++) {
            const struct smelt__key *key = &schema->keys[k];
            check_legal(key);
            check_candidates(schema, key);
            if (key->variants || key->only_with || key->fixed_in || key->tuned)
                assert_true(key->knob);
            if (key->variants)
                check_names(schema, key->variants, has_variant);
            if (key->only_with)
                check_only_with(schema, key);
            if (key->fixed_in)
                assert_true(has_variant(schema, key->fixed_in) &&
                            smelt__key_takes(key, key->fixed));
            tuned += key->tuned;
        }
    assert_true(tuned > 30);
}

/* If a variant has a single value of a knob, that value gives its plan, and every other value does
 * not. */
TEST(fixed_values) {
    static const char *const specs[] = {
        "sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048",
        "sparse_attn_bwd:heads=64,dqk=576,dv=512",
    };
    struct smelt__message message = {0};
    const struct smelt__arch *arch = smelt__arch_find("sm_90a", &message);
    int fixed = 0;
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        struct smelt__spec spec;
        assert_int_equal(smelt__spec_parse(specs[s], &spec, &message), 0);
        for (int k = 0; k < spec.schema->key_count; k++) {
            const struct smelt__key *key = &spec.schema->keys[k];
            struct smelt__spec with = spec;
            struct smelt__plan plan;
            int64_t value;
            for (int i = 0; key->fixed_in && smelt__key_value(key, i, &value) == 0; i++, fixed++) {
                smelt__spec_set(&with, "variant", 1); /* sm90 */
                with.values[k] = value;
                const int status = smelt__plan_make(&with, arch, &plan, &message);
                assert_int_equal(status, value == key->fixed ? 0 : -1);
                if (status)
                    assert_non_null(
                        strstr(message.text, "is not legal with variant=sm90, which has"));
            }
        }
    }
    assert_true(fixed > 10);
}

TESTS("knobs")
