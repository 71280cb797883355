/* Preparing many kernels at once, and the cubin of one: see smelt/kernels.h. */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "runtime/abi.h"
#include "runtime/clock.h"
#include "runtime/context.h"
#include "runtime/kernel.h"
#include "runtime/log.h"
#include "runtime/threads.h"
#include "runtime/tuning/tuned.h"

/*
 * Several processes often prepare the same kernels at the same time, for example the ranks of a
 * trainer. None of them waits for another: a kernel that another process is compiling is deferred,
 * the next one is taken, and deferred kernels are polled when nothing else is left; by then most
 * are in the cache. Each process uses a random order, so that processes that share a cache but not
 * locks seldom compile the same kernel at the same time.
 */

/* A kernel that another process was compiling. */
struct deferred {
    size_t index;
    int64_t deadline_ns; /* after that it is compiled here as well */
};

/* One call's work, shared by its threads. */
struct preparation {
    smelt_context *context;
    smelt_kernel_request *requests; /* of this library's size */
    size_t count;
    size_t *order; /* of starting requests */
    smelt_progress_function progress;
    void *user;
    smelt_kernel_info *infos;  /* elements of the caller's size; NULL: not wanted */
    unsigned char *finished;   /* of each request */
    pthread_mutex_t mutex;     /* guards the members below and calls of `progress` */
    size_t next, done;         /* requests started, requests finished */
    struct deferred *deferred; /* a ring of `count` slots */
    size_t deferred_first, deferred_count;
    int64_t ticked_ns; /* when `progress` was last called */
    int cancelled;
    size_t first_failed; /* lowest failed request; `count`: none */
    smelt_status status;
    struct smelt__saved_error message; /* of that request */
};

static const char *request_arch(const smelt_context *context, const smelt_kernel_request *request) {
    return request->arch ? request->arch : context->arch->name;
}

/* The info of a kernel that was not compiled, with its key, where info->key has it. */
static void fill_failure(const struct preparation *all, size_t index, smelt_status status,
                         const char *error, smelt_kernel_info *info) {
    const smelt_kernel_request *request = &all->requests[index];
    struct smelt__strings *strings = all->context->strings;
    *info = (smelt_kernel_info){
        .size = sizeof *info,
        .spec = smelt__strings_note(strings, request->spec ? request->spec : ""),
        .arch = smelt__strings_note(strings, request_arch(all->context, request)),
        .kernel = "",
        .key = info->key ? info->key : "",
        .error = smelt__strings_note(strings, error),
        .state = SMELT_KERNEL_FAILED,
        .status = status};
}

static smelt_status prepare_one(const struct preparation *all, size_t index,
                                enum smelt__lock_policy policy, smelt_kernel_info *info,
                                int *busy) {
    const smelt_kernel_request *request = &all->requests[index];
    struct smelt__compiled compiled;
    struct smelt__plan plan;

    *busy = 0;
    info->key = NULL;
    if (!request->spec)
        return smelt__fail_null("spec");
    SMELT__TRY(smelt__context_plan_text(all->context, request->spec, request->arch, &plan));
    const smelt_status status =
        smelt__kernel_compile_unless(all->context, &plan, policy, &compiled, info, busy);
    free(compiled.cubin);
    return status;
}

/* ---- the work, under the mutex ---- */

static void call_progress(struct preparation *all, const smelt_kernel_info *info) {
    all->ticked_ns = smelt__now_ns();
    if (all->progress && !all->cancelled && all->progress(all->user, all->done, all->count, info))
        all->cancelled = 1;
}

static void give_info(const struct preparation *all, size_t index, const smelt_kernel_info *info) {
    if (all->infos)
        smelt__structs_write(SMELT__KERNEL_INFO("infos[0]"), info, all->infos, index);
}

static void report(struct preparation *all, size_t index, smelt_status status,
                   const smelt_kernel_info *info) {
    all->done++;
    all->finished[index] = 1;
    if (status && index < all->first_failed) {
        all->first_failed = index;
        all->status = status;
        smelt__error_save(&all->message);
    }
    give_info(all, index, info);
    call_progress(all, info);
}

