/*
 * Forks. A forked child has its parent's memory but not its threads: locks that they held stay
 * held, their work never finishes, and the CUDA driver does not work. So a context belongs to the
 * process that made it, which is identified by a number.
 */
#pragma once

/* Differs between a process and its forked children. Costs one load; called at every launch. */
unsigned smelt__process_number(void);
