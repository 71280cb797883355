/* See family.h: the code common to all families. */
#include "codegen/family.h"

#include <stdio.h>
#include <string.h>

#include "codegen/spec/keys.h"

/* ---- operators to kernels -------------------------------------------------------------------- */

unsigned smelt__spec_passes(const struct smelt__spec *spec) {
    const int64_t passes = smelt__spec_get(spec, "passes");
    return passes == SMELT__AUTO ? smelt__operator_of(spec->schema)->passes : (unsigned)passes + 1;
}

static struct smelt__spec *add(struct smelt__expansion *expansion,
                               const struct smelt__schema *schema, unsigned pass) {
    struct smelt__spec *kernel = &expansion->kernels[SMELT__MAX_KERNELS - 1];
    if (expansion->count == SMELT__MAX_KERNELS) {
        expansion->overflow = 1;
    } else {
        const int number = expansion->count;
        const int follows = number > 0 && expansion->pass[number - 1] == pass;
        expansion->pass[number] = (unsigned char)pass;
        expansion->role[number] = follows ? (unsigned char)(expansion->role[number - 1] + 1) : 0;
        expansion->conditions[number].variant = NULL;
        kernel = &expansion->kernels[expansion->count++];
    }
    smelt__spec_init(kernel, schema);
    return kernel;
}

struct smelt__spec *smelt__expansion_add(struct smelt__expansion *expansion,
                                         const struct smelt__spec *spec, int member,
                                         unsigned pass) {
    struct smelt__spec *kernel = add(expansion, spec->schema->members[member].schema, pass);
    smelt__spec_inherit(spec, member, kernel);
    return kernel;
}

struct smelt__spec *smelt__expansion_add_other(struct smelt__expansion *expansion,
                                               const struct smelt__spec *spec,
                                               const struct smelt__kernel_family *family,
                                               int number, unsigned pass) {
    struct smelt__spec *const kernel = add(expansion, &family->schema, pass);
    smelt__spec_inherit_keys(spec, kernel);
    smelt__spec_set(kernel, "pass", number);
    return kernel;
}

struct smelt__spec *smelt__expansion_add_role(struct smelt__expansion *expansion,
                                              const struct smelt__spec *spec, unsigned pass,
                                              int role, const struct smelt__kernel_family *family,
                                              int number) {
    struct smelt__spec *const kernel =
        smelt__expansion_add_other(expansion, spec, family, number, pass);
    for (int i = 0; i < spec->schema->member_count; i++)
        if (spec->schema->members[i].schema == &family->schema)
            smelt__spec_inherit(spec, i, kernel);
    smelt__expansion_role(expansion, role);
    return kernel;
}

void smelt__expansion_role(struct smelt__expansion *expansion, int role) {
    expansion->role[expansion->count - 1] = (unsigned char)role;
}

void smelt__expansion_only_if(struct smelt__expansion *expansion, int role, const char *variant) {
    expansion->conditions[expansion->count - 1] = (struct smelt__condition){role, variant};
}

static void expand_one(const struct smelt__spec *spec, unsigned pass,
                       struct smelt__expansion *expansion) {
    if (spec->schema->member_count > 0)
        smelt__expansion_add(expansion, spec, 0, pass);
    else
        smelt__expansion_add_other(expansion, spec, smelt__operator_of(spec->schema)->kernels[0], 0,
                                   pass);
}

/* Adds the kernels of an operator's passes, which it must have. */
static int expand_passes(const struct smelt__spec *spec, unsigned passes,
                         struct smelt__expansion *expansion, struct smelt__message *message) {
    const struct smelt__operator_family *family = smelt__operator_of(spec->schema);
    expansion->count = expansion->overflow = 0;
    for (unsigned pass = 1; pass < 1U << SMELT__PASSES; pass <<= 1)
        if (passes & pass)
            (family->expand ? family->expand : expand_one)(spec, pass, expansion);
    if (expansion->overflow)
        return smelt__message_set(
            message, "%s expands to more than %d kernels; use a shorter list or a single pass",
            family->schema.name, SMELT__MAX_KERNELS);
    for (int i = 0; i < expansion->count; i++)
        if (smelt__spec_check(&expansion->kernels[i], message))
            return -1;
    return 0;
}

int smelt__spec_check_all(const struct smelt__spec *spec, struct smelt__message *message) {
    const struct smelt__operator_family *family = smelt__operator_of(spec->schema);
    struct smelt__expansion expansion;
    if (smelt__spec_check(spec, message))
        return -1;
    return family
               ? expand_passes(spec, smelt__spec_passes(spec) & family->passes, &expansion, message)
               : 0;
}

