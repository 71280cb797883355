#define KERNEL_NAME chain
#line 1 "templates/ptx/grid.cuh"
#line 5 "chain.cu"
/* Sets a word of `to` to one more than that of `from`; waits if `wait` is set. */
__global__ void KERNEL_NAME(int *to, const int *from, int wait) {
    grid_launch_dependents();
    if (wait) {
        grid_wait();
    }
    if (threadIdx.x == 0) {
        to[0] = from[0] + 1;
    }
}
