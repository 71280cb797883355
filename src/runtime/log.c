/* See log.h. */
#include <stdarg.h>
#include <stdio.h>

#include "runtime/log.h"

void smelt__log_write(const struct smelt__log *log, smelt_log_level level, const char *format,
                      ...) {
    char line[2048];
    va_list arguments;

    if (!log || !log->function || level > log->level)
        return;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length >= 0)
        log->function(log->user, level, line);
}