/* Takes the next request, else the first deferred one. 0: nothing is left. */
static int take(struct preparation *all, struct deferred *item) {
    if (all->cancelled || (all->next == all->count && all->deferred_count == 0))
        return 0;
    if (all->next < all->count) {
        item->index = all->order[all->next++];
        item->deadline_ns = 0;
    } else {
        *item = all->deferred[all->deferred_first];
        all->deferred_first = (all->deferred_first + 1) % all->count;
        all->deferred_count--;
    }
    return 1;
}

static void defer(struct preparation *all, const struct deferred *item) {
    struct deferred *last =
        &all->deferred[(all->deferred_first + all->deferred_count++) % all->count];

    *last = *item;
    if (!last->deadline_ns)
        last->deadline_ns =
            smelt__now_ns() + all->context->settings.cache.lock_timeout_ms * INT64_C(1000000);
}

static void report_awaited(struct preparation *all) {
    const smelt_kernel_request *request = &all->requests[all->deferred[all->deferred_first].index];
    const smelt_kernel_info info = {.size = sizeof info,
                                    .spec = request->spec,
                                    .arch = request_arch(all->context, request),
                                    .kernel = "",
                                    .key = "",
                                    .error = "",
                                    .state = SMELT_KERNEL_AWAITED};
    call_progress(all, &info);
}

/* Pauses, longer each time, once all remaining kernels were found busy since the last pause. */
struct polling {
    size_t busy; /* busy kernels in a row */
    int64_t pause_ns;
};

static void pause_when_idle(struct preparation *all, struct polling *polling) {
    enum { MIN_PAUSE_NS = 2000000, MAX_PAUSE_NS = 100000000, TICK_NS = 100000000 };
    struct timespec pause = {0};

    if (all->next < all->count || ++polling->busy < all->deferred_count)
        return;
    polling->busy = 0;
    polling->pause_ns = polling->pause_ns ? 2 * polling->pause_ns : MIN_PAUSE_NS;
    if (polling->pause_ns > MAX_PAUSE_NS)
        polling->pause_ns = MAX_PAUSE_NS;
    if (smelt__now_ns() - all->ticked_ns >= TICK_NS)
        report_awaited(all);
    pause.tv_nsec = (long)polling->pause_ns;
    pthread_mutex_unlock(&all->mutex);
    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
    pthread_mutex_lock(&all->mutex);
}

static void *work(void *user) {
    struct preparation *all = user;
    struct polling polling = {0};
    struct deferred item;

    pthread_mutex_lock(&all->mutex);
    while (take(all, &item)) {
        smelt_kernel_info info;
        int busy;
        pthread_mutex_unlock(&all->mutex);
        enum smelt__lock_policy policy = !item.deadline_ns                    ? SMELT__LOCK_SKIP
                                         : smelt__now_ns() < item.deadline_ns ? SMELT__LOCK_POLL
                                                                              : SMELT__LOCK_IGNORE;
        smelt_status status = prepare_one(all, item.index, policy, &info, &busy);
        if (status)
            fill_failure(all, item.index, status, smelt_last_error(), &info);
        pthread_mutex_lock(&all->mutex);
        if (busy) {
            defer(all, &item);
            pause_when_idle(all, &polling);
        } else {
            report(all, item.index, status, &info);
            polling = (struct polling){0};
        }
    }
    pthread_mutex_unlock(&all->mutex);
    return NULL;
}

/* ---- the call ---- */

static int processors(void) {
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > 0 ? count : 1;
}

/* Low quality suffices. */
static void shuffle(size_t *order, size_t count) {
    uint64_t random = (uint64_t)smelt__now_ns();

    (void)!getrandom(&random, sizeof random, GRND_NONBLOCK);
    for (size_t i = 0; i < count; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t other = (size_t)((random >> 33) % (i + 1));
        order[i] = order[other];
        order[other] = i;
    }
}

