#define KERNEL_NAME rank
#line 1 "templates/ptx/cluster.cuh"
#line 5 "rank.cu"
/* The same for a kernel whose launch determines the cluster. */
__global__ void KERNEL_NAME(int *data) {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    if (threadIdx.x == 0) {
        data[block] = (int)cluster_rank();
    }
}
