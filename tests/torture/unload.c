/* The shared library is opened, used, closed and opened again: it is unloaded completely, with its
 * fork handlers and memory, and threads that used it continue. */
#include "torture.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WARM_UP = 3, GROWTH_BYTES = 32768 };

static const char *library_path;
static smelt_context_options options;
static sem_t used, go_on;

/* Functions of the opened library, not of the one this program is linked with. */
struct calls {
    smelt_status (*create)(smelt_context **, const smelt_context_options *);
    smelt_status (*cubin)(smelt_context *, const char *, const char *, void **, size_t *);
    void (*destroy)(smelt_context **);
    void (*free_string)(void *);
};

static void find(void *library, const char *name, void *function) {
    void *symbol = dlsym(library, name);
    REQUIRE(symbol);
    memcpy(function, &symbol, sizeof symbol);
}

static struct calls find_calls(void *library) {
    struct calls calls;
    find(library, "smelt_context_create", &calls.create);
    find(library, "smelt_kernel_cubin", &calls.cubin);
    find(library, "smelt_context_destroy", &calls.destroy);
    find(library, "smelt_free", &calls.free_string);
    return calls;
}

static void use(const struct calls *calls, bool destroy) {
    smelt_context *context = NULL;
    char spec[TORTURE_SPEC];
    void *cubin;
    size_t bytes;
    REQUIRE(calls->create(&context, &options) == SMELT_OK);
    REQUIRE(calls->cubin(context, kernel_spec(1, spec), NULL, &cubin, &bytes) == SMELT_OK);
    calls->free_string(cubin);
    REQUIRE(calls->cubin(context, "not a spec", NULL, &cubin, &bytes) != SMELT_OK);
    if (destroy)
        calls->destroy(&context);
}

/* Uses the library, which keeps its last message in this thread, and outlives it. */
static void *use_and_stay(void *user) {
    use(user, true);
    sem_post(&used);
    sem_wait(&go_on);
    return NULL;
}

static void fork_once(void) {
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0)
        _exit(0);
    expect_success(child);
}

static void one_life(bool destroy) {
    void *library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL), *still;
    pthread_t thread;
    if (!library)
        fprintf(stderr, "%s\n", dlerror());
    REQUIRE(library);
    struct calls calls = find_calls(library);
    REQUIRE(pthread_create(&thread, NULL, use_and_stay, &calls) == 0);
    use(&calls, destroy);
    sem_wait(&used);
    fork_once();
    REQUIRE(dlclose(library) == 0);
    still = dlopen(library_path, RTLD_NOW | RTLD_NOLOAD);
    REQUIRE(!still); /* it is unloaded */
    fork_once();     /* and so are its fork handlers */
    sem_post(&go_on);
    REQUIRE(pthread_join(thread, NULL) == 0);
}

int row_unload(const struct arguments *arguments) {
    long lives = argument(arguments, "lives", 500);
    const char *folder = scratch_folder(true);
    size_t begin = 0;
    library_path = argument_text(arguments, "library");
    REQUIRE(library_path);
    options = torture_options(folder, NULL);
    REQUIRE(sem_init(&used, 0, 0) == 0 && sem_init(&go_on, 0, 0) == 0);
    for (long i = 0; i < lives; i++) {
        one_life(true);
        if (i == WARM_UP)
            begin = mallinfo2().uordblks;
    }
    long grown = (long)mallinfo2().uordblks - (long)begin;
#ifndef TORTURE_SANITIZED /* which reports leaks */
    one_life(false);      /* a context that was not destroyed is leaked, without other effects */
#endif
    figure(
        "opened, used by two threads, forked and closed %ld times: gone each time, %ld bytes more "
        "than after the fourth",
        lives, grown);
    REQUIRE(grown < GROWTH_BYTES);
    return 0;
}
