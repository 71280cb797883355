/* The log callback and this thread's error message. */
#ifndef SMELT_RUNTIME_LOG_H
#define SMELT_RUNTIME_LOG_H

#include "smelt/context.h"
#include "smelt/status.h"

/* Where lines go. A plain value; function NULL means nowhere. NULL pointers to it are legal. */
struct smelt__log {
    smelt_log_function function;
    void *user;
    smelt_log_level level;
};

__attribute__((format(printf, 3, 4))) void
smelt__log_write(const struct smelt__log *log, smelt_log_level level, const char *format, ...);

/* Sets this thread's message and returns the status, so that a failing function says
 * `return smelt__fail(SMELT_ERROR_DRIVER, "...", ...)`. Cold: the compiler puts what leads here
 * out of the way of calls that succeed. */
__attribute__((cold, format(printf, 2, 3))) smelt_status smelt__fail(smelt_status status,
                                                                     const char *format, ...);

/* This thread's message, kept across work whose own failure does not fail the call: a call that
 * succeeds leaves the previous message untouched. */
enum { SMELT__ERROR_MESSAGE = 8192 };
struct smelt__saved_error {
    char text[SMELT__ERROR_MESSAGE];
};
void smelt__error_save(struct smelt__saved_error *saved);
void smelt__error_restore(const struct smelt__saved_error *saved);

#endif
