/* The report of a deadlock. */
#pragma once

/* Makes one report that lists every group of threads that wait at one location. */
void emu_report_deadlock(void);
