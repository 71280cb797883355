//@use common/base.cuh

/* Programmatic dependent launch: allows the next kernel of the stream to start once all blocks have
 * called this or ended. It makes none of this kernel's results visible (PTX ISA, "griddepcontrol").
 * No effect unless the next kernel was launched with PDL. */
DEVICE void grid_launch_dependents(void) {
    asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
}

/* Waits until the previous kernels in the stream are complete and their results visible. */
DEVICE void grid_wait(void) {
    asm volatile("griddepcontrol.wait;" : : : "memory");
}
