/* The report of a deadlock. */
#ifndef SMELT_EMU_DEADLOCK_H
#define SMELT_EMU_DEADLOCK_H

/* Makes one report that lists every group of threads that wait at one location. */
void emu_report_deadlock(void);

#endif
