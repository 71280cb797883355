/* templates/ptx/grid.cuh, emulated. */

void emu_grid_launch_dependents(void);
void emu_grid_wait(void);

#define grid_launch_dependents() emu_grid_launch_dependents()
#define grid_wait() emu_grid_wait()
