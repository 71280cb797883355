/*
 * Keys of kernels: two plans have the same key if and only if they have the same source. The argument
 * is tests/golden, whose specs are tried on every architecture.
 */
#include <glob.h>

#include "codegen/family.h"
#include "codegen/template/engine.h"
#include "files.h"
#include "random_spec.h"
#include "runtime/digest.h"
#include "runtime/hash.h"
#include "runtime/specs.h"
#include "runtime/templates.h"
#include "test.h"

static const char *golden_folder;

/* ---- plans ----------------------------------------------------------------------------------- */

struct pair {
    XXH128_hash_t source;
    struct smelt__cache_key key;
    char *spec;
};

static struct {
    struct pair *pairs;
    size_t count;
} all;

static struct smelt__cache_key key_of(const struct smelt__plan *plan,
                                      const struct smelt__template_table *table) {
    static const char *const options[] = {NULL};
    struct smelt__cache_key key;
    assert_int_equal(smelt__plan_key(plan, table, options, SMELT__OUTPUT_CUBIN, &key), SMELT_OK);
    return key;
}

static void add_plan(const struct smelt__plan *plan) {
    struct smelt__message message;
    struct smelt__text source = {0};
    char spec[SMELT__SPEC_TEXT];
    if (smelt__source_emit(plan, NULL, &source, &message))
        fail_msg("%s", message.text);
    all.pairs = realloc(all.pairs, (all.count + 1) * sizeof *all.pairs);
    assert_non_null(all.pairs);
    smelt__spec_print(&plan->spec, spec);
    all.pairs[all.count++] = (struct pair){.source = XXH3_128bits(source.data, source.length),
                                           .key = key_of(plan, NULL),
                                           .spec = strdup(spec)};
    smelt__text_free(&source);
}

static void add_spec(const struct smelt__spec *spec) {
    const struct smelt__arch *arch;
    for (int a = 0; (arch = smelt__arch_at(a)); a++) {
        struct smelt__plan plan;
        struct smelt__message message;
        if (!smelt__plan_make(spec, arch, &plan, &message))
            add_plan(&plan);
    }
}

static void add_goldens(const char *path) {
    FILE *file = fopen(path, "r");
    char line[1024], text[512];
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        struct smelt__spec spec;
        struct smelt__message message;
        if (sscanf(line, "@ %*s %511s", text) != 1)
            continue;
        if (smelt__spec_parse(text, &spec, &message))
            fail_msg("%s", message.text);
        add_spec(&spec);
    }
    fclose(file);
}

static int by_source(const void *a, const void *b) {
    return memcmp(&((const struct pair *)a)->source, &((const struct pair *)b)->source,
                  sizeof(XXH128_hash_t));
}

static int by_key(const void *a, const void *b) {
    return memcmp(((const struct pair *)a)->key.digest, ((const struct pair *)b)->key.digest,
                  sizeof((const struct pair *)a)->key.digest);
}

