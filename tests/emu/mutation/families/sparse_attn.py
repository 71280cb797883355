"""Shared by the families of the operator sparse_attn; no configurations."""

import re

from configurations import Check

# Maxima that fall slowly, by more than fp32's exponent range: whole lists in the table's order, and scores given by the
# row alone. The number of heads is to be appended.
FALL = "dqk=512,dv=512,topk=1536,variant=sm90,heads="
FALL_OPTIONS = "--spiky --scale 0.001 --width 1536 --rows 2048 --queries 4 --lists window"

# Files of the wgmma kernels alone; their other files are mutated in mma kernels.
WGMMA_PARTS = tuple(f"templates/common/{name}.cuh" for name in
                    ("quad", "warp_arrival", "warp_slots", "warpgroup_slots"))


def check(name, keys, options, buckets="", bound="", partition="", **more):
    """A check of the operator with these keys and this list of buckets. The mutated kernel is that of the bucket
    `bound`, else of topk, or the partition's pass."""
    # The backward kernel's knobs of these names have fewer values.
    own = re.sub("(block_keys|stages)=", r"fwd.\1=", keys)
    operator = "sparse_attn:" + own + (",buckets=" + buckets if buckets else "")
    if partition:
        kernel = "sparse_attn_partition:pass=" + partition
    else:
        kernel = "sparse_attn_fwd:" + (re.sub("topk=[0-9]+", "topk=" + bound, keys) if bound else keys)
    return Check(name, operator, kernel, options, **more)
