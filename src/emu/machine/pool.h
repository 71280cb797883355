/* Memory that lives at most as long as the gang. */
#pragma once

#include <stddef.h>

/* Zeroed memory, freed by emu_pool_free or at the gang's end. Ends the launch when out of
 * memory. */
void *emu_pool_alloc(size_t bytes);
void emu_pool_free(void *memory);
void emu_pool_free_all(void);
