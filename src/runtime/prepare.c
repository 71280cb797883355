/* Many kernels at once, and one kernel's cubin: see smelt/kernels.h. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/context.h"
#include "runtime/kernel.h"
#include "runtime/tuned.h"

/* One call's work, shared by its threads. */
struct preparation {
    smelt_context *context;
    const smelt_kernel_request *requests;
    size_t count;
    smelt_progress_function progress;
    void *user;
    smelt_kernel_info *infos;
    pthread_mutex_t mutex; /* guards what follows, and calls of `progress` */
    size_t next, done;
    int cancelled;
    size_t first_failed; /* lowest number of a failed kernel; `count` while there is none */
    smelt_status status;
    struct smelt__saved_error message; /* of that one */
};

static const char *request_arch(const smelt_context *context, const smelt_kernel_request *request) {
    return request->arch ? request->arch : context->arch->name;
}

/* What is known of a kernel that was not made. */
static void fill_failure(const struct preparation *all, size_t index, smelt_status status,
                         const char *error, smelt_kernel_info *info) {
    const smelt_kernel_request *request = &all->requests[index];
    memset(info, 0, sizeof *info);
    info->size = sizeof *info;
    snprintf(info->spec, sizeof info->spec, "%s", request->spec ? request->spec : "");
    snprintf(info->arch, sizeof info->arch, "%s", request_arch(all->context, request));
    info->state = SMELT_KERNEL_FAILED;
    info->status = status;
    snprintf(info->error, sizeof info->error, "%s", error);
}

static smelt_status prepare_one(const struct preparation *all, size_t index,
                                smelt_kernel_info *info) {
    const smelt_kernel_request *request = &all->requests[index];
    struct smelt__compiled compiled;
    struct smelt__plan plan;

    smelt_status status =
        smelt__context_plan_text(all->context, request->spec, request->arch, &plan);
    if (status)
        return status;
    status = smelt__kernel_compile(all->context, &plan, &compiled, info);
    free(compiled.cubin);
    return status;
}

/* Under the mutex. */
static void report(struct preparation *all, size_t index, smelt_status status,
                   const smelt_kernel_info *info) {
    all->done++;
    if (status && index < all->first_failed) {
        all->first_failed = index;
        all->status = status;
        smelt__error_save(&all->message);
    }
    if (all->infos)
        all->infos[index] = *info;
    if (all->progress && !all->cancelled && all->progress(all->user, all->done, all->count, info))
        all->cancelled = 1;
}

static void *work(void *user) {
    struct preparation *all = user;

    pthread_mutex_lock(&all->mutex);
    while (all->next < all->count && !all->cancelled) {
        smelt_kernel_info info;
        size_t index = all->next++;
        pthread_mutex_unlock(&all->mutex);
        smelt_status status = prepare_one(all, index, &info);
        if (status)
            fill_failure(all, index, status, smelt_last_error(), &info);
        pthread_mutex_lock(&all->mutex);
        report(all, index, status, &info);
    }
    pthread_mutex_unlock(&all->mutex);
    return NULL;
}

static int processors(void) {
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > 0 ? count : 1;
}

/* This thread works too, so a machine that grants no further thread only takes longer. */
static smelt_status work_with_threads(struct preparation *all, int jobs) {
    size_t wanted = (size_t)(jobs > 0 ? jobs : processors());
    size_t started = 0;

    if (wanted > all->count)
        wanted = all->count;
    pthread_t *threads = calloc(wanted ? wanted : 1, sizeof *threads);
    if (!threads)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
    while (started + 1 < wanted && pthread_create(&threads[started], NULL, work, all) == 0)
        started++;
    work(all);
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    return SMELT_OK;
}

smelt_status smelt_kernels_prepare(smelt_context *context, const smelt_kernel_request *requests,
                                   size_t count, int jobs, smelt_progress_function progress,
                                   void *user, smelt_kernel_info *infos) {
    struct preparation all = {.context = context,
                              .requests = requests,
                              .count = count,
                              .progress = progress,
                              .user = user,
                              .infos = infos,
                              .first_failed = count};
    struct smelt__saved_error saved;

    if (!context || (!requests && count > 0))
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s is NULL",
                           context ? "requests" : "context");
    if (jobs < 0)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "jobs is %d; legal: 0 (one per processor) and up", jobs);
    smelt__error_save(&saved);
    pthread_mutex_init(&all.mutex, NULL);
    smelt_status status = work_with_threads(&all, jobs);
    pthread_mutex_destroy(&all.mutex);
    if (status)
        return status;
    for (size_t i = all.next; i < count && infos; i++)
        fill_failure(&all, i, SMELT_ERROR_CANCELLED, "not begun: the progress function stopped",
                     &infos[i]);
    smelt__error_restore(&saved);
    if (all.cancelled)
        return smelt__fail(SMELT_ERROR_CANCELLED,
                           "the progress function stopped after %zu of %zu kernels", all.done,
                           count);
    return all.status ? smelt__fail(all.status, "%s", all.message.text) : SMELT_OK;
}

smelt_status smelt_kernel_cubin(smelt_context *context, const char *kernel, const char *arch,
                                void **cubin, size_t *bytes) {
    struct smelt__compiled compiled;
    struct smelt__plan plan;

    if (!context || !cubin || !bytes)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s is NULL",
                           !context ? "context"
                           : !cubin ? "cubin"
                                    : "bytes");
    *cubin = NULL;
    *bytes = 0;
    smelt_status status = smelt__context_plan_text(context, kernel, arch, &plan);
    if (!status)
        status = smelt__kernel_compile(context, &plan, &compiled, NULL);
    if (status)
        return status;
    *cubin = compiled.cubin;
    *bytes = compiled.cubin_bytes;
    return SMELT_OK;
}
