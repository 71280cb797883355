/* Telling a forked child from its parent: see process.h. */
#include <pthread.h>
#include <stdatomic.h>

#include "runtime/process.h"

static atomic_uint number;

static void after_fork_in_child(void) {
    atomic_fetch_add_explicit(&number, 1, memory_order_relaxed);
}

/* From the loading of the library on, since a first use that was under way in another thread would
 * leave its own traces in the child. Should memory be out so early, forks go untold. */
__attribute__((constructor)) static void watch(void) {
    (void)pthread_atfork(NULL, NULL, after_fork_in_child);
}

unsigned smelt__process_number(void) {
    return atomic_load_explicit(&number, memory_order_relaxed);
}
