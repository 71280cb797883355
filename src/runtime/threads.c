/* See threads.h. */
#include "runtime/threads.h"

#include <signal.h>

size_t smelt__threads_start(pthread_t *threads, size_t wanted, void *(*work)(void *), void *user) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t all, before;
    size_t started = 0;

    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&all, faults[i]);
    /* New threads inherit the mask. */
    const int masked = pthread_sigmask(SIG_BLOCK, &all, &before) == 0;
    while (started < wanted && pthread_create(&threads[started], NULL, work, user) == 0)
        started++;
    if (masked)
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

void smelt__threads_join(const pthread_t *threads, size_t count) {
    for (size_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}
