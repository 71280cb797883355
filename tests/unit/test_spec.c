/* Specs: round trips, canonical text, messages for invalid input. */

#include "codegen/families/sparse_attn.h"
#include "codegen/families/sparse_attn_fwd.h"
#include "codegen/spec/names.h"
#include "random_spec.h"
#include "test.h"

/* Numbers of the spec's list key, if it has one. */
static int list_length(const struct smelt__spec *spec) {
    for (int i = 0; i < spec->schema->key_count; i++)
        if (spec->schema->keys[i].list && spec->values[i] != SMELT__AUTO)
            return (int)spec->values[i];
    return 0;
}

TEST(round_trip) {
    struct random random = random_begin("round_trip");
    for (int f = 0; smelt__schema_at(f); f++) {
        for (int i = 0; i < 1000; i++) {
            struct smelt__spec spec = random_spec(&random, smelt__schema_at(f)), again;
            struct smelt__message message = {0};
            char text[SMELT__SPEC_TEXT], text_again[SMELT__SPEC_TEXT];
            smelt__spec_print(&spec, text);
            if (smelt__spec_parse(text, &again, &message))
                fail_msg("%s: %s", text, message.text);
            smelt__spec_print(&again, text_again);
            assert_string_equal(text, text_again);
            assert_ptr_equal(spec.schema, again.schema);
            assert_memory_equal(spec.values, again.values, sizeof spec.values);
            for (int k = 0; k < list_length(&spec); k++)
                assert_int_equal(spec.list[k], again.list[k]);
        }
    }
}

