/* What to say when nothing can run any more. */
#ifndef SMELT_EMU_DEADLOCK_H
#define SMELT_EMU_DEADLOCK_H

/* One report that lists every group of threads that wait at one place. */
void emu_report_deadlock(void);

#endif
