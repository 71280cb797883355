/*
 * What the gang that runs knows of earlier ones of its launch. What another gang knew cannot stand
 * in this one's clocks, whose slots are its own. It is kept as that gang's clock, a view, together
 * with who acquired it and when: whoever comes after that knows it, too.
 */
#ifndef SMELT_EMU_VIEW_H
#define SMELT_EMU_VIEW_H

#include "emu/machine/machine.h"

struct view;

void emu_views_begin(void); /* of a launch: there are none */
/* What the running thread knows of its own gang; lives as long as the launch. */
const struct view *emu_view_take(site at);
/* The views of earlier gangs that it knows, freed by the caller; NULL: there are none. */
const struct view **emu_views_held(u32 *count, site at);
/* It knows from here on what the view says. */
void emu_view_join(const struct view *view, site at);
/* Whether what a slot of an earlier gang of this launch did by `clock` happened before the thread's
 * next action. */
bool emu_view_orders(u32 gang, u16 slot, u32 clock, const struct thread *thread);

#endif