TEST(same_key_same_source) {
    struct random random = random_begin("same_key_same_source");
    char pattern[4096];
    glob_t files;
    snprintf(pattern, sizeof pattern, "%s/*_*.txt", golden_folder);
    assert_int_equal(glob(pattern, 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++)
        add_goldens(files.gl_pathv[i]);
    globfree(&files);
    const size_t goldens = all.count;
    for (int i = 0; i < 50; i++) { /* the second of two has the same source and key */
        const struct smelt__spec spec = random_spec(&random, random_kernel(&random));
        add_spec(&spec);
        add_spec(&spec);
    }
    int (*const orders[])(const void *, const void *) = {by_source, by_key};
    int same[2] = {0};
    for (int order = 0; order < 2; order++) {
        qsort(all.pairs, all.count, sizeof *all.pairs, orders[order]);
        for (size_t i = 1; i < all.count; i++) {
            const struct pair *const pair = &all.pairs[i];
            const int same_source = by_source(pair - 1, pair) == 0;
            if (same_source != (by_key(pair - 1, pair) == 0))
                fail_msg("%s and %s", pair[-1].spec, pair->spec);
            same[order] += same_source;
        }
    }
    printf("%zu plans, %zu of them goldens; %d have another's source\n", all.count, goldens,
           same[0]);
    assert_int_equal(same[0], same[1]);
    assert_true(goldens > 500 && same[0] > 50);
    for (size_t i = 0; i < all.count; i++)
        free(all.pairs[i].spec);
    free(all.pairs);
}

static int keys_equal(struct smelt__cache_key a, struct smelt__cache_key b) {
    return memcmp(a.digest, b.digest, sizeof a.digest) == 0;
}

/* Everything that a template can name changes the key. */
TEST(plan_changes_key) {
    struct smelt__plan plan;
    assert_int_equal(
        smelt__plan_from_text("sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048", "sm_90a", &plan),
        SMELT_OK);
    const struct smelt__cache_key key = key_of(&plan, NULL);
    int *numbers[SMELT__MAX_CONSTANTS + SMELT__MAX_REGIONS + 1], count = 0;
    for (int i = 0; i < plan.constant_count; i++)
        numbers[count++] = &plan.constants[i].value;
    for (int i = 0; i < plan.region_count; i++)
        numbers[count++] = &plan.regions[i].offset;
    numbers[count++] = &plan.shared_bytes;
    for (int i = 0; i < count; i++) {
        ++*numbers[i];
        assert_false(keys_equal(key, key_of(&plan, NULL)));
        --*numbers[i];
    }
    assert_true(keys_equal(key, key_of(&plan, NULL)));
    plan.kernel_name[0] ^= 1;
    assert_false(keys_equal(key, key_of(&plan, NULL)));
    plan.kernel_name[0] ^= 1;
    smelt__plan_set_template(&plan, "mma");
    assert_false(keys_equal(key, key_of(&plan, NULL)));
}

/* ---- templates ------------------------------------------------------------------------------- */

static const struct smelt__template *templates; /* with texts; set by main */

static int find(const char *name) {
    for (int i = 0; i < smelt__template_count; i++)
        if (strcmp(smelt__templates[i].name, name) == 0)
            return i;
    return -1;
}

/* Marks a template and all it uses. */
static void mark(int index, char *marks) {
    if (marks[index]++)
        return;
    for (const char *at = templates[index].text; (at = strstr(at, "//@use "));) {
        char name[128];
        at += strlen("//@use ");
        assert_int_equal(sscanf(at, "%127s", name), 1);
        mark(find(name), marks);
    }
}

static void check_digest(struct smelt__template *copy, int root, int edited, int differs) {
    unsigned char digest[SMELT__TEMPLATE_DIGEST];
    struct smelt__message message;
    char text[200000];
    const struct smelt__template before = copy[edited];
    assert_true(before.length + 2 < sizeof text);
    snprintf(text, sizeof text, "%s\n", before.text);
    copy[edited].text = text;
    copy[edited].length++;
    assert_int_equal(smelt__template_digest(copy, smelt__template_count, root, digest, &message),
                     0);
    if ((memcmp(digest, copy[root].digest, sizeof digest) != 0) != differs)
        fail_msg("%s edited: the digest of %s", copy[edited].name, copy[root].name);
    copy[edited] = before;
}

/* A template's digest changes with its text and with each part's it uses, and with no other. */
TEST(digests) {
    struct random random = random_begin("digests");
    struct smelt__template *const copy =
        malloc((size_t)smelt__template_count * sizeof *smelt__templates);
    char *const marks = malloc((size_t)smelt__template_count);
    assert_non_null(copy);
    assert_non_null(marks);
    memcpy(copy, templates, (size_t)smelt__template_count * sizeof *copy);
    int used = 0, others = 0;
    for (int root = 0; root < smelt__template_count; root++) {
        if (!strstr(copy[root].name, ".cu") || strstr(copy[root].name, ".cuh"))
            continue;
        memset(marks, 0, (size_t)smelt__template_count);
        mark(root, marks);
        for (int i = 0; i < smelt__template_count; i++) {
            if (random_below(&random, 8) && i != root)
                continue;
            check_digest(copy, root, i, marks[i] > 0);
            used += marks[i] > 0;
            others += marks[i] == 0;
        }
    }
    printf("%d edits of used parts, %d of others\n", used, others);
    assert_true(used > 50 && others > 50);
    free(copy);
    free(marks);
}

/* Templates of a folder: the library's own texts give its keys, an edit other ones. */
TEST(edited_templates) {
    char folder[512], path[1024];
    struct smelt__template_table *table;
    struct smelt__plan plan, other;
    assert_int_equal(
        smelt__plan_from_text("sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048", "sm_90a", &plan),
        SMELT_OK);
    assert_int_equal(
        smelt__plan_from_text("sparse_attn_fwd:heads=64,dqk=64,dv=64,topk=2048", "sm_80", &other),
        SMELT_OK);
    assert_int_equal(make_scratch(folder, sizeof folder), 0);
    snprintf(path, sizeof path, "%s/%s", folder, plan.template_name);
    const char *const text = templates[find(plan.template_name)].text;
    for (int edited = 0; edited < 2; edited++) {
        char *const written = malloc(strlen(text) + 2);
        assert_non_null(written);
        sprintf(written, "%s%s", text, edited ? "\n" : "");
        assert_int_equal(write_text(path, written, 0600), 0);
        free(written);
        assert_int_equal(smelt__templates_read(folder, &table), SMELT_OK);
        assert_int_equal(keys_equal(key_of(&plan, NULL), key_of(&plan, table)), !edited);
        assert_true(keys_equal(key_of(&other, NULL), key_of(&other, table)));
        smelt__templates_free(&table);
    }
    assert_int_equal(remove_tree(folder), 0);
}

int main(int argc, char **argv) {
    struct smelt__message message;
    golden_folder = argc > 1 ? argv[1] : "";
    templates = smelt__templates_embedded(&message);
    if (!templates)
        return 1;
    return RUN_TESTS("key");
}
