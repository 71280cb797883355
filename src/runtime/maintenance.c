/* The public calls that look after a context's cache: see smelt/cache.h. */
#include "runtime/cache.h"
#include "runtime/context.h"
#include "smelt/cache.h"

static smelt_status need(const smelt_context *context) {
    return context ? SMELT_OK : smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "context is NULL");
}

smelt_status smelt_cache_stat(smelt_context *context, smelt_cache_stats *stats) {
    if (need(context))
        return SMELT_ERROR_INVALID_ARGUMENT;
    if (!stats || stats->size < sizeof *stats)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "stats is NULL or its size is not set (%zu expected)", sizeof *stats);
    return smelt__cache_stat(context->cache, stats);
}

smelt_status smelt_cache_walk(smelt_context *context, smelt_cache_entry_function each, void *user) {
    if (need(context))
        return SMELT_ERROR_INVALID_ARGUMENT;
    if (!each)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "the function to call is NULL");
    return smelt__cache_walk(context->cache, each, user);
}

smelt_status smelt_cache_verify(smelt_context *context, uint64_t *sound, uint64_t *removed) {
    smelt_status status = need(context);
    return status ? status : smelt__cache_verify(context->cache, sound, removed);
}

smelt_status smelt_cache_clear(smelt_context *context, uint64_t *removed) {
    smelt_status status = need(context);
    return status ? status : smelt__cache_clear(context->cache, removed);
}

smelt_status smelt_cache_prune(smelt_context *context, uint64_t max_bytes,
                               uint64_t older_than_seconds, smelt_cache_pruned *pruned) {
    if (need(context))
        return SMELT_ERROR_INVALID_ARGUMENT;
    if (pruned && pruned->size < sizeof *pruned)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "pruned->size is %zu, expected %zu",
                           pruned->size, sizeof *pruned);
    if (pruned)
        *pruned = (smelt_cache_pruned){.size = pruned->size};
    return smelt__cache_prune(context->cache, max_bytes, older_than_seconds, pruned);
}