TEST(canonical) {
    static const struct {
        const char *given, *canonical;
    } cases[] = {
        {"sparse_attn:heads=64,dqk=576,dv=512,topk=2048",
         "sparse_attn:heads=64,dqk=576,dv=512,topk=2048"},
        {"sparse_attn:topk=2048,dv=512,dqk=576,heads=64",
         "sparse_attn:heads=64,dqk=576,dv=512,topk=2048"},
        {"sparse_attn:heads=64,dqk=576,dv=512,topk=2048,sink=0",
         "sparse_attn:heads=64,dqk=576,dv=512,topk=2048"},
        {"sparse_attn_fwd:heads=8,dqk=64,dv=64,topk=1,variant=auto,stages=auto",
         "sparse_attn_fwd:heads=8,dqk=64,dv=64,topk=1"},
        {"sparse_attn_fwd:heads=16,dqk=512,dv=512,topk=640,sink=1,variant=mma,block_keys=64,"
         "stages=3",
         "sparse_attn_fwd:heads=16,dqk=512,dv=512,topk=640,sink=1,variant=mma,block_keys=64,"
         "stages=3"},
        {"sparse_attn:buckets=256/00512,sink=1,heads=64,variant=mma,dqk=576,dv=512,topk=2048",
         "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,sink=1,buckets=256/512,variant=mma"},
        {"sparse_attn:heads=64,dqk=576,dv=512,topk=2048,buckets=auto",
         "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,buckets=auto"},
        {"sparse_attn:heads=64,dqk=576,dv=512,topk=2048,buckets=1/2/3/4/5/6/7/1048576",
         "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,buckets=1/2/3/4/5/6/7/1048576"},
        {"sparse_attn:stages=3,fwd.stages=2,heads=64,dqk=576,dv=512,topk=2048,variant=sm90",
         "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,variant=sm90,stages=3,fwd.stages=2"},
        {"sparse_attn:heads=64,dqk=576,dv=512,topk=2048,stages=4,block_keys=128",
         "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,block_keys=128,stages=4"},
        {"sparse_attn:stages=1,heads=64,dqk=576,dv=512,topk=2048,passes=backward",
         "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,passes=backward,stages=1"},
        {"sparse_attn:heads=64,dqk=576,dv=512,topk=2048,stages=auto,passes=forward",
         "sparse_attn:heads=64,dqk=576,dv=512,topk=2048"},
        {"sparse_attn:passes=both,heads=64,dqk=576,dv=512,topk=2048,buckets=auto",
         "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,buckets=auto,passes=both"},
        {"sparse_attn:heads=008,dqk=64,dv=64,topk=01", "sparse_attn:heads=8,dqk=64,dv=64,topk=1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct smelt__spec spec;
        struct smelt__message message = {0};
        char text[SMELT__SPEC_TEXT];
        if (smelt__spec_parse(cases[i].given, &spec, &message))
            fail_msg("%s: %s", cases[i].given, message.text);
        smelt__spec_print(&spec, text);
        assert_string_equal(text, cases[i].canonical);
    }
}

#define GOOD "heads=64,dqk=576,dv=512,topk=2048"

/* Invalid texts, and the text that the message must contain. */
static const struct {
    const char *text, *part, *second_part;
} bad[] = {
    {"", "unknown operator or kernel ''; known: sparse_attn, indexer_windows", NULL},
    {GOOD, "has no ':'", "family:key=value"},
    {"sparse_attn", "sparse_attn: heads is missing; legal: 1..128 and", NULL},
    {"topk_select", "topk_select: topk is missing; legal: 1..16384", NULL},
    {"indexer_windows:topk=1", "unknown key 'topk'", NULL},
    {"indexer_window", "unknown operator or kernel 'indexer_window', did you mean indexer_windows?",
     NULL},
    {"sparse_atn", "unknown operator or kernel 'sparse_atn', did you mean sparse_attn?", NULL},
    {":" GOOD, "unknown operator or kernel ''", "known: sparse_attn, indexer_windows"},
    {"sparse_atn:" GOOD, "unknown operator or kernel 'sparse_atn', did you mean sparse_attn?",
     NULL},
    {"matmul:" GOOD, "unknown operator or kernel 'matmul'; known:", NULL},
    {"sparse_attn:", "heads is missing", NULL},
    {"sparse_attn:heads=64", "dqk is missing; legal: 16..1024", NULL},
    {"sparse_attn:dqk=576,dv=512,topk=2048", "heads is missing; legal: 1..128 and", NULL},
    {"sparse_attn:" GOOD ",", "an empty item", NULL},
    {"sparse_attn:," GOOD, "an empty item", NULL},
    {"sparse_attn:heads=64,,dqk=576", "an empty item", NULL},
    {"sparse_attn:" GOOD ",heads=64", "heads is given twice", NULL},
    {"sparse_attn:" GOOD ",stages=auto,stages=2", "stages is given twice", NULL},
    {"sparse_attn:hads=64", "unknown key 'hads', did you mean heads?", "known: heads, dqk, dv"},
    {"sparse_attn:" GOOD ",zzz=1", "unknown key 'zzz'; known: heads", NULL},
    {"sparse_attn:" GOOD ",Heads=1", "unknown key 'Heads', did you mean heads?", NULL},
    {"sparse_attn:heads", "'heads' has no '='", NULL},
    {"sparse_attn:=64", "unknown key ''", NULL},
    {"sparse_attn:heads=", "heads has no value; legal: 1..128", NULL},
    {"sparse_attn:heads=0,dqk=576,dv=512,topk=1", "heads=0 is not legal", "1..128 and multiples"},
    {"sparse_attn:heads=-1,dqk=576,dv=512,topk=1", "heads=-1 is not legal", NULL},
    {"sparse_attn:heads=+8,dqk=576,dv=512,topk=1", "heads=+8 is not legal", NULL},
    {"sparse_attn:heads=0x8,dqk=576,dv=512,topk=1", "heads=0x8 is not legal", NULL},
    {"sparse_attn:heads=8.0,dqk=576,dv=512,topk=1", "heads=8.0 is not legal", NULL},
    {"sparse_attn:heads=8=8,dqk=576,dv=512,topk=1", "heads=8=8 is not legal", NULL},
    {"sparse_attn:heads=auto,dqk=576,dv=512,topk=1", "heads=auto is not legal", NULL},
    {"sparse_attn:heads=129,dqk=576,dv=512,topk=1", "heads=129 is not legal", "multiples of 64"},
    {"sparse_attn:heads=1088,dqk=576,dv=512,topk=1", "heads=1088 is not legal", "up to 1024"},
    {"sparse_attn:heads=9223372036854775808,dqk=576,dv=512,topk=1",
     "heads=9223372036854775808 is not legal", NULL},
    {"sparse_attn:heads=18446744073709551680,dqk=576,dv=512,topk=1",
     "heads=18446744073709551680 is not legal", NULL},
    {"sparse_attn:heads=8,dqk=576,dv=513,topk=1", "dv=513 is not legal; legal: 16..1024", NULL},
    {"sparse_attn:heads=8,dqk=1040,dv=96,topk=1", "dqk=1040 is not legal; legal: 16..1024", NULL},
    {"sparse_attn:heads=8,dqk=520,dv=512,topk=1", "dqk=520 is not legal", "in steps of 16"},
    {"sparse_attn:heads=8,dqk=448,dv=512,topk=1", "dv=512 is not legal with dqk=448",
     "at most dqk"},
    {"sparse_attn:heads=8,dqk=576,dv=512,topk=0", "topk=0 is not legal; legal: 1..1048576", NULL},
    {"sparse_attn:heads=8,dqk=576,dv=512,topk=1048577", "topk=1048577 is not legal", NULL},
    {"sparse_attn:" GOOD ",sink=2", "sink=2 is not legal; legal: 0, 1", NULL},
    {"sparse_attn:" GOOD ",sink=auto", "sink=auto is not legal", NULL},
    {"sparse_attn:" GOOD ",variant=mmma", "variant=mmma is not legal, did you mean mma?",
     "legal: auto, mma, sm90"},
    {"sparse_attn:" GOOD ",variant=0", "variant=0 is not legal", NULL},
    {"sparse_attn:" GOOD ",block_keys=17", "block_keys=17 is not legal", "16, 32, 64, 128"},
    {"sparse_attn:" GOOD ",block_keys=80", "block_keys=80 is not legal", "16, 32, 64"},
    {"sparse_attn:" GOOD ",block_keys=128,passes=both",
     "block_keys=128 is not legal for bwd; legal there: auto",
     "only fwd accepts it, as fwd.block_keys=128"},
    {"sparse_attn:" GOOD ",stages=4,passes=both",
     "stages=4 is not legal for bwd; legal there: auto, 1..3",
     "only fwd accepts it, as fwd.stages=4"},
    {"sparse_attn:" GOOD ",passes=both,stages=1",
     "stages=1 is not legal for fwd; legal there: auto, 2..4",
     "only bwd accepts it, as bwd.stages=1"},
    {"sparse_attn:" GOOD ",stages=1", "stages=1 is not legal; legal: auto, 2..4", NULL},
    {"sparse_attn:" GOOD ",stages=4,passes=backward", "stages=4 is not legal; legal: auto, 1..3",
     NULL},
    {"sparse_attn:" GOOD ",stages=x,passes=backward", "stages=x is not legal; legal: auto, 1..3",
     NULL},
    {"sparse_attn:" GOOD ",stages=,passes=backward", "stages has no value; legal: auto, 1..3",
     NULL},
    {"sparse_attn:" GOOD ",block_heads=65", "block_heads=65 is not legal", NULL},
    {"sparse_attn_bwd:heads=64,dqk=576,dv=512,stages=4", "stages=4 is not legal; legal: auto, 1..3",
     NULL},
    {"sparse_attn_bwd:heads=64,dqk=576,dv=512,block_keys=128", "block_keys=128 is not legal",
     "auto, 16, 32, 64"},
    {"sparse_attn:" GOOD ",stages=5", "stages=5 is not legal; legal: auto, 2..4", NULL},
    {"sparse_attn:" GOOD ",warps=6", "warps=6 is not legal; legal: auto, 4, 8", NULL},
    {"sparse_attn:" GOOD ",blocks=0", "blocks=0 is not legal", NULL},
    {"sparse_attn:" GOOD ",compact=2", "compact=2 is not legal", NULL},
    {"sparse_attn:" GOOD ",buckets=", "buckets has no value; legal: auto, or up to 8 asc", NULL},
    {"sparse_attn:" GOOD ",buckets=256//512", "buckets: entry 2, '', is not a number", "ascending"},
    {"sparse_attn:" GOOD ",buckets=/256", "buckets: entry 1, '', is not a number", NULL},
    {"sparse_attn:" GOOD ",buckets=256/", "buckets: entry 2, '', is not a number", NULL},
    {"sparse_attn:" GOOD ",buckets=256/x", "buckets: entry 2, 'x', is not a number", NULL},
    {"sparse_attn:" GOOD ",buckets=-1", "buckets: entry 1, '-1', is not a number", NULL},
    {"sparse_attn:" GOOD ",buckets=none", "buckets: entry 1, 'none', is not a number", "auto"},
    {"sparse_attn:" GOOD ",buckets=256/auto", "buckets: entry 2, 'auto', is not a number", NULL},
    {"sparse_attn:" GOOD ",buckets=99999999999", "entry 1, '99999999999', is not a number", NULL},
    {"sparse_attn:" GOOD ",buckets=0/256", "buckets: entry 1, 0, is out of range; legal", NULL},
    {"sparse_attn:" GOOD ",buckets=256/1048577", "entry 2, 1048577, is out of range", "1..1048576"},
    {"sparse_attn:" GOOD ",buckets=256/512/256", "entry 3, 256, is below entry 2, 512", "ascend"},
    {"sparse_attn:" GOOD ",buckets=256/256", "entry 2, 256, is the same as entry 1, 256", NULL},
    {"sparse_attn:" GOOD ",buckets=1/2/3/4/5/6/7/8/9", "buckets has too many entries", "most 8"},
    {"sparse_attn:" GOOD ",buckets=256,buckets=512", "buckets is given twice", NULL},
    {"sparse_attn:" GOOD ",bucket=256", "unknown key 'bucket', did you mean buckets?", NULL},
    {"sparse_attn_fwd:" GOOD ",buckets=256", "unknown key 'buckets'", NULL},
    {"sparse_attn:" GOOD ",passes=back", "passes=back is not legal", "forward, backward, both"},
    {"sparse_attn:" GOOD ",fwd.stages=5", "stages=5 is not legal; legal: auto, 2..4", NULL},
    {"sparse_attn:" GOOD ",fwd.stages=2,fwd.stages=2", "fwd.stages is given twice", NULL},
    {"sparse_attn:" GOOD ",fwd.stages=", "fwd.stages has no value; legal: auto, 2..4", NULL},
    {"sparse_attn:" GOOD ",fwd.stage=2", "unknown knob 'stage', did you mean stages?", NULL},
    {"sparse_attn:" GOOD ",fwd.heads=2", "unknown knob 'heads'", "known: variant"},
    {"sparse_attn:" GOOD ",fwt.stages=2", "unknown kernel 'fwt', did you mean fwd?", NULL},
    {"sparse_attn_fwd:" GOOD ",fwd.stages=2", "a kernel's knobs have no prefix", NULL},
    {" sparse_attn:" GOOD, "byte 0x20 at position 1", NULL},
    {"sparse_attn:heads= 64", "byte 0x20 at position 19", NULL},
    {"sparse_attn:" GOOD "\n", "byte 0x0a", NULL},
    {"sparse_attn:heads=\xc3\xa9", "byte 0xc3", "letters, digits and _ : = , . /, no blanks"},
};

TEST(bad_input) {
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct smelt__spec spec;
        struct smelt__message message = {0};
        if (!smelt__spec_parse(bad[i].text, &spec, &message))
            fail_msg("'%s' was accepted", bad[i].text);
        assert_says(message.text, bad[i].part, bad[i].text);
        assert_says(message.text, bad[i].second_part ? bad[i].second_part : "", bad[i].text);
    }
}

