/*
 * Acquires the lock of one kernel, with a cache lookup at each poll. A process that cannot get it
 * in time compiles anyway.
 */
#include <unistd.h>

#include "runtime/cache/internal.h"
#include "runtime/clock.h"

/* Pauses grow from 1 ms to 25 ms (100 ms with lock scope `shared`, where each poll is a round trip
 * to a server). Each pause is random between half and all of that, so that waiters do not poll in
 * lockstep. */
struct waiting {
    int64_t deadline_ns, pause_ns, max_pause_ns;
    uint64_t random;
};

static struct waiting waiting_begin(const struct smelt__cache *cache, int file) {
    int64_t now = smelt__now_ns();
    int timeout_ms = cache->lock_timeout_ms > 0 ? cache->lock_timeout_ms : 0;
    bool shared = cache->lock_mode == SMELT_CACHE_LOCK_SHARED;
    struct waiting waiting = {.deadline_ns = now + (int64_t)timeout_ms * 1000000,
                              .pause_ns = 1000000,
                              .max_pause_ns = shared ? 100000000 : 25000000};

    waiting.random = ((uint64_t)now ^ (uint64_t)getpid() << 32 ^ (uint64_t)file) | 1;
    return waiting;
}

/* Sleeps until the next poll; false when the deadline has passed. */
static bool waiting_pause(struct waiting *waiting) {
    int64_t left = waiting->deadline_ns - smelt__now_ns(), pause;
    struct timespec sleep;

    if (left <= 0)
        return false;
    waiting->random ^= waiting->random << 13;
    waiting->random ^= waiting->random >> 7;
    waiting->random ^= waiting->random << 17;
    pause = waiting->pause_ns / 2 + (int64_t)(waiting->random % (uint64_t)(waiting->pause_ns / 2));
    if (pause > left)
        pause = left;
    sleep.tv_sec = (time_t)(pause / 1000000000);
    sleep.tv_nsec = (long)(pause % 1000000000);
    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &sleep, NULL); /* a signal only shortens the pause */
    waiting->pause_ns += waiting->pause_ns / 2;
    if (waiting->pause_ns > waiting->max_pause_ns)
        waiting->pause_ns = waiting->max_pause_ns;
    return true;
}

/* A request for one key's lock. */
struct request {
    struct smelt__cache *cache;
    const struct smelt__cache_key *key;
    const struct smelt__compiler_id *compiler;
    struct smelt__compiled *compiled;
    char name[SMELT__FILE_NAME_BYTES];
    off_t offset;
    int file;
};

/* False when no lock is needed or possible: the cache is unused or recompiles, or has no lock file.
 */
static bool request_begin(struct request *request) {
    struct smelt__cache *cache = request->cache;

    if (!smelt__cache_serves(cache, request->key->output) || cache->recompile ||
        cache->problem[0] != '\0' || cache->lock_mode == SMELT_CACHE_LOCK_OFF)
        return false;
    smelt__cache_file_name(request->key, request->compiler, request->name);
    request->file = smelt__lock_file_open(cache, request->name, &request->offset);
    if (request->file < 0)
        smelt__lock_warn(cache);
    return request->file >= 0;
}

enum answer { ANSWER_HIT, ANSWER_LOCKED, ANSWER_BUSY, ANSWER_NO_LOCKS };

/* The lock first, then the lookup, so that the lock's holder sees its predecessor's entry. */
static enum answer request_poll(const struct request *request) {
    int got = smelt__lock_byte(request->file, request->offset);

    if (got < 0)
        smelt__lock_warn(request->cache);
    if (smelt__cache_look(request->cache, request->key, request->compiler, true, request->compiled))
        return ANSWER_HIT;
    return got > 0 ? ANSWER_LOCKED : got == 0 ? ANSWER_BUSY : ANSWER_NO_LOCKS;
}

/* Keeps the lock if it was acquired, else closes the file. 1: a hit. */
static int request_end(const struct request *request, enum answer answer,
                       struct smelt__cache_lock *lock) {
    if (answer == ANSWER_LOCKED)
        lock->fd = request->file;
    else
        smelt__cache_lock_release(request->file);
    return answer == ANSWER_HIT;
}

int smelt__cache_lock(struct smelt__cache *cache, const struct smelt__cache_key *key,
                      const struct smelt__compiler_id *compiler, bool wait,
                      struct smelt__cache_lock *lock, struct smelt__compiled *compiled) {
    struct request request = {cache, key, compiler, compiled, "", 0, -1};
    struct waiting waiting;
    enum answer answer;
    int hit;

    lock->fd = -1;
    if (!request_begin(&request))
        return 0;
    waiting = waiting_begin(cache, request.file);
    do
        answer = request_poll(&request);
    while (wait && answer == ANSWER_BUSY && waiting_pause(&waiting));
    if (wait && answer == ANSWER_BUSY)
        smelt__log_write(&cache->log, SMELT_LOG_INFO,
                         "cache: waited %d ms for another process to compile %s, compiling it here",
                         cache->lock_timeout_ms, request.name);
    hit = request_end(&request, answer, lock);
    return !wait && answer == ANSWER_BUSY ? -1 : hit;
}

void smelt__cache_unlock(struct smelt__cache *cache, struct smelt__cache_lock *lock) {
    (void)cache;
    if (!lock)
        return;
    smelt__cache_lock_release(lock->fd);
    lock->fd = -1;
}
