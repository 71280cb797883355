#define KERNEL_NAME chain
#line 1 "templates/ptx/grid.cuh"
#line 5 "chain.cu"
/* A word of `to` gets one more than that of `from`; not waiting, if `wait` says so. */
__global__ void KERNEL_NAME(int *to, const int *from, int wait) {
    grid_launch_dependents();
    if (wait) {
        grid_wait();
    }
    if (threadIdx.x == 0) {
        to[0] = from[0] + 1;
    }
}