TEST(too_long) {
    char text[1000];
    struct smelt__spec spec;
    struct smelt__message message = {0};
    /* Leading zeros extend a legal spec to the maximum length, and one beyond. */
    for (size_t length = SMELT__SPEC_TEXT - 1; length <= SMELT__SPEC_TEXT; length++) {
        strcpy(text, "sparse_attn:dqk=64,dv=64,topk=1,heads=");
        size_t used = strlen(text);
        memset(text + used, '0', length - used);
        strcpy(text + length - 1, "8");
        assert_int_equal(smelt__spec_parse(text, &spec, &message),
                         length < SMELT__SPEC_TEXT ? 0 : -1);
    }
    assert_non_null(strstr(message.text, "is too long: at most 255 characters"));
}

/* An operator's expansion and its bounds. */
TEST(buckets) {
    static const struct {
        const char *given, *expanded[12];
    } cases[] = {
        {"topk=2048", {"sparse_attn_fwd:heads=8,dqk=576,dv=512,topk=2048"}},
        {"topk=2048,sink=1,buckets=512/2048/4096,stages=2",
         {"sparse_attn_partition:pass=count", "sparse_attn_partition:pass=place",
          "sparse_attn_fwd:heads=8,dqk=576,dv=512,topk=2048,sink=1,stages=2",
          "sparse_attn_fwd:heads=8,dqk=576,dv=512,topk=512,sink=1,stages=2"}},
        {"topk=100,buckets=100",
         {"sparse_attn_partition:pass=count", "sparse_attn_partition:pass=place",
          "sparse_attn_fwd:heads=8,dqk=576,dv=512,topk=100"}},
        {"topk=9,buckets=1/2/3/4/5/6/7/8",
         {"sparse_attn_partition:pass=count", "sparse_attn_partition:pass=place",
          "sparse_attn_fwd:heads=8,dqk=576,dv=512,topk=9",
          "sparse_attn_fwd:heads=8,dqk=576,dv=512,topk=8",
          "sparse_attn_fwd:heads=8,dqk=576,dv=512,topk=7",
          "sparse_attn_fwd:heads=8,dqk=576,dv=512,topk=6",
          "sparse_attn_fwd:heads=8,dqk=576,dv=512,topk=5",
          "sparse_attn_fwd:heads=8,dqk=576,dv=512,topk=4",
          "sparse_attn_fwd:heads=8,dqk=576,dv=512,topk=3",
          "sparse_attn_fwd:heads=8,dqk=576,dv=512,topk=2",
          "sparse_attn_fwd:heads=8,dqk=576,dv=512,topk=1"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct smelt__spec spec;
        struct smelt__expansion expansion;
        struct smelt__message message = {0};
        char text[SMELT__SPEC_TEXT];
        snprintf(text, sizeof text, "sparse_attn:heads=8,dqk=576,dv=512,%s", cases[i].given);
        if (smelt__spec_parse(text, &spec, &message))
            fail_msg("%s: %s", text, message.text);
        if (smelt__spec_expand(&spec, &expansion, &message))
            fail_msg("%s: %s", text, message.text);
        const int count = expansion.count;
        for (int k = 0; k < count; k++) {
            smelt__spec_print(&expansion.kernels[k], text);
            assert_non_null(cases[i].expanded[k]);
            assert_string_equal(text, cases[i].expanded[k]);
        }
        assert_true(count == 12 || !cases[i].expanded[count]);
    }
}

/* A knob for one kernel takes precedence over one for all; neither applies to a kernel without this
 * knob. */
TEST(knobs_of_one_kernel) {
    struct smelt__spec spec;
    struct smelt__expansion expansion;
    struct smelt__message message = {0};
    char text[SMELT__SPEC_TEXT];
    assert_int_equal(smelt__spec_parse("sparse_attn:" GOOD
                                       ",buckets=512,stages=2,fwd.stages=3,block_keys=32",
                                       &spec, &message),
                     0);
    assert_int_equal(smelt__spec_expand(&spec, &expansion, &message), 0);
    assert_int_equal(expansion.count, 4);
    smelt__spec_print(&expansion.kernels[0], text);
    assert_string_equal(text, "sparse_attn_partition:pass=count");
    smelt__spec_print(&expansion.kernels[3], text);
    assert_string_equal(text,
                        "sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=512,block_keys=32,stages=3");
    for (int i = 0; i < expansion.count; i++)
        assert_int_equal(expansion.pass[i], SMELT__FORWARD);
}

/* Whether each member of these passes that has the knob accepts the value; -1: none has it. */
static int all_take(const struct smelt__schema *schema, unsigned passes, const char *name,
                    int64_t value) {
    int taken = -1;
    for (int i = 0; i < schema->member_count; i++) {
        const struct smelt__member *member = &schema->members[i];
        const int index = smelt__spec_key(member->schema, name);
        if (index < 0 || (member->passes && !(member->passes & passes)))
            continue;
        const struct smelt__key *key = &member->schema->keys[index];
        taken = (taken != 0) & smelt__key_takes(key, value);
    }
    return taken;
}

/* A knob for all kernels is checked with the kernels of the requested passes only. */
static void check_knob_of_passes(const struct smelt__spec *base, const char *name) {
    const unsigned passes = smelt__spec_passes(base);
    for (int value = 0; value < 300; value++) {
        char text[64];
        struct smelt__message message = {0};
        struct smelt__spec spec = *base;
        snprintf(text, sizeof text, "%s=%d", name, value);
        const int taken = all_take(base->schema, passes, name, value);
        const int legal = !smelt__spec_parse_keys(text, 1, &spec, &message) &&
                          !smelt__spec_check(&spec, &message);
        if (taken >= 0 && legal != taken)
            fail_msg("%s, passes %u: %s is %s: %s", base->schema->name, passes, text,
                     legal ? "legal" : "refused", message.text);
    }
}

TEST(knobs_of_passes) {
    struct random random = random_begin("knobs_of_passes");
    const struct smelt__schema *schema;
    for (int f = 0; (schema = smelt__schema_at(f)) && smelt__operator_of(schema); f++)
        for (int64_t passes = 0; passes < 3; passes++) {
            struct smelt__spec spec = random_spec(&random, schema);
            const struct smelt__key *key;
            spec.knob_count = 0;
            smelt__spec_set(&spec, "passes", passes);
            for (int k = 0; (key = smelt__schema_knob(schema, k)) != NULL; k++)
                if (!key->choices)
                    check_knob_of_passes(&spec, key->name);
        }
}

/* Whether the rows of `smelt list` have the legal values of a member's knob. */
static int is_row(const struct smelt__schema *schema, const struct smelt__member *member,
                  const struct smelt__key *knob) {
    const struct smelt__key *key;
    const char *prefix;
    int rows = 0;
    for (int i = 0; (key = smelt__schema_knob_row(schema, i, &prefix)); i++)
        rows +=
            strcmp(key->name, knob->name) == 0 && strcmp(key->legal, knob->legal) == 0 &&
            strcmp(key->variants ? key->variants : "", knob->variants ? knob->variants : "") == 0 &&
            (!*prefix || strcmp(prefix, member->prefix) == 0);
    return rows == 1;
}

/* Each member's knob has one row in lists; a name has the same meaning for all. */
TEST(shared_knobs) {
    const struct smelt__schema *schema;
    for (int f = 0; (schema = smelt__schema_at(f)) && smelt__operator_of(schema); f++)
        for (int i = 0; i < schema->member_count; i++) {
            const struct smelt__member *member = &schema->members[i];
            for (int k = 0; k < member->schema->key_count; k++) {
                const struct smelt__key *key = &member->schema->keys[k], *first;
                struct smelt__knob knob;
                if (!key->knob)
                    continue;
                if (!is_row(schema, member, key))
                    fail_msg("%s: no row says %s of %s.%s", schema->name, key->legal,
                             member->prefix, key->name);
                assert_int_equal(smelt__knob_find(schema, key->name, &knob), 0);
                first = smelt__knob_key(schema, &knob);
                assert_int_equal(first->choices != NULL, key->choices != NULL);
                for (int n = 0; key->choices && (key->choices[n] || first->choices[n]); n++)
                    assert_string_equal(key->choices[n], first->choices[n]);
            }
        }
}

/* Kernels are ordered by pass, without those of passes that were not requested. Expanding a pass
 * that the operator lacks is refused with the pass's name. No more kernels are written than fit. */
TEST(passes) {
    struct smelt__spec spec;
    struct smelt__expansion *expansion = malloc(sizeof *expansion);
    struct smelt__message message = {0};
    assert_non_null(expansion);
    assert_int_equal(smelt__spec_parse("sparse_attn:" GOOD ",passes=both", &spec, &message), 0);
    assert_int_equal(smelt__spec_passes(&spec), SMELT__FORWARD | SMELT__BACKWARD);
    assert_int_equal(smelt__spec_expand(&spec, expansion, &message), 0);
    assert_true(expansion->count > 2);
    assert_int_equal(expansion->pass[0], SMELT__FORWARD);
    for (int i = 1; i < expansion->count; i++)
        assert_int_equal(expansion->pass[i], SMELT__BACKWARD);
    smelt__spec_set(&spec, "passes", 1);
    assert_int_equal(smelt__spec_expand(&spec, expansion, &message), 0);
    for (int i = 0; i < expansion->count; i++)
        assert_int_equal(expansion->pass[i], SMELT__BACKWARD);
    smelt__spec_set(&spec, "passes", 0);
    expansion->count = expansion->overflow = 0;
    for (int i = 0; i < SMELT__MAX_KERNELS; i++)
        smelt__expansion_add(expansion, &spec, 0, SMELT__FORWARD);
    assert_int_equal(expansion->overflow, 0);
    smelt__spec_set(smelt__expansion_add(expansion, &spec, 0, SMELT__FORWARD), "topk", 7);
    assert_int_equal(expansion->count, SMELT__MAX_KERNELS);
    assert_int_equal(expansion->overflow, 1);
    free(expansion);
}

/* With auto the bounds ascend to any topk. */
TEST(auto_buckets) {
    for (int topk = 1; topk < 5000; topk++) {
        struct smelt__spec spec;
        int bounds[SMELT__SPARSE_ATTN_MOST_BUCKETS];
        smelt__spec_init(&spec, &smelt__sparse_attn.schema);
        smelt__spec_set(&spec, "heads", 64);
        smelt__spec_set(&spec, "dqk", 576);
        smelt__spec_set(&spec, "dv", 512);
        smelt__spec_set(&spec, "topk", topk);
        assert_int_equal(smelt__sparse_attn_bounds(&spec, bounds), 0);
        smelt__spec_set(&spec, "buckets", SMELT__AUTO);
        int count = smelt__sparse_attn_bounds(&spec, bounds);
        assert_true(count >= 1 && count <= SMELT__SPARSE_ATTN_MOST_BUCKETS);
        for (int i = 0; i < count; i++)
            assert_true(bounds[i] > (i ? bounds[i - 1] : 0));
        assert_int_equal(bounds[count - 1], topk);
        if (topk == 2048)
            assert_true(count == 3 && bounds[0] == 512 && bounds[1] == 1024);
        if (topk == 640)
            assert_true(count == 3 && bounds[0] == 192 && bounds[1] == 320);
        if (topk <= 64)
            assert_int_equal(count, 1);
    }
}

TEST(knobs_only) {
    struct smelt__spec spec;
    struct smelt__message message = {0};
    smelt__spec_init(&spec, &smelt__sparse_attn_fwd.schema);
    assert_int_equal(smelt__spec_parse_keys("stages=2,block_keys=32", 1, &spec, &message), 0);
    assert_int_equal(smelt__spec_get(&spec, "stages"), 2);
    assert_int_equal(smelt__spec_get(&spec, "block_keys"), 32);
    assert_int_equal(smelt__spec_parse_keys("", 1, &spec, &message), 0);
    assert_int_equal(smelt__spec_parse_keys("heads=8", 1, &spec, &message), -1);
    assert_non_null(strstr(message.text, "heads defines what is computed and is not a knob"));
    assert_int_equal(smelt__spec_parse_keys("stage=2", 1, &spec, &message), -1);
    assert_non_null(strstr(message.text, "unknown knob 'stage', did you mean stages?"));
    assert_null(strstr(message.text, "topk"));
}

/* Whether the operator has a knob of exactly that name. */
static int has_knob(const struct smelt__schema *schema, const char *prefix, const char *name) {
    for (int i = 0; i < schema->member_count; i++) {
        const struct smelt__member *member = &schema->members[i];
        for (int k = 0; k < member->schema->key_count; k++)
            if (member->schema->keys[k].knob && strcmp(member->schema->keys[k].name, name) == 0 &&
                (!prefix || strcmp(member->prefix, prefix) == 0))
                return 1;
    }
    return 0;
}

/* A knob is found by its full name after its kernel's full prefix, and by no other text. */
static void expect_knob(const struct smelt__schema *schema, const char *prefix, const char *name) {
    char text[128];
    struct smelt__knob knob;
    snprintf(text, sizeof text, "%s%s%s", prefix ? prefix : "", prefix ? "." : "", name);
    const int found = smelt__knob_find(schema, text, &knob) == 0;
    if (found != has_knob(schema, prefix, name))
        fail_msg("%s: '%s' is %s", schema->name, text, found ? "taken for a knob" : "not found");
    if (!found)
        return;
    assert_string_equal(smelt__knob_key(schema, &knob)->name, name);
    assert_int_equal(knob.for_all, !prefix);
    assert_true(!prefix || strcmp(schema->members[knob.member].prefix, prefix) == 0);
}

/* Prefixes of a text, and slightly longer texts. */
static int variation_of(const char *text, int number, char *varied, size_t size) {
    const int length = (int)strlen(text);
    if (number > length)
        return 0;
    snprintf(varied, size, "%.*s%s", number < length ? number + 1 : length, text,
             number == length ? "s" : "");
    return 1;
}

TEST(knob_names_are_whole) {
    int knobs = 0;
    for (int f = 0; smelt__schema_at(f); f++) {
        const struct smelt__schema *schema = smelt__schema_at(f);
        for (int m = 0; m < schema->member_count; m++)
            for (int k = 0; k < schema->members[m].schema->key_count; k++) {
                const char *const name = schema->members[m].schema->keys[k].name;
                char varied[64];
                for (int i = 0; variation_of(name, i, varied, sizeof varied); i++) {
                    expect_knob(schema, NULL, varied);
                    for (int other = 0; other < schema->member_count; other++)
                        expect_knob(schema, schema->members[other].prefix, varied);
                }
                for (int i = 0; variation_of(schema->members[m].prefix, i, varied, sizeof varied);
                     i++)
                    expect_knob(schema, varied, name);
                knobs++;
            }
    }
    assert_true(knobs > 50);
}

/* A parsed text can be printed and parsed again; other texts are refused with a message. */
static void check_any_text(const char *text) {
    struct smelt__spec spec, again;
    struct smelt__message message = {0};
    if (smelt__spec_parse(text, &spec, &message)) {
        assert_true(message.text[0] != '\0');
        return;
    }
    char printed[SMELT__SPEC_TEXT];
    smelt__spec_print(&spec, printed);
    assert_int_equal(smelt__spec_parse(printed, &again, &message), 0);
    assert_memory_equal(spec.values, again.values, sizeof spec.values);
}

TEST(random_bytes) {
    struct random random = random_begin("random_bytes");
    char text[400];
    for (int i = 0; i < 20000; i++) {
        int length = random_below(&random, (int)sizeof text);
        for (int j = 0; j < length; j++)
            text[j] = (char)(1 + random_below(&random, 255));
        text[length] = '\0';
        check_any_text(text);
    }
    /* A legal text with a few bytes changed, removed or repeated. */
    static const char alphabet[] = ":=,/0123456789autoheadsbucktqv_ \x80";
    struct smelt__spec spec;
    for (int i = 0; i < 50000; i++) {
        if (i % 8 == 0) /* drawing one takes longer than parsing eight */
            spec = random_spec(&random, random_family(&random));
        smelt__spec_print(&spec, text);
        for (int changes = 1 + random_below(&random, 4); changes; changes--) {
            size_t length = strlen(text);
            size_t at = (size_t)random_below(&random, (int)length);
            if (random_below(&random, 3) == 0)
                memmove(text + at, text + at + 1, length - at);
            else if (random_below(&random, 2) == 0)
                memmove(text + at + 1, text + at, length - at + 1);
            else
                text[at] = alphabet[random_below(&random, (int)sizeof alphabet - 1)];
            if (!*text)
                break;
        }
        check_any_text(text);
    }
}

/* A list of names that is too long ends at a whole name. */
TEST(names_are_whole) {
    enum { COUNT = 64, LENGTH = 25 };
    static char texts[COUNT][LENGTH + 1];
    const char *names[COUNT + 1] = {0};
    struct smelt__message message = {0};
    for (int i = 0; i < COUNT; i++) {
        memset(texts[i], 'a' + i % 26, LENGTH - 3);
        snprintf(texts[i] + LENGTH - 3, 4, "%03d", i);
        names[i] = texts[i];
    }
    smelt__name_unknown("", "name", "other", names, &message);
    const char *at = strstr(message.text, "known: ");
    assert_non_null(at);
    at += strlen("known: ");
    int listed = 0;
    for (; strncmp(at, texts[listed], LENGTH) == 0; listed++)
        at += LENGTH + 2;
    assert_in_range(listed, 20, COUNT - 1);
    assert_string_equal(at, "...");
}

TEST(nearest_name) {
    static const char *const names[] = {"heads", "dqk", "dv", "topk", "block_keys", NULL};
    assert_string_equal(smelt__nearest_name("haeds", names), "heads");
    assert_string_equal(smelt__nearest_name("block_key", names), "block_keys");
    assert_string_equal(smelt__nearest_name("tpk", names), "topk");
    assert_null(smelt__nearest_name("zzzzz", names));
    assert_null(smelt__nearest_name("", names));
    char longest[4096];
    memset(longest, 'h', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_null(smelt__nearest_name(longest, names));
}

TESTS("spec")