int smelt__spec_expand(const struct smelt__spec *spec, struct smelt__expansion *expansion,
                       struct smelt__message *message) {
    const struct smelt__operator_family *family = smelt__operator_of(spec->schema);
    if (!family) {
        expansion->count = expansion->overflow = 0;
        *add(expansion, spec->schema, SMELT__FORWARD) = *spec;
        return 0;
    }
    return expand_passes(spec, smelt__spec_passes(spec), expansion, message);
}

/* Whether the condition of kernel number `number`, if any, holds. The kernels without a condition must have
 * been planned. */
static int is_launched(const struct smelt__expansion *expansion, int number) {
    const struct smelt__condition *const condition = &expansion->conditions[number];
    for (int i = 0; condition->variant && i < expansion->count; i++)
        if (expansion->pass[i] == expansion->pass[number] && expansion->role[i] == condition->role)
            return strcmp(expansion->variants[i], condition->variant) == 0;
    return 1;
}

int smelt__expansion_plan(struct smelt__expansion *expansion,
                          int (*make)(void *user, const struct smelt__spec *spec,
                                      struct smelt__plan *plan),
                          void *user) {
    struct smelt__plan plan;
    int kept = 0;
    for (int conditional = 0; conditional <= 1; conditional++)
        for (int i = 0; i < expansion->count; i++) {
            if ((expansion->conditions[i].variant != NULL) != conditional)
                continue;
            expansion->variants[i] = NULL;
            if (!is_launched(expansion, i))
                continue;
            const int failure = make(user, &expansion->kernels[i], &plan);
            if (failure)
                return failure;
            expansion->variants[i] = plan.variant;
        }
    for (int i = 0; i < expansion->count; i++) {
        if (!expansion->variants[i])
            continue;
        expansion->kernels[kept] = expansion->kernels[i];
        expansion->variants[kept] = expansion->variants[i];
        expansion->role[kept] = expansion->role[i];
        expansion->pass[kept++] = expansion->pass[i];
    }
    expansion->count = kept;
    return 0;
}

/* ---- kernels to plans ------------------------------------------------------------------------ */

static int is_sm90(const char *variant) {
    return strncmp(variant, "sm90", 4) == 0;
}

static int has_knob(const struct smelt__variant *variant, const struct smelt__key *knob) {
    return !knob->variants || smelt__name_listed(knob->variants, variant->name);
}

/* The first knob in the spec that this variant lacks, or NULL. */
static const struct smelt__key *foreign_knob(const struct smelt__spec *spec,
                                             const struct smelt__variant *variant) {
    for (int i = 0; i < spec->schema->key_count; i++)
        if (spec->values[i] != SMELT__AUTO && !has_knob(variant, &spec->schema->keys[i]))
            return &spec->schema->keys[i];
    return NULL;
}

/* Refuses knobs that the variant lacks, and other values than the one that it has. */
static int check_knobs(const struct smelt__spec *spec, const struct smelt__variant *variant,
                       struct smelt__message *message) {
    const struct smelt__key *knob = foreign_knob(spec, variant);
    if (knob)
        return smelt__spec_refuse(spec, message,
                                  "%s is a knob of variant=%s; variant=%s has no such knob",
                                  knob->name, knob->variants, variant->name);
    for (int i = 0; i < spec->schema->key_count; i++) {
        knob = &spec->schema->keys[i];
        if (!knob->fixed_in || strcmp(knob->fixed_in, variant->name) != 0 ||
            spec->values[i] == SMELT__AUTO || spec->values[i] == knob->fixed)
            continue;
        return smelt__spec_refuse(spec, message,
                                  "%s=%d is not legal with variant=%s, which has %d; leave it out, "
                                  "or use another variant",
                                  knob->name, (int)spec->values[i], variant->name, knob->fixed);
    }
    return 0;
}

/* Names the plan's variant, template and kernel. The names of the template and the kernel end in the pass, if the family
 * has several, or in the variant, if it is mma or an sm90 one. */
static void name(const struct smelt__spec *spec, const char *variant, struct smelt__plan *plan) {
    const int passes = smelt__spec_key(spec->schema, "pass") >= 0;
    plan->variant = passes ? smelt__spec_choice(spec, "pass") : variant;
    const char *const part =
        passes || strcmp(variant, "mma") == 0 || is_sm90(variant) ? plan->variant : "";
    smelt__plan_set_template(plan, part);
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_%s%s%s", spec->schema->name,
             *part ? "_" : "", part);
}

