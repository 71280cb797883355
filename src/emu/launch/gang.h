/* Runs one gang. */
#pragma once

/* Runs the gang whose first block is (x, y, z) of the launch described by `emu`, whose stacks and
 * arenas exist. */
void emu_run_gang(unsigned x, unsigned y, unsigned z);
