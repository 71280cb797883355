/* What counters between blocks leave to whoever runs a launch. */
#ifndef SMELT_EMU_COUNTER_H
#define SMELT_EMU_COUNTER_H

void emu_counters_begin(void); /* of a launch: none has additions */

#endif
