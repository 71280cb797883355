"""The backward pass's kernel with mma. The plan's constants are those that `smelt emit` prints."""

import re

from configurations import Check


def check(name, keys, options, knobs="", **more):
    """A check of the operator with these keys and this kernel's knobs."""
    kernel = re.sub(",(topk|sink)=[0-9]+", "", keys)
    passed_on = re.sub("(^|,)", r"\1bwd.", knobs) if knobs else ""
    return Check(name, f"sparse_attn:{keys},passes=backward,variant=mma" + ("," + passed_on if knobs else ""),
                 f"sparse_attn_bwd:{kernel},variant=mma" + ("," + knobs if knobs else ""),
                 options, **more)

COVERAGE = ("bwd-first-row", "bwd-one-by-one", "bwd-small", "bwd-four-warps")

CONFIGURATIONS = (
    # Two stages, two key blocks, two tiles of heads; gaps between batches, invalid entries of the query list, empty
    # lists: catches most mutants.
    check("bwd-small", "heads=24,dqk=128,dv=64,topk=100,sink=1",
          "--strided --topk-length --batches 2 --rows 150 --queries 4 --seed 70 "
          "--query-list partial --lists adversarial"),
    # Scalar additions to memory; one stage; four partial sums; an odd number of columns.
    check("bwd-one-by-one", "heads=8,dqk=192,dv=128,topk=100", "--rows 150 --lists window",
          knobs="stages=1,block_keys=32,warps=8", arch="sm_80"),
    # Three stages of fewer keys than the rows gathered at once, two blocks of heads. Partial rows are stored as with
    # scalar additions.
    check("bwd-partial-rows", "heads=40,dqk=128,dv=64,topk=140,deterministic=1",
          "--rows 200 --lists random", knobs="stages=3,block_keys=16,block_heads=32", arch="sm_80"),
    check("bwd-four-warps", "heads=70,dqk=128,dv=64,topk=70", "--rows 150 --spiky --lists causal",
          knobs="warps=4,block_keys=32"),
    # Every list has key 0.
    check("bwd-first-row", "heads=8,dqk=64,dv=64,topk=100,deterministic=1", "--rows 101 --lists window"),
    # In even and in odd slots.
    check("bwd-first-row-anywhere", "heads=8,dqk=64,dv=64,topk=100", "--queries 6 --rows 101 --lists random",
          schedules=1),
    # The widest rows, and a block's largest number of heads.
    check("bwd-wide", "heads=64,dqk=576,dv=512,topk=70", "--queries 2 --rows 100 --lists causal"),
    # Every dimension of every tensor reaches past 2^32 elements.
    check("bwd-far", "heads=8,dqk=128,dv=64,topk=100",
          "--far --batches 2 --queries 2 --seed 70 --lists random", schedules=1),
    # Partial rows past 2^31 elements, of lists far longer than their keys.
    check("bwd-far-rows", "heads=64,dqk=576,dv=512,topk=1048576,deterministic=1",
          "--far --queries 2 --rows 60 --width 1048576 --valid 40 --lists random", knobs="block_heads=16", schedules=1),
    # Five groups of 64 columns, gathered by two halves of the threads.
    check("bwd-shares", "heads=32,dqk=320,dv=256,topk=40", "--queries 1 --rows 60 --lists random",
          knobs="block_keys=16,block_heads=32", schedules=1),
    # One full list, with little behind it in the workspace.
    check("bwd-one-list", "heads=1,dqk=64,dv=64,topk=64", "--queries 1 --rows 64 --lists random --dkv fp32",
          schedules=1),
    check("bwd-empty", "heads=1,dqk=64,dv=64,topk=1", "--query-list empty --lists random", schedules=1),
)
