/* Warnings of a cache, and its counts in memory. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "runtime/cache/internal.h"

void smelt__cache_warn_once(struct smelt__cache *cache, enum smelt__cache_warning which,
                            const char *format, ...) {
    char line[1024];
    va_list arguments;
    unsigned before =
        atomic_fetch_or_explicit(&cache->warned, (unsigned)which, memory_order_relaxed);

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    smelt__log_write(&cache->log, before & (unsigned)which ? SMELT_LOG_DEBUG : SMELT_LOG_WARNING,
                     "%s", line);
}

void smelt__cache_count(struct smelt__cache *cache, enum smelt__output output,
                        enum smelt__cache_count which, uint64_t more) {
    const int kind = output == SMELT__OUTPUT_EMULATED ? SMELT__KIND_EMULATED : SMELT__KIND_GPU;

    atomic_fetch_add_explicit(&cache->counts[kind][which], more, memory_order_relaxed);
}

void smelt__cache_count_hit(struct smelt__cache *cache, enum smelt__output output, bool readonly,
                            double compile_seconds) {
    enum { MAX_SECONDS = 86400 }; /* read from a file, so not trusted */

    smelt__cache_count(cache, output, readonly ? SMELT__COUNT_READONLY_HITS : SMELT__COUNT_HITS, 1);
    if (isfinite(compile_seconds) && compile_seconds > 0 && compile_seconds < MAX_SECONDS)
        smelt__cache_count(cache, output, SMELT__COUNT_SAVED_MS, (uint64_t)(1e3 * compile_seconds));
}

struct smelt__cache_counts smelt__cache_counts(const struct smelt__cache *cache) {
    struct smelt__cache_counts counts = {0, 0, 0};
    uint64_t all[SMELT__COUNTS] = {0};

    if (!cache)
        return counts;
    for (int kind = 0; kind < SMELT__KINDS; kind++)
        for (int i = 0; i < SMELT__COUNTS; i++)
            all[i] += atomic_load_explicit(&cache->counts[kind][i], memory_order_relaxed);
    counts.hits = all[SMELT__COUNT_HITS] + all[SMELT__COUNT_READONLY_HITS];
    counts.misses = all[SMELT__COUNT_MISSES];
    counts.errors = all[SMELT__COUNT_ERRORS];
    return counts;
}
