//@use common/base.cuh
//@use ptx/atomic.cuh
//@use sparse_attn_bwd_lists.params.h
/*
 * Deterministic backward pass, lists by keys, first pass: how many partial rows each part's groups
 * have of each key. What is written: sparse_attn_bwd_lists.params.h, cursors.
 *
 * Any grid is right. A block takes a group at a time, a thread VECTOR keys of its list: lists are
 * padded with -1 to a multiple of that.
 */

enum { VECTOR = 4 /* keys of 16 bytes */ };

DEVICE void count_key(u32 *cursors, int key) {
    if (key >= 0) {
        reduce_add_global(cursors + key, 1);
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_bwd_segments_params params) {
    for (int group = (int)blockIdx.x; group < params.groups; group += (int)gridDim.x) {
        const i64 list = (i64)params.first_group + group;
        const int4 *const keys = (const int4 *)(params.keys + list * params.key_stride);
        const int vectors = (params.counts[list] + VECTOR - 1) / VECTOR;
        const int chunk = group / params.chunk, part = group % params.chunk / params.part;
        u32 *const cursors =
            (u32 *)params.cursors + part * params.columns + chunk * params.key_count;
        for (int i = (int)threadIdx.x; i < vectors; i += THREADS) {
            const int4 vector = keys[i];
            count_key(cursors, vector.x);
            count_key(cursors, vector.y);
            count_key(cursors, vector.z);
            count_key(cursors, vector.w);
        }
    }
}
