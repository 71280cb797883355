/*
 * Forks. A forked child has its parent's memory but not its threads: locks that they held stay held
 * there, work they were at is never finished, and the CUDA driver does not work in it. So whatever
 * a process made belongs to that process alone, and is told from a child's own by a number.
 */
#ifndef SMELT_RUNTIME_PROCESS_H
#define SMELT_RUNTIME_PROCESS_H

/* Differs between a process and its forked children. Costs a load: it is asked at every launch. */
unsigned smelt__process_number(void);

#endif
