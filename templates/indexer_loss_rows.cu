//@use common/base.cuh
//@use common/block_sums.cuh
//@use common/loss_norms.cuh
//@use common/softmax.cuh
//@use ptx/grid.cuh
//@use ptx/math.cuh
//@use ptx/stream.cuh
//@use indexer_loss_rows.params.h
/*
 * The indexer's loss per query, and its gradient. Meaning: include/smelt/indexer_loss.h.
 *
 * Grid: one CTA per query, or fewer that loop. A thread has VECTORS vectors of four adjacent slots
 * of each PART of the row. A row of one part stays in registers, so that each matrix is read once;
 * a longer one is read three times, part by part, from L2 if it fits.
 *
 *   1. the maximum logit and the sum of the targets  one barrier
 *   2. the sum of exp(logit - maximum)               one barrier
 *   3. the gradient, and the sum of the loss         one barrier
 *
 * Shared memory: a float per warp for each of the four reductions. Each is read after one barrier
 * and overwritten at least two barriers later.
 *
 * Knobs: vectors, blocks.
 */

enum {
    VECTOR = 4, /* slots of 16 bytes */
    LANE_SLOTS = VECTORS * VECTOR,
    STEP = THREADS * VECTOR, /* slots between a thread's vectors */
    PART = VECTORS * STEP
};

/* A query's rows. */
struct row {
    const float *logits, *target;
    const int *indices;
    float *grad;  /* or null */
    int slots;    /* valid ones are below this */
    float weight; /* of its loss; 0: it has none */
    float factor; /* of its gradient */
};

/* A thread's slots of a part. Masked slots have logit -inf and target 0. */
struct part {
    float logits[LANE_SLOTS], targets[LANE_SLOTS];
};

/* The first slot of this thread's vector `vector` in part `number`. */
DEVICE int first_slot(int number, int vector) {
    return number * PART + vector * STEP + (int)threadIdx.x * VECTOR;
}

DEVICE struct row open_row(const struct indexer_loss_rows_params *params, i64 query) {
    struct row row;
    const float weight = params->query_weight * (params->weight ? params->weight[query] : 1.0f);
    const int length = params->topk_length ? params->topk_length[query * params->topk_length_stride]
                                           : params->width;
    row.logits = params->logits + query * params->logits_stride;
    row.target = params->target + query * params->target_stride;
    row.indices = params->indices + query * params->indices_stride;
    row.grad = params->grad ? params->grad + query * params->grad_stride : 0;
    row.slots = minimum(maximum(length, 0), params->width);
    row.weight = finite_weight(weight);
    row.factor = row.weight * (params->grad_loss ? *params->grad_loss : 1.0f);
    return row;
}

/* Stores a slot's values; valid logits are finite or -inf. */
DEVICE void store_slot(struct part *part, int i, u32 logit, u32 target, bool valid) {
    const float larger = fmaxf(__uint_as_float(logit), MINUS_INFINITY); /* -inf for NaN */
    part->logits[i] = valid ? fminf(larger, LARGEST_FLOAT) : MINUS_INFINITY;
    part->targets[i] = valid ? fmaxf(__uint_as_float(target), 0.0f) : 0.0f;
}

/* Loads part `number` in whole vectors: all loads are issued before the first value is used. */
DEVICE void load_vectors(struct part *part, const struct indexer_loss_rows_params *params,
                         const struct row *row, int number) {
    u32 logits[LANE_SLOTS], targets[LANE_SLOTS], indices[LANE_SLOTS];
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        const int slot = first_slot(number, i);
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) {
            logits[i * VECTOR + c] = targets[i * VECTOR + c] = 0;
            indices[i * VECTOR + c] = ~0u; /* masked */
        }
        if (slot < row->slots) {
            load_streaming_16(&indices[i * VECTOR], row->indices + slot);
            load_streaming_16(&logits[i * VECTOR], row->logits + slot);
            load_streaming_16(&targets[i * VECTOR], row->target + slot);
        }
    }
#pragma unroll
    for (int i = 0; i < LANE_SLOTS; ++i) {
        const int slot = first_slot(number, i / VECTOR) + i % VECTOR;
        store_slot(part, i, logits[i], targets[i],
                   slot < row->slots && indices[i] < (u32)params->rows);
    }
}

/* Loads part `number` slot by slot, for unaligned rows. */
DEVICE void load_slots(struct part *part, const struct indexer_loss_rows_params *params,
                       const struct row *row, int number) {
#pragma unroll
    for (int i = 0; i < LANE_SLOTS; ++i) {
        const int slot = first_slot(number, i / VECTOR) + i % VECTOR;
        u32 logit = 0, target = 0, index = ~0u;
        if (slot < row->slots) {
            index = (u32)row->indices[slot];
            logit = __float_as_uint(row->logits[slot]);
            target = __float_as_uint(row->target[slot]);
        }
        store_slot(part, i, logit, target, index < (u32)params->rows);
    }
}

