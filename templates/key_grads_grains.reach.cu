//@use common/base.cuh
//@use common/block_sums.cuh
//@use common/head_weight.cuh
//@use common/warp_sums.cuh
//@use key_grads_grains.finite.cuh
//@use key_grads_grains.params.h
/*
 * Deterministic backward pass of the indexer, first pass: for each member of a group, the most that
 * it adds to a row of dk for a gradient of 1, which is the largest column of sum over h of
 * |weights[h]| |q[h, :]|; and the largest single addend. Infinities and NaN are ignored: the rows
 * they reach are not finite with any grain.
 *
 * A warp takes a group at a time, a lane four columns; any grid size.
 *
 * TOPS_OFFSET: [WARPS] float. One barrier, at the end.
 */

enum { WARPS = THREADS / 32, LANE_COLUMNS = 4 };

/* A query's reach; by a warp. */
DEVICE float find_reach(const struct key_grads_grains_params *params, int query) {
    const int column = (int)threadIdx.x % 32 * LANE_COLUMNS;
    const bool present = column < params->dim;
    const char *const rows =
        (const char *)params->q + 2 * (query * params->q_token_stride + (present ? column : 0));
    const i64 weights = query * params->weights_token_stride;
    float sums[LANE_COLUMNS] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 4
    for (int head = 0; head < params->heads; ++head) {
        const uint2 row = *(const uint2 *)(rows + 2 * (head * params->q_head_stride));
        const float w = fabsf(head_weight(params->weights, weights + head, params->weights_bf16));
        sums[0] += finite(w * __uint_as_float(row.x << 16 & 0x7fffffffu));
        sums[1] += finite(w * __uint_as_float(row.x & 0x7fff0000u));
        sums[2] += finite(w * __uint_as_float(row.y << 16 & 0x7fffffffu));
        sums[3] += finite(w * __uint_as_float(row.y & 0x7fff0000u));
    }
    const float largest = fmaxf(fmaxf(sums[0], sums[1]), fmaxf(sums[2], sums[3]));
    return clamped(warp_maximum(present ? largest : 0.0f));
}

/* The largest absolute value of a member's gradients; by a warp. */
DEVICE float find_largest(const float *grads, int count) {
    float largest = 0.0f;
#pragma unroll 4
    for (int i = (int)threadIdx.x % 32; i < count; i += 32) {
        largest = fmaxf(largest, finite(fabsf(grads[i])));
    }
    return warp_maximum(largest);
}

/* The most that a group adds to a row at once; by a warp. */
DEVICE float visit_group(const struct key_grads_grains_params *params, i64 group) {
    float sum = 0.0f;
    for (int member = 0; member < params->group_queries; ++member) {
        const i64 entry = group * params->group_queries + member;
        const int query = params->members[entry];
        const float reach = query >= 0 ? find_reach(params, query) : 0.0f;
        if (threadIdx.x % 32 == 0) {
            params->reach[entry] = reach;
        }
        if (query >= 0) {
            sum += reach *
                   find_largest(params->grads + entry * params->key_stride, params->counts[group]);
        }
    }
    return clamped(sum);
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct key_grads_grains_params params) {
    float *const warps = (float *)(arena + TOPS_OFFSET);
    float largest = 0.0f;
    for (i64 group = blockIdx.x * (i64)WARPS + threadIdx.x / 32; group < params.groups;
         group += gridDim.x * (i64)WARPS) {
        largest = fmaxf(largest, visit_group(&params, group));
    }
    block_begin(warps, largest);
    __syncthreads();
    largest = block_maximum(warps);
    if (threadIdx.x == 0) {
        params.tops[blockIdx.x] = largest;
    }
}
