/* The kernels with which bench/partition.c compares the partition: one pass over index rows, and a
 * kernel that writes them. 512 threads. */

enum { READ, WRITE_FORWARD, WRITE_BACKWARD, LOADS = 4, DOCUMENT = 512, THREADS = 512 };

/* Reads everything once; the sum prevents removal of the loads. */
static __device__ void read_all(const uint4 *vectors, long long count, unsigned *sum) {
    const long long stride = (long long)gridDim.x * THREADS;
    long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    unsigned all = 0;
    for (; i + (LOADS - 1) * stride < count; i += LOADS * stride) {
        uint4 values[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; ++k)
            values[k] = __ldcs(vectors + i + k * stride);
#pragma unroll
        for (int k = 0; k < LOADS; ++k)
            all ^= values[k].x ^ values[k].y ^ values[k].z ^ values[k].w;
    }
    for (; i < count; i += stride)
        all ^= vectors[i].x ^ vectors[i].y ^ vectors[i].z ^ vectors[i].w;
    if (all == 0x9e3779b9u)
        *sum = all;
}

/* Documents of 512 tokens: a query's slots up to itself, then -1. */
static __device__ void write_all(int *indices, long long count, int width, long long block) {
    const long long per_block = (count + gridDim.x - 1) / gridDim.x;
    for (long long i = threadIdx.x; i < per_block; i += THREADS) {
        const long long number = block * per_block + i;
        const int slot = (int)(number % width), token = (int)(number / width % DOCUMENT);
        if (number < count)
            indices[number] = slot <= token ? token - slot : -1;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    smelt_bench_indices(int *indices, long long count, int width, int mode, unsigned *sum) {
    if (mode == READ)
        read_all((const uint4 *)indices, count / 4, sum);
    else
        write_all(indices, count, width,
                  mode == WRITE_FORWARD ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
}