DEVICE void load_part(struct part *part, const struct indexer_loss_rows_params *params,
                      const struct row *row, int number) {
    if (params->whole) {
        load_vectors(part, params, row, number);
    } else {
        load_slots(part, params, row, number);
    }
}

/* The sum of the targets and, with the same barrier, the maximum logit. */
DEVICE float reduce_row(float *largest, float targets) {
    float *const maxima = (float *)(arena + MAXIMA_OFFSET);
    block_begin(maxima, warp_maximum(*largest));
    const float sum = block_total(targets, TARGETS_OFFSET);
    *largest = block_maximum(maxima);
    return sum;
}

/* This thread's sum of exp(logit - largest) over a part. */
DEVICE float sum_exponentials(const struct part *part, float largest) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < LANE_SLOTS; ++i) {
        sum += exp2_approximate((part->logits[i] - largest) * LOG2_E);
    }
    return sum;
}

/* The gradient of one of this thread's vectors; returns its part of the loss. */
DEVICE float differentiate(float *grads, const struct part *part, int vector, const struct row *row,
                           const struct norms *norms) {
    float sum = 0.0f;
#pragma unroll
    for (int c = 0; c < VECTOR; ++c) {
        const float score = part->logits[vector * VECTOR + c] - norms->largest;
        const float q = exp2_approximate(score * LOG2_E) * norms->share;
        const float p = part->targets[vector * VECTOR + c] * norms->unit;
        const float surprise = LN_2 * log2_approximate(p) - (score - norms->log_sum);
        const bool moves = norms->live && q != p;
        grads[c] = moves ? row->factor * (q - p) : 0.0f;
        sum += norms->live && p > 0.0f ? p * surprise : 0.0f;
    }
    return sum;
}

DEVICE void store_vector(const struct indexer_loss_rows_params *params, const struct row *row,
                         const float *grads, int slot) {
    if (params->whole && slot < params->width) {
        const float4 vector = {grads[0], grads[1], grads[2], grads[3]};
        *(float4 *)(row->grad + slot) = vector;
    }
#pragma unroll
    for (int c = 0; c < VECTOR; ++c) {
        if (!params->whole && slot + c < params->width) {
            row->grad[slot + c] = grads[c];
        }
    }
}

/* Stores a part's gradient, if requested; returns this thread's part of the loss. */
DEVICE float finish_part(const struct indexer_loss_rows_params *params, const struct row *row,
                         const struct part *part, const struct norms *norms, int number) {
    float loss = 0.0f;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        float grads[VECTOR];
        loss += differentiate(grads, part, i, row, norms);
        if (row->grad) {
            store_vector(params, row, grads, first_slot(number, i));
        }
    }
    return loss;
}

/* One query, by the whole block. */
DEVICE void process_query(const struct indexer_loss_rows_params *params, i64 query) {
    const struct row row = open_row(params, query);
    const int parts = PARTS > 1 ? (params->width - 1) / PART + 1 : 1;
    struct part part;
    float largest = MINUS_INFINITY, targets = 0.0f, sum = 0.0f, loss = 0.0f;
#pragma unroll 1
    for (int number = 0; number < parts; ++number) {
        load_part(&part, params, &row, number);
#pragma unroll
        for (int i = 0; i < LANE_SLOTS; ++i) {
            largest = fmaxf(largest, part.logits[i]);
            targets += part.targets[i];
        }
    }
    targets = reduce_row(&largest, targets);
    largest = largest == MINUS_INFINITY ? 0.0f : largest;
#pragma unroll 1
    for (int number = 0; number < parts; ++number) {
        if (PARTS > 1) {
            load_part(&part, params, &row, number);
        }
        sum += sum_exponentials(&part, largest);
    }
    sum = block_total(sum, SUMS_OFFSET);
    const struct norms norms = find_norms(largest, sum, targets, row.weight);
#pragma unroll 1
    for (int number = 0; number < parts; ++number) {
        if (PARTS > 1) {
            load_part(&part, params, &row, number);
        }
        loss += finish_part(params, &row, &part, &norms, number);
    }
    loss = block_total(loss, LOSSES_OFFSET);
    if (threadIdx.x == 0) {
        params->losses[query] = norms.live ? row.weight * loss : 0.0f;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_loss_rows_params params) {
    if (PDL && threadIdx.x == 0) {
        grid_launch_dependents(); /* of indexer_loss_sum, which waits for this kernel's end */
    }
#pragma unroll 1
    for (i64 query = blockIdx.x; query < params.queries; query += gridDim.x) {
        process_query(&params, query);
    }
}