/* Refuses the sm90 variants on architectures without wgmma. */
static int refuse_without_warpgroups(const struct smelt__spec *spec, const char *variant,
                                     const struct smelt__arch *arch,
                                     struct smelt__message *message) {
    if (arch->warpgroup_products || !is_sm90(variant))
        return 0;
    if (smelt__spec_key(spec->schema, "variant") < 0)
        return smelt__message_set(message, "%s runs on sm_90a only, not on %s", spec->schema->name,
                                  arch->name);
    return smelt__spec_refuse(
        spec, message, "variant=sm90 runs on sm_90a only; use variant=mma on %s", arch->name);
}

/* Plans one variant. */
static int plan_variant(const struct smelt__spec *spec, const struct smelt__variant *variant,
                        const struct smelt__arch *arch, struct smelt__plan *plan,
                        struct smelt__message *message) {
    memset(plan, 0, sizeof *plan);
    if (check_knobs(spec, variant, message))
        return -1;
    plan->spec = *spec;
    plan->arch = arch;
    plan->blocks_per_item = 1;
    name(spec, variant->name, plan);
    if (refuse_without_warpgroups(spec, variant->name, arch, message) ||
        variant->plan(spec, arch, plan, message))
        return -1;
    if (plan->defect)
        return smelt__spec_refuse(spec, message, "the plan has a defect at %s; please report it",
                                  plan->defect);
    if (plan->shared_bytes <= arch->shared_per_block)
        return 0;
    return smelt__spec_refuse(spec, message, "needs %.1f KB of shared memory, %s has %d",
                              plan->shared_bytes / 1024.0, arch->name,
                              arch->shared_per_block / 1024);
}

/* The variant given in the spec, or NULL. */
static const struct smelt__variant *named_variant(const struct smelt__spec *spec,
                                                  const struct smelt__variant *variants) {
    const int key = smelt__spec_key(spec->schema, "variant");
    if (key < 0 || spec->values[key] == SMELT__AUTO)
        return NULL;
    const char *name = spec->schema->keys[key].choices[spec->values[key]];
    while (variants->name && strcmp(variants->name, name) != 0)
        variants++;
    return variants->name ? variants : NULL;
}

/* Records why the best variant of an architecture was not taken, in the plan of another. */
static void note_declined(const struct smelt__message *message, struct smelt__plan *plan) {
    if (plan->arch->warpgroup_products)
        snprintf(plan->declined, sizeof plan->declined, "%.*s", SMELT__DECLINED - 1, message->text);
}

/* Plans the first variant that accepts the spec. On failure the message is that of the last variant
 * that has all of the spec's knobs. */
static int plan_first(const struct smelt__spec *spec, const struct smelt__variant *variants,
                      const struct smelt__arch *arch, struct smelt__plan *plan,
                      struct smelt__message *message) {
    struct smelt__message first = {.text = ""};
    int tried = 0;
    for (const struct smelt__variant *variant = variants; variant->name; variant++) {
        if (foreign_knob(spec, variant))
            continue;
        if (plan_variant(spec, variant, arch, plan, message) == 0) {
            note_declined(&first, plan);
            return 0;
        }
        if (tried++ == 0)
            first = *message;
    }
    /* Knobs of different variants: plan any variant for the message. */
    return tried ? -1 : plan_variant(spec, variants, arch, plan, message);
}

int smelt__plan_make(const struct smelt__spec *spec, const struct smelt__arch *arch,
                     struct smelt__plan *plan, struct smelt__message *message) {
    const struct smelt__kernel_family *family = smelt__kernels_of(spec->schema);
    if (!family)
        return smelt__message_set(
            message,
            "%s is an operator and has no plan; the kernels to which it expands have plans",
            spec->schema->name);
    if (smelt__spec_check(spec, message))
        return -1;
    const struct smelt__variant *named = named_variant(spec, family->variants);
    return named ? plan_variant(spec, named, arch, plan, message)
                 : plan_first(spec, family->variants, arch, plan, message);
}

int smelt__plan_make_tuned(const struct smelt__spec *spec, const struct smelt__arch *arch,
                           const char *tuned_knobs, struct smelt__plan *plan,
                           struct smelt__message *message) {
    struct smelt__spec tuned = *spec;
    if (tuned_knobs && smelt__spec_tune(&tuned, tuned_knobs, message))
        return -1;
    return smelt__plan_make(&tuned, arch, plan, message);
}
