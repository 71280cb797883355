/* Reports, collected during a launch; their sites become source lines at its end. */
#pragma once

#include "emu/machine/machine.h"

/* `{1}` and `{2}` in the text become the source lines of the two sites. A kind at the same two
 * sites is reported once per launch. After a few reports the launch ends. */
void emu_report(enum emu_kind kind, site first, site second, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same, and ends the launch: for errors without a sensible continuation. */
_Noreturn void emu_fatal(enum emu_kind kind, site first, site second, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void emu_reports_begin(void);
/* Resolves the sites of this launch's reports; returns their number. */
size_t emu_reports_end(void);

/* "block 0 warp 3 lane 5", in one of four rotating buffers. */
const char *emu_thread_name(const struct thread *thread);

/* The control interface's view of the reports. */
const char *emu_first_report(void); /* of the last launch */
size_t emu_report_count(void);
struct emu_report emu_report_at(size_t index);
void emu_reports_clear(void);
const char *emu_kind_name(enum emu_kind kind);