static smelt_status work_with_threads(struct preparation *all, int jobs) {
    size_t wanted = (size_t)(jobs > 0 ? jobs : processors());
    size_t started;
    smelt_status status = SMELT_OK;

    if (wanted > all->count)
        wanted = all->count;
    pthread_t *threads = calloc(wanted ? wanted : 1, sizeof *threads);
    all->deferred = calloc(all->count ? all->count : 1, sizeof *all->deferred);
    all->order = calloc(all->count ? all->count : 1, sizeof *all->order);
    if (!threads || !all->deferred || !all->order) {
        status = smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
        goto out;
    }
    shuffle(all->order, all->count);
    started = smelt__threads_start(threads, wanted > 0 ? wanted - 1 : 0, work, all);
    work(all);
    smelt__threads_join(threads, started);
out:
    free(threads);
    free(all->deferred);
    free(all->order);
    return status;
}

/* Checks the arguments and copies the requests, in this library's size, into *all. */
static smelt_status take_arguments(struct preparation *all, const smelt_kernel_request *requests,
                                   int jobs) {
    const size_t room = all->count ? all->count : 1;

    if (!all->context || (!requests && all->count > 0))
        return smelt__fail_null(all->context ? "requests" : "context");
    if (jobs < 0)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "jobs is %d; legal: 0 (one per processor) and up", jobs);
    if (all->infos && all->count && smelt__struct_check(SMELT__KERNEL_INFO("infos[0]"), all->infos))
        return SMELT_ERROR_INVALID_ARGUMENT;
    all->requests = calloc(room, sizeof *all->requests);
    all->finished = calloc(room, 1);
    if (!all->requests || !all->finished)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory for %zu requests", all->count);
    return smelt__structs_read(
        SMELT__STRUCT(smelt_kernel_request, "requests[0]", "SMELT_KERNEL_REQUEST_INIT", arch),
        requests, all->count, all->requests);
}

/* The status of the whole call, and the infos of requests that were not started. */
static smelt_status conclude(const struct preparation *all) {
    static const char why[] = "not done: the progress function stopped";
    smelt_kernel_info info = {.key = NULL};

    for (size_t i = 0; i < all->count && all->infos; i++)
        if (!all->finished[i]) {
            fill_failure(all, i, SMELT_ERROR_CANCELLED, why, &info);
            give_info(all, i, &info);
        }
    if (all->cancelled)
        return smelt__fail(SMELT_ERROR_CANCELLED,
                           "the progress function stopped after %zu of %zu kernels", all->done,
                           all->count);
    return all->status ? smelt__fail(all->status, "%s", all->message.text) : SMELT_OK;
}

smelt_status smelt_kernels_prepare(smelt_context *context, const smelt_kernel_request *requests,
                                   size_t count, int jobs, smelt_progress_function progress,
                                   void *user, smelt_kernel_info *infos) {
    struct preparation all = {.context = context,
                              .count = count,
                              .progress = progress,
                              .user = user,
                              .infos = infos,
                              .first_failed = count};
    struct smelt__saved_error saved;

    smelt_status status = take_arguments(&all, requests, jobs);
    if (status)
        goto out;
    smelt__error_save(&saved);
    pthread_mutex_init(&all.mutex, NULL);
    status = work_with_threads(&all, jobs);
    pthread_mutex_destroy(&all.mutex);
    if (status)
        goto out;
    smelt__error_restore(&saved);
    status = conclude(&all);
out:
    free(all.finished);
    free(all.requests);
    return status;
}

smelt_status smelt_kernel_cubin(smelt_context *context, const char *kernel, const char *arch,
                                void **cubin, size_t *bytes) {
    struct smelt__compiled compiled;
    struct smelt__plan plan;

    if (cubin)
        *cubin = NULL;
    if (bytes)
        *bytes = 0;
    if (!context || !cubin || !bytes)
        return smelt__fail_null(!context ? "context" : !cubin ? "cubin" : "bytes");
    smelt_status status = smelt__context_plan_text(context, kernel, arch, &plan);
    if (!status)
        status = smelt__kernel_compile(context, &plan, &compiled, NULL);
    if (status)
        return status;
    *cubin = compiled.cubin;
    *bytes = compiled.cubin_bytes;
    return SMELT_OK;
}
