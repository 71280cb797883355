#include "harness/parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { MAX_THREADS = 64 };

struct loop {
    _Atomic int64_t next;
    int64_t count, grain;
    smelt__range_function each;
    void *user;
};

static void *work(void *pointer) {
    struct loop *loop = pointer;
    for (;;) {
        int64_t begin = atomic_fetch_add(&loop->next, loop->grain);
        if (begin >= loop->count)
            return NULL;
        int64_t left = loop->count - begin;
        loop->each(loop->user, begin, begin + (left < loop->grain ? left : loop->grain));
    }
}

void smelt__parallel_for(int64_t count, int64_t grain, smelt__range_function each, void *user) {
    struct loop loop = {.count = count, .grain = grain, .each = each, .user = user};
    int64_t pieces = (count + grain - 1) / grain;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int wanted = processors < 1 ? 1 : processors > MAX_THREADS ? MAX_THREADS : (int)processors;
    if (wanted > pieces)
        wanted = (int)pieces;
    pthread_t threads[MAX_THREADS];
    int started = 0;
    while (started < wanted - 1 && pthread_create(&threads[started], NULL, work, &loop) == 0)
        started++;
    work(&loop);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}
