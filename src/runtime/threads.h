/*
 * Threads of the library's own, each of which works while a call lasts. The program's signals stay
 * the program's: handlers never run on these threads, and no signal is lost to one that waits in
 * NVRTC. (Faults of their own code still reach whoever handles faults.)
 */
#ifndef SMELT_RUNTIME_THREADS_H
#define SMELT_RUNTIME_THREADS_H

#include <pthread.h>
#include <stddef.h>

/* Starts up to `wanted` threads of work(user); how many there are. A machine that grants fewer is
 * no error: whoever asks works, too. */
size_t smelt__threads_start(pthread_t *threads, size_t wanted, void *(*work)(void *), void *user);

void smelt__threads_join(const pthread_t *threads, size_t count);

#endif
