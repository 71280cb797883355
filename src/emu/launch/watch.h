/*
 * Faults and endless loops of the compiled kernel: signal handlers that stand while a launch runs.
 * A fault inside the kernel, or a launch that uses up its processor time, becomes a report and ends
 * the launch; the handlers of the embedding program are put back afterwards.
 */
#ifndef SMELT_EMU_WATCH_H
#define SMELT_EMU_WATCH_H

/* Of so much processor time. Once it is up emu.late is set, and where the kernel's own code runs
 * the launch ends. */
void emu_watch_begin(double seconds);
void emu_watch_end(void);

#endif
