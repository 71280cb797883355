/* See search.h. */
#include "codegen/plan/search.h"

enum {
    MOST_THREADS = 1024 /* of a thread block */
};

struct state {
    const struct smelt__search *search;
    const struct smelt__spec *spec;
    const struct smelt__arch *arch;
    struct smelt__choice *choice;
    struct smelt__plan *plan;
    struct smelt__excess *excess;
    int index[SMELT__MOST_AXES], best[SMELT__MOST_AXES]; /* indices into the axes' values */
    int found;
    long least; /* cost of the best */
};

static int fits(const struct state *state) {
    const struct smelt__search *search = state->search;
    const struct smelt__needs one = {SMELT__WARP, 1, 0};
    const struct smelt__needs needs =
        search->needs ? search->needs(state->choice, state->arch) : one;
    if (needs.threads > MOST_THREADS ||
        needs.threads * needs.blocks > state->arch->threads_per_multiprocessor)
        return 0;
    state->plan->region_count = 0;
    search->add_regions(state->choice, state->plan);
    return smelt__limits_hold(state->arch, needs.threads, needs.blocks, state->plan->shared_bytes,
                              needs.registers, state->excess);
}

/* Sets an axis to one of its values; returns 0 if a knob or the axis's rule excludes it. */
static int set(const struct state *state, int number, int index) {
    const struct smelt__axis *axis = &state->search->axes[number];
    int *const field = (int *)(void *)((char *)state->choice + axis->field);
    if (axis->shapes) {
        const struct smelt__pipeline_shape shape = axis->shapes[index];
        if (!smelt__knob_allows(state->spec, "block_keys", shape.block_keys) ||
            !smelt__knob_allows(state->spec, "stages", shape.stages))
            return 0;
        *(struct smelt__pipeline_shape *)(void *)field = shape;
    } else {
        *field = axis->values ? axis->values[index] : index;
    }
    if (axis->knob)
        *field = smelt__spec_knob(state->spec, axis->knob, *field);
    return !axis->rule || axis->rule(state->choice);
}

/* Tries the values of this axis and of those after it. */
static void visit(struct state *state, int number) {
    const struct smelt__search *search = state->search;
    if (number == search->count) {
        const int fit = fits(state);
        const long cost = fit && search->cost ? search->cost(state->choice) : 0;
        if (!fit || (state->found && cost >= state->least))
            return;
        for (int i = 0; i < search->count; i++)
            state->best[i] = state->index[i];
        state->least = cost;
        state->found = 1;
        return;
    }
    const struct smelt__axis *axis = &search->axes[number];
    const int given = axis->knob && smelt__spec_get(state->spec, axis->knob) != SMELT__AUTO;
    const int ranked = number < search->count - search->by_cost;
    for (int i = 0; i < (given ? 1 : axis->count) && !(ranked && state->found); i++) {
        state->index[number] = i;
        if (set(state, number, i))
            visit(state, number + 1);
    }
}

int smelt__search_find(const struct smelt__search *search, const struct smelt__spec *spec,
                       const struct smelt__arch *arch, struct smelt__choice *choice,
                       struct smelt__plan *plan, struct smelt__excess *excess) {
    struct state state = {search, spec, arch, choice, plan, excess, {0}, {0}, 0, 0};
    search->begin(choice, spec);
    visit(&state, 0);
    if (!state.found)
        return 0;
    for (int i = 0; i < search->count; i++)
        set(&state, i, state.best[i]);
    plan->region_count = 0;
    search->add_regions(choice, plan);
    return 1;
}

int smelt__search_plan(const struct smelt__search *search, const struct smelt__spec *spec,
                       const struct smelt__arch *arch, struct smelt__choice *choice,
                       struct smelt__plan *plan, struct smelt__message *message) {
    struct smelt__excess excess = SMELT__NO_EXCESS;
    if (smelt__search_find(search, spec, arch, choice, plan, &excess))
        return 0;
    smelt__excess_explain(&excess, spec, arch, search->less_shared, search->less_registers,
                          search->legal, message);
    return -1;
}
