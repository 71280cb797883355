/* A gang from beginning to end. */
#ifndef SMELT_EMU_GANG_H
#define SMELT_EMU_GANG_H

/* The gang whose first block is (x, y, z), of the launch that `emu` describes, for which there are
 * stacks and arenas. */
void emu_run_gang(unsigned x, unsigned y, unsigned z);

#endif
