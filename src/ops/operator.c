/* See operator.h. */
#include "ops/operator.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/log.h"

/* ---- the public struct and the spec ---------------------------------------------------------- */

static smelt_status refuse_spec(const struct smelt__message *message) {
    return smelt__fail(SMELT_ERROR_INVALID_SPEC, "%s", message->text);
}

static int *int_at(void *given, size_t field) {
    return (int *)(void *)((char *)given + field);
}

/* This library's copy of a caller's struct. */
union spec_struct {
    size_t size;
    char bytes[SMELT__MOST_SPEC_BYTES];
};

/* The struct's list; its numbers are checked with the spec. */
static smelt_status read_list(const struct smelt__spec_table *table, const int *given,
                              struct smelt__spec *spec) {
    const int by_rule = given[0] == -1;
    int count = by_rule;
    while (!by_rule && count < SMELT__MAX_LIST && given[count] != 0) {
        spec->list[count] = given[count];
        count++;
    }
    smelt__spec_set(spec, table->list, by_rule ? SMELT__AUTO : count);
    for (int i = count; i < SMELT__MAX_LIST; i++)
        if (given[i] != 0)
            return smelt__fail(SMELT_ERROR_INVALID_SPEC,
                               "%s[%d] = %d stands behind the list's end, %s at [%d]", table->list,
                               i, given[i], by_rule ? table->list_auto : "the 0",
                               by_rule ? 0 : count);
    return SMELT_OK;
}

static smelt_status read_passes(unsigned given, struct smelt__spec *spec) {
    if (given >> SMELT__PASSES)
        return smelt__fail(SMELT_ERROR_INVALID_SPEC,
                           "passes = %u is not legal; legal: 0 for the forward pass, "
                           "SMELT_PASS_FORWARD, SMELT_PASS_BACKWARD, or both",
                           given);
    smelt__spec_set(spec, "passes", given ? (int64_t)given - 1 : 0);
    return SMELT_OK;
}

smelt_status smelt__operator_read_spec(const struct smelt__spec_table *table, const void *given,
                                       struct smelt__spec *spec) {
    union spec_struct copy;
    struct smelt__message message;
    smelt_status status = smelt__struct_read(table->about, given, &copy);
    if (status != SMELT_OK)
        return status;
    if (table->reserved && *int_at(&copy, table->reserved) != 0)
        return smelt__fail(SMELT_ERROR_INVALID_SPEC,
                           "reserved = %d is not legal; it must be 0: fill the spec from %s",
                           *int_at(&copy, table->reserved), table->about->initialiser);
    smelt__spec_init(spec, &table->family->schema);
    for (int i = 0; i < table->count; i++)
        smelt__spec_set(spec, table->fields[i].key, *int_at(&copy, table->fields[i].field));
    if (table->list)
        status = read_list(table, int_at(&copy, table->list_field), spec);
    if (status == SMELT_OK && table->passes)
        status = read_passes((unsigned)*int_at(&copy, table->passes), spec);
    if (status != SMELT_OK)
        return status;
    const char *knobs;
    memcpy(&knobs, copy.bytes + table->knobs, sizeof knobs);
    if (knobs && *knobs && smelt__spec_parse_keys(knobs, 1, spec, &message))
        return refuse_spec(&message);
    return smelt__spec_check_all(spec, &message) ? refuse_spec(&message) : SMELT_OK;
}

smelt_status smelt__operator_print_spec(const struct smelt__spec_table *table, const void *given,
                                        char **text) {
    if (!text)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "text is NULL");
    *text = NULL;
    struct smelt__spec spec;
    smelt_status status = smelt__operator_read_spec(table, given, &spec);
    if (status != SMELT_OK)
        return status;
    char canonical[SMELT__SPEC_TEXT];
    smelt__spec_print(&spec, canonical);
    *text = strdup(canonical);
    return *text ? SMELT_OK : smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
}

