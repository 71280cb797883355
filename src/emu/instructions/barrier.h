/* What barriers leave to whoever runs a launch. */
#ifndef SMELT_EMU_BARRIER_H
#define SMELT_EMU_BARRIER_H

/* The running thread has left the kernel: the cluster's barrier neither counts it nor waits for it
 * any more. */
void emu_cluster_barrier_leave(void);

#endif
