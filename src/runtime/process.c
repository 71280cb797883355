/* See process.h. */
#include <pthread.h>
#include <stdatomic.h>

#include "runtime/process.h"

static atomic_uint number;

static void after_fork_in_child(void) {
    atomic_fetch_add_explicit(&number, 1, memory_order_relaxed);
}

/* Registered when the library is loaded: registering at first use could race with a fork. If memory
 * runs out this early, forks are not detected. */
__attribute__((constructor)) static void watch_forks(void) {
    (void)pthread_atfork(NULL, NULL, after_fork_in_child);
}

unsigned smelt__process_number(void) {
    return atomic_load_explicit(&number, memory_order_relaxed);
}
