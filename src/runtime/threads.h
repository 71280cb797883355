/*
 * The library's own threads, which live as long as a call. They block the program's signals:
 * handlers never run on them, and no signal is delayed by a thread inside NVRTC. (Signals of their
 * own faults, such as SIGSEGV, stay unblocked.)
 */
#pragma once

#include <pthread.h>
#include <stddef.h>

/* Starts up to `wanted` threads that run work(user) and returns their number. Fewer than wanted is
 * no error: the caller works, too. */
size_t smelt__threads_start(pthread_t *threads, size_t wanted, void *(*work)(void *), void *user);

void smelt__threads_join(const pthread_t *threads, size_t count);
