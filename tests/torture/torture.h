/*
 * The torture tests: a table of faults that the cache and the loader must survive. One program with
 * a sub-command per row:
 *
 *   torture ROW [NAME=NUMBER]...
 *
 * Everything goes through the public API, on the fake NVRTC and the fake driver of tests/fault, so
 * that every process can recognise the right kernel. A row prints figures as "figure: ..."
 * (scripts/torture-table.py shows them) and ends with 0, 1 (failed) or 77 (skipped, with the
 * reason).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "../unit/files.h"
#include "../unit/random.h"
#include "fault/fakes.h"
#include "smelt/smelt.h"

enum { TORTURE_PATH = 4096, TORTURE_SKIPPED = 77 };

#define TORTURE_ARCH "sm_90a"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TORTURE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TORTURE_SANITIZED 1
#endif
#endif

/* ---- rows ---------------------------------------------------------------------------------- */

struct arguments {
    int count;
    char **items;
};

/* The value of NAME=NUMBER among the arguments, else the default. */
long argument(const struct arguments *arguments, const char *name, long otherwise);
/* The value of NAME=TEXT, else NULL. */
const char *argument_text(const struct arguments *arguments, const char *name);

int row_cold(const struct arguments *arguments);
int row_kill(const struct arguments *arguments);
int row_churn(const struct arguments *arguments);
int row_threads(const struct arguments *arguments);
int row_contexts(const struct arguments *arguments);
int row_forks(const struct arguments *arguments);
int row_unload(const struct arguments *arguments);
int row_calls(const struct arguments *arguments);
int row_clock(const struct arguments *arguments);
int row_skewed(const struct arguments *arguments); /* a process with a wrong clock */
int row_disk(const struct arguments *arguments);
int row_mounts(const struct arguments *arguments);
int row_hostile(const struct arguments *arguments);
int row_store(const struct arguments *arguments); /* the process that the row above kills */

__attribute__((format(printf, 1, 2))) void figure(const char *format, ...);
/* Prints why and ends the process with status 77. */
__attribute__((format(printf, 1, 2), noreturn)) void skip(const char *format, ...);

/* Ends the process (a child, or the test) with status 1 when the condition is false. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            torture_fail(__FILE__, __LINE__, #condition);                                          \
    } while (0)
__attribute__((noreturn)) void torture_fail(const char *file, int line, const char *condition);

/* ---- surroundings -------------------------------------------------------------------------- */

/* A new folder in TMPDIR, or in /dev/shm with `in_memory` if that exists; removed when this process
 * ends with 0. */
const char *scratch_folder(bool in_memory);

/* Memory that forked children share, zeroed. */
void *shared_memory(size_t bytes);
/* Ends a child with SIGKILL and waits for it. */
void kill_child(pid_t child);
/* Waits for a child that must end with 0. */
void expect_success(pid_t child);

/* ---- kernels ------------------------------------------------------------------------------- */

/* Counts a context's log messages at warning level. */
struct notes {
    int warnings;
    char last[1024];
};

/* Options of a compile-only context on `folder`; notes may be NULL. */
smelt_context_options torture_options(const char *folder, struct notes *notes);
smelt_context *torture_context(const smelt_context_options *options);
uint64_t cache_errors(const smelt_context *context);

/* The spec of kernel number n, n >= 0. */
enum { TORTURE_SPEC = 128 };
const char *kernel_spec(int n, char spec[TORTURE_SPEC]);
/* The hash of its source, which identifies it for the fake NVRTC. */
uint64_t kernel_hash(int n);

/* Whether this is the fake NVRTC's output for kernel n. */
bool is_right(const void *cubin, size_t bytes, int n);

enum verdict { RIGHT, WRONG, FAILED };
/* Makes the library get kernel n from the cache or the compiler, and checks its cubin. FAILED:
 * smelt_last_error has the reason. */
enum verdict obtain(smelt_context *context, int n);
/* The cache key of kernel n, which the names of its entries begin with. */
void kernel_key(int n, char hex[33]);
/* The number of entries with that key; the path of one. */
int find_by_prefix(const char *folder, const char *hex, char path[2 * TORTURE_PATH]);
/* Deletes the entries of kernel n, as an evictor would. */
void forget(const char *folder, int n);
