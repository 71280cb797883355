/* Memory for as long as the gang runs. */
#ifndef SMELT_EMU_POOL_H
#define SMELT_EMU_POOL_H

#include <stddef.h>

/* Zeros, given back earlier or at the gang's end. Ends the launch when there is none. */
void *emu_take(size_t bytes);
void emu_give(void *memory);
void emu_give_all(void);

#endif
