/* The thread's error message, status names, and public calls that need nothing else. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/log.h"
#include "smelt/status.h"

/* Large enough for a compiler's log. Thread-local, so that a failure never allocates. */
static _Thread_local char thread_message[SMELT__ERROR_MESSAGE];

smelt_status smelt__fail(smelt_status status, const char *format, ...) {
    /* Formatted in a buffer first: the arguments may point into the old message. */
    char message[SMELT__ERROR_MESSAGE];
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(message, sizeof message, format, arguments) < 0)
        message[0] = '\0';
    va_end(arguments);
    snprintf(thread_message, sizeof thread_message, "%s", message);
    return status;
}

smelt_status smelt__fail_null(const char *name) {
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s is NULL", name);
}

void smelt__error_save(struct smelt__saved_error *saved) {
    snprintf(saved->text, sizeof saved->text, "%s", thread_message);
}

void smelt__error_restore(const struct smelt__saved_error *saved) {
    snprintf(thread_message, sizeof thread_message, "%s", saved->text);
}

const char *smelt_last_error(void) {
    return thread_message;
}

const char *smelt_status_name(smelt_status status) {
    switch (status) {
    case SMELT_OK:
        return "SMELT_OK";
    case SMELT_ERROR_INVALID_ARGUMENT:
        return "SMELT_ERROR_INVALID_ARGUMENT";
    case SMELT_ERROR_INVALID_SPEC:
        return "SMELT_ERROR_INVALID_SPEC";
    case SMELT_ERROR_UNSUPPORTED:
        return "SMELT_ERROR_UNSUPPORTED";
    case SMELT_ERROR_NO_DRIVER:
        return "SMELT_ERROR_NO_DRIVER";
    case SMELT_ERROR_NO_DEVICE:
        return "SMELT_ERROR_NO_DEVICE";
    case SMELT_ERROR_NO_COMPILER:
        return "SMELT_ERROR_NO_COMPILER";
    case SMELT_ERROR_COMPILE:
        return "SMELT_ERROR_COMPILE";
    case SMELT_ERROR_DRIVER:
        return "SMELT_ERROR_DRIVER";
    case SMELT_ERROR_OUT_OF_MEMORY:
        return "SMELT_ERROR_OUT_OF_MEMORY";
    case SMELT_ERROR_CACHE:
        return "SMELT_ERROR_CACHE";
    case SMELT_ERROR_CANCELLED:
        return "SMELT_ERROR_CANCELLED";
    case SMELT_ERROR_INTERNAL:
        return "SMELT_ERROR_INTERNAL";
    }
    return "SMELT_ERROR_UNKNOWN";
}

void smelt_free(void *handed_out) {
    free(handed_out);
}
