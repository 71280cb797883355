/* Plans, compiles and loads the kernels of one operator in parallel. */
#include <pthread.h>

#include "runtime/context.h"
#include "runtime/kernel.h"
#include "runtime/threads.h"
#include "runtime/tuning/tuned.h"

/* One call's work, shared by its threads. */
struct gathering {
    smelt_context *context;
    const struct smelt__spec *specs;
    const struct smelt__kernel **kernels;
    int count;
    pthread_mutex_t mutex; /* guards the members below */
    int next;
    int first_failed; /* lowest failed kernel; `count`: none */
    smelt_status status;
    struct smelt__saved_error message; /* of that kernel */
};

static smelt_status get_one(const struct gathering *all, int index) {
    struct smelt__plan plan;
    smelt_status status = smelt__context_plan(all->context, &all->specs[index], NULL, &plan);
    if (status == SMELT_OK && *plan.declined)
        smelt__log_write(&all->context->settings.log, SMELT_LOG_INFO, "%s runs in variant %s: %s",
                         plan.kernel_name, plan.variant, plan.declined);
    return status == SMELT_OK ? smelt__kernel_get(all->context, &plan, &all->kernels[index])
                              : status;
}

static void *work(void *user) {
    struct gathering *all = user;

    pthread_mutex_lock(&all->mutex);
    while (all->next < all->count) {
        const int index = all->next++;
        pthread_mutex_unlock(&all->mutex);
        const smelt_status status = get_one(all, index);
        pthread_mutex_lock(&all->mutex);
        if (status != SMELT_OK && index < all->first_failed) {
            all->first_failed = index;
            all->status = status;
            smelt__error_save(&all->message);
        }
    }
    pthread_mutex_unlock(&all->mutex);
    return NULL;
}

smelt_status smelt__kernels_get(smelt_context *context, const struct smelt__spec *specs, int count,
                                const struct smelt__kernel **kernels) {
    struct gathering all = {.context = context,
                            .specs = specs,
                            .kernels = kernels,
                            .count = count,
                            .first_failed = count};
    struct smelt__saved_error saved;
    pthread_t threads[SMELT__MAX_KERNELS];

    smelt__error_save(&saved);
    pthread_mutex_init(&all.mutex, NULL);
    const size_t started =
        smelt__threads_start(threads, count > 0 ? (size_t)count - 1 : 0, work, &all);
    work(&all);
    smelt__threads_join(threads, started);
    pthread_mutex_destroy(&all.mutex);
    smelt__error_restore(all.status ? &all.message : &saved);
    return all.status;
}
