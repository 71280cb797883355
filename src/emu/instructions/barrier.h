/* The cluster's barrier when a thread exits. */
#ifndef SMELT_EMU_BARRIER_H
#define SMELT_EMU_BARRIER_H

/* The running thread has exited: the cluster's barrier no longer counts it or waits for it. */
void emu_cluster_barrier_leave(void);

#endif
