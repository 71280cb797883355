#define KERNEL_NAME again
/* Every block writes the first word; the last reads it before, when the second one says so. */
__global__ void KERNEL_NAME(int *data) {
    if (threadIdx.x == 0) {
        const int reads = data[1] && blockIdx.x == gridDim.x - 1;
        const int before = reads ? data[0] : 0;
        data[0] = 7 + before;
    }
}
