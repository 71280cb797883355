/* The log callback and the thread's error message. */
#pragma once

#include "smelt/context.h"
#include "smelt/status.h"

/* The destination of log lines. A plain value; function NULL: none. Pointers to it may be NULL. */
struct smelt__log {
    smelt_log_function function;
    void *user;
    smelt_log_level level;
};

__attribute__((format(printf, 3, 4))) void
smelt__log_write(const struct smelt__log *log, smelt_log_level level, const char *format, ...);

/* Sets the thread's message and returns the status, for `return smelt__fail(SMELT_ERROR_DRIVER,
 * "...", ...)`. Cold: the compiler moves the code that leads here out of the hot path. */
__attribute__((cold, format(printf, 2, 3))) smelt_status smelt__fail(smelt_status status,
                                                                     const char *format, ...);

/* smelt__fail with INVALID_ARGUMENT for the argument `name`, which must not be NULL. */
__attribute__((cold)) smelt_status smelt__fail_null(const char *name);

/* If the call fails, the enclosing function returns its status. For functions that hold nothing to release
 * at that point. */
#define SMELT__TRY(call)                                                                           \
    do {                                                                                           \
        const smelt_status failed_ = (call);                                                       \
        if (failed_ != SMELT_OK)                                                                   \
            return failed_;                                                                        \
    } while (0)

/* Saves the thread's message across work whose failure does not fail the call: a call that succeeds
 * leaves the message unchanged. */
enum { SMELT__ERROR_MESSAGE = 8192 };
struct smelt__saved_error {
    char text[SMELT__ERROR_MESSAGE];
};
void smelt__error_save(struct smelt__saved_error *saved);
void smelt__error_restore(const struct smelt__saved_error *saved);
