/* The memory layout of a problem's tensors: packed, with gaps, or far apart. */
#pragma once

struct smelt__problem;

/* Fills problem->layout and the `elements` of the buffers, from extents and options, and puts the
 * strides of tensors that are not packed into *args. Optional tensors that are not given have no
 * elements. */
void smelt__layout_make(struct smelt__problem *problem);
