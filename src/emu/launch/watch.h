/*
 * Faults and endless loops of the compiled kernel: signal handlers installed during a launch. A
 * fault inside the kernel, or a launch that exceeds its processor time, becomes a report and ends
 * the launch; afterwards the host program's handlers are restored.
 */
#pragma once

/* Limits the launch to `seconds` of processor time. After that emu.late is set, and the launch ends
 * where the kernel's own code runs. */
void emu_watch_begin(double seconds);
void emu_watch_end(void);
