/* The cluster's barrier when a thread exits. */
#pragma once

/* The running thread has exited: the cluster's barrier no longer counts it or waits for it. */
void emu_cluster_barrier_leave(void);
