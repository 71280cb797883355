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
 * `return smelt__fail(SMELT_ERROR_DRIVER, "...", ...)`. */
__attribute__((format(printf, 2, 3))) smelt_status smelt__fail(smelt_status status,
                                                               const char *format, ...);

#endif
