#define KERNEL_NAME rank
#line 1 "templates/ptx/cluster.cuh"
#line 5 "rank.cu"
/* The same, of a kernel that leaves the cluster to its launch. */
__global__ void KERNEL_NAME(int *data) {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    if (threadIdx.x == 0) {
        data[block] = (int)cluster_rank();
    }
}