static void write_list(const struct smelt__spec_table *table, const struct smelt__spec *spec,
                       int *given) {
    const int64_t count = smelt__spec_get(spec, table->list);
    for (int i = 0; i < SMELT__MAX_LIST; i++)
        given[i] = i < count ? spec->list[i] : 0;
    if (count == SMELT__AUTO)
        given[0] = -1;
}

smelt_status smelt__operator_parse_spec(const struct smelt__spec_table *table, const char *text,
                                        void *given, char **knobs) {
    union spec_struct copy = {.bytes = {0}};
    struct smelt__spec spec;
    struct smelt__message message;
    char named[SMELT__SPEC_TEXT];
    if (knobs)
        *knobs = NULL;
    if (!text)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "text is NULL");
    smelt_status status = smelt__struct_check(table->about, given);
    if (status != SMELT_OK)
        return status;
    if (smelt__spec_parse(text, &spec, &message))
        return refuse_spec(&message);
    if (spec.schema != &table->family->schema)
        return smelt__fail(SMELT_ERROR_INVALID_SPEC, "%s is no %s operator", spec.schema->name,
                           table->family->schema.name);
    smelt__spec_print_knobs(&spec, named);
    if (knobs && named[0] && !(*knobs = strdup(named)))
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
    for (int i = 0; i < table->count; i++)
        *int_at(&copy, table->fields[i].field) = (int)smelt__spec_get(&spec, table->fields[i].key);
    if (table->passes)
        *int_at(&copy, table->passes) = (int)smelt__spec_passes(&spec);
    if (table->list)
        write_list(table, &spec, int_at(&copy, table->list_field));
    if (knobs)
        memcpy(copy.bytes + table->knobs, knobs, sizeof *knobs);
    smelt__struct_write(table->about, &copy, given);
    return SMELT_OK;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static smelt_status expand(const struct smelt__spec *spec, struct smelt__expansion *expansion) {
    struct smelt__message message;
    if (smelt__spec_expand(spec, expansion, &message))
        return smelt__fail(SMELT_ERROR_UNSUPPORTED, "%s", message.text);
    return SMELT_OK;
}

/* Each has a plan on the context's architecture. */
static smelt_status plan_all(const smelt_context *context,
                             const struct smelt__expansion *expansion) {
    struct smelt__plan plan;
    smelt_status status = SMELT_OK;
    for (int i = 0; i < expansion->count && status == SMELT_OK; i++)
        status = smelt__kernel_plan(context, &expansion->kernels[i], &plan);
    return status;
}

smelt_status smelt__operator_supported(const struct smelt__spec_table *table,
                                       const smelt_context *context, const void *given,
                                       const char **why) {
    struct smelt__spec spec;
    struct smelt__expansion expansion;
    if (why)
        *why = "";
    smelt_status status = context ? smelt__operator_read_spec(table, given, &spec)
                                  : smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "context is NULL");
    if (status == SMELT_OK)
        status = expand(&spec, &expansion);
    if (status == SMELT_OK)
        status = plan_all(context, &expansion);
    if (status != SMELT_OK && why)
        *why = smelt_last_error();
    return status;
}

static smelt_status make(smelt_context *context, const struct smelt__spec *spec,
                         struct smelt__operator *made) {
    struct smelt__expansion expansion;
    smelt_status status = expand(spec, &expansion);
    if (status == SMELT_OK)
        status = plan_all(context, &expansion); /* nothing is compiled for what cannot be made */
    if (status != SMELT_OK)
        return status;
    made->context = context;
    made->passes = smelt__spec_passes(spec);
    made->count = expansion.count;
    memcpy(made->pass, expansion.pass, sizeof made->pass);
    return smelt__kernels_get(context, expansion.kernels, expansion.count, made->kernels);
}

