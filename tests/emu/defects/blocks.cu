/* Blocks of a grid, which are not ordered. ../defects.c describes the format. */
//@use ptx/atomic.cuh
//@use ptx/reduce.cuh

//! read by two blocks, then written by the later one: race, 32 threads, grid of 2; earlier block
data[64 + 32 * blockIdx.x + threadIdx.x] = data[threadIdx.x];
if (blockIdx.x == 1) {
    data[threadIdx.x] = 1; /* HERE */
}

//! read by a block, written by an earlier one: race, 32 threads, grid of 2; earlier block
if (blockIdx.x == 0) {
    data[threadIdx.x] = 1;
} else {
    data[64 + threadIdx.x] = data[threadIdx.x]; /* HERE */
}

//! a store over what an earlier block reads: race, 32 threads, grid of 2; read by an earlier block
if (blockIdx.x == 0) {
    data[64 + threadIdx.x] = data[threadIdx.x];
} else {
    data[threadIdx.x] = 1; /* HERE */
}

//! an addition over what an earlier block reads: race, 32 threads, grid of 2; read by an earlier block
if (blockIdx.x == 0) {
    data[64 + threadIdx.x] = data[threadIdx.x];
} else {
    reduce_add_f32((float *)&data[threadIdx.x], 1.0f); /* HERE */
}

//! blocks that count in one word: none, 32 threads, grid of 3
reduce_add_global((u32 *)&data[1024], 1);
reduce_add_global((u32 *)&data[0], 1);

//! a block reads a word that another counts in: race, 32 threads, grid of 2; nothing orders the two
if (blockIdx.x == 0) {
    reduce_add_global((u32 *)&data[0], 1);
} else {
    data[64 + threadIdx.x] = data[0]; /* HERE */
}
