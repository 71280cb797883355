#define KERNEL_NAME where
/* Each block writes to its own word, by its index in the grid. */
__global__ void KERNEL_NAME(int *data) {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    if (threadIdx.x == 0) {
        data[block] = (int)(blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z);
    }
}