smelt_status smelt__operator_create(const struct smelt__spec_table *table, void *object,
                                    smelt_context *context, const void *given,
                                    struct smelt__spec *checked) {
    struct smelt__spec spec;
    struct smelt__operator *made = NULL;
    if (!object)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s is NULL", table->object);
    memcpy(object, &made, sizeof made); /* a pointer of another type: STEM's */
    smelt_status status = smelt__context_need_device(context);
    if (status == SMELT_OK)
        status = smelt__operator_read_spec(table, given, &spec);
    if (status != SMELT_OK)
        return status;
    made = calloc(1, table->object_bytes);
    if (!made)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
    status = make(context, &spec, made);
    if (status != SMELT_OK) {
        free(made);
        return status;
    }
    memcpy(object, &made, sizeof made);
    if (checked)
        *checked = spec;
    return SMELT_OK;
}

void smelt__operator_destroy(void *object) {
    void *made, *const none = NULL;
    if (!object)
        return;
    memcpy(&made, object, sizeof made);
    free(made);
    memcpy(object, &none, sizeof none);
}

int smelt__operator_pass(const struct smelt__operator *made, unsigned pass, int *count) {
    int first = 0;
    while (first < made->count && made->pass[first] != pass)
        first++;
    *count = 0;
    while (first + *count < made->count && made->pass[first + *count] == pass)
        ++*count;
    return first;
}

smelt_status smelt__operator_need_pass(const struct smelt__operator *made, unsigned pass) {
    if (made->passes & pass)
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "the operator was not made for its %s pass; name it in spec.passes",
                       pass == SMELT_PASS_FORWARD ? "forward" : "backward");
}

smelt_status smelt__operator_get_kernel_info(const struct smelt__operator *made, unsigned pass,
                                             int index, smelt_kernel_info *info) {
    int count;
    smelt_status status = smelt__struct_check(SMELT__KERNEL_INFO("info"), info);
    if (status == SMELT_OK && pass != SMELT_PASS_FORWARD && pass != SMELT_PASS_BACKWARD)
        status = smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                             "pass = %u is not legal; legal: SMELT_PASS_FORWARD or "
                             "SMELT_PASS_BACKWARD",
                             pass);
    if (status == SMELT_OK)
        status = smelt__operator_need_pass(made, pass);
    if (status != SMELT_OK)
        return status;
    const int first = smelt__operator_pass(made, pass, &count);
    if (index < 0 || index >= count)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "the pass has no kernel number %d: legal are 0..%d", index, count - 1);
    smelt__struct_write(SMELT__KERNEL_INFO("info"), &made->kernels[first + index]->info, info);
    return SMELT_OK;
}

/* ---- grids ----------------------------------------------------------------------------------- */

smelt_status smelt__operator_check_grid(const struct smelt__operator *made, unsigned pass,
                                        int64_t items) {
    for (int i = 0; i < made->count; i++) {
        const struct smelt__kernel *kernel = made->kernels[i];
        if (made->pass[i] != pass || !kernel->item || items * kernel->blocks_per_item <= INT32_MAX)
            continue;
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "%" PRId64 " times a %s with %" PRId64 " blocks each exceed the grid's "
                           "2^31 - 1 blocks; split the call",
                           items, kernel->item, kernel->blocks_per_item);
    }
    return SMELT_OK;
}

int64_t smelt__blocks_beside(const struct smelt__kernel *kernel, int64_t free_multiprocessors) {
    if (free_multiprocessors == 0)
        return kernel->most_blocks;
    const int64_t left =
        kernel->resident_blocks - free_multiprocessors * kernel->multiprocessor_blocks;
    const int64_t least = kernel->cluster ? kernel->cluster : 1;
    return left > least ? left - left % least : least;
}

uint32_t smelt__blocks_for(const struct smelt__kernel *kernel, int64_t items, int64_t most) {
    int64_t blocks = items * kernel->blocks_per_item;
    if (kernel->cluster)
        blocks = (blocks + kernel->cluster - 1) / kernel->cluster * kernel->cluster;
    return (uint32_t)(blocks < most ? blocks : most);
}
