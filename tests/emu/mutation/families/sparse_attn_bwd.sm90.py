"""The backward pass's kernel with wgmma: one query an item and several, lists that end within a block, items without a
key, partial groups, heads past the last."""

import re

from configurations import Check

FILES = ("templates/sparse_attn_bwd.sm90", "templates/sparse_attn_bwd.slices.cuh",
         "templates/common/fragment_tile.cuh", "templates/common/row_sums.cuh")


def check(name, keys, options, knobs="", **more):
    """A check of the operator with these keys and this kernel's knobs."""
    kernel = re.sub(",(topk|sink)=[0-9]+", "", keys)
    passed_on = re.sub("(^|,)", r"\1bwd.", knobs) if knobs else ""
    return Check(name, f"sparse_attn:{keys},passes=backward,variant=sm90" + ("," + passed_on if knobs else ""),
                 f"sparse_attn_bwd:{kernel},variant=sm90" + ("," + knobs if knobs else ""),
                 options, **more)

COVERAGE = ("bwd-sm90", "bwd-sm90-halves", "bwd-sm90-groups", "bwd-sm90-partial-blocks", "bwd-sm90-slices",
            "bwd-sm90-racecheck")

CONFIGURATIONS = (
    # Two blocks of heads, the second partial; gaps between batches; empty lists.
    check("bwd-sm90", "heads=72,dqk=512,dv=512,topk=100,sink=1",
          "--strided --topk-length --batches 2 --rows 150 --queries 4 --seed 70 "
          "--query-list partial --lists adversarial"),
    # Pairs of blocks of heads, whose sums arrive in P's memory: few, which catch most mutants.
    check("bwd-sm90-halves-few", "heads=128,dqk=576,dv=512,topk=130", "--queries 2 --rows 150 --lists random",
          schedules=1),
    # More of them.
    check("bwd-sm90-halves", "heads=128,dqk=576,dv=512,topk=150", "--queries 6 --rows 200 --lists causal",
          schedules=2),
    # Sums that arrive in memory of their own.
    check("bwd-sm90-halves-512", "heads=72,dqk=512,dv=512,topk=150", "--queries 5 --rows 200 --lists random",
          schedules=2),
    # Pairs with partial rows, two pairs a query.
    check("bwd-sm90-halves-partial", "heads=256,dqk=512,dv=512,topk=70,deterministic=1",
          "--queries 3 --rows 150 --lists random", schedules=1),
    # An odd number of blocks of heads.
    check("bwd-sm90-blocks", "heads=65,dqk=576,dv=512,topk=100", "--queries 3 --rows 150 --lists random",
          knobs="pairs=0", schedules=1),
    # Nine queries in groups of eight.
    check("bwd-sm90-groups", "heads=7,dqk=576,dv=512,topk=100", "--queries 9 --rows 150 --lists adversarial"),
    check("bwd-sm90-partial", "heads=64,dqk=576,dv=512,topk=140,deterministic=1",
          "--queries 3 --rows 200 --lists random", schedules=2),
    # Adjacent partial rows of two blocks of heads.
    check("bwd-sm90-partial-blocks", "heads=72,dqk=512,dv=512,topk=100,deterministic=1",
          "--queries 3 --rows 150 --lists random", schedules=1),
    # A list of one key, in the first head of a block of heads.
    check("bwd-sm90-one", "heads=65,dqk=512,dv=512,topk=1", "--queries 3 --rows 50 --lists random", schedules=2),
    # Groups of two, the last partial, and rows of each without a head.
    check("bwd-sm90-pairs", "heads=24,dqk=512,dv=512,topk=100", "--queries 5 --rows 150 --lists random", schedules=2),
    # Several items a thread block, of all lengths.
    check("bwd-sm90-items", "heads=64,dqk=512,dv=512,topk=100", "--queries 30 --rows 150 --lists causal",
          schedules=1),
    # Lists of the largest length: a write past one's end changes the next.
    check("bwd-sm90-full", "heads=64,dqk=512,dv=512,topk=128,deterministic=1",
          "--queries 3 --rows 200 --lists random", schedules=2),
    # Thread blocks synchronised loosely; one of them has no item.
    check("bwd-sm90-large", "heads=64,dqk=512,dv=512,topk=600", "--queries 1 --query-list partial --rows 13000 --width 600 --lists random",
          schedules=1),
    # Synchronised closely.
    check("bwd-sm90-huge", "heads=64,dqk=512,dv=512,topk=330", "--queries 2 --rows 50000 --width 330 --lists random",
          schedules=1),
    # Closely, with lists that share their keys.
    check("bwd-sm90-drift", "heads=64,dqk=512,dv=512,topk=70", "--queries 2 --rows 50000 --lists drift",
          schedules=1),
    # Lists of a large table traversed upwards, downwards and upwards again, with one key in the last block; the same
    # for pairs.
    check("bwd-sm90-turns", "heads=64,dqk=512,dv=512,topk=200", "--queries 6 --rows 13000 --width 193 --lists random",
          schedules=1),
    check("bwd-sm90-turns-pairs", "heads=128,dqk=576,dv=512,topk=140", "--queries 4 --rows 13000 --width 140 --lists random",
          schedules=1),
    # Two items for five thread blocks, one of which has a slice of each, after whole ones, with gaps between dq's heads
    # and one key in a list's last block; pairs without gaps.
    check("bwd-sm90-slices", "heads=64,dqk=512,dv=512,topk=300", "--queries 7 --rows 400 --width 257 --strided --lists random",
          schedules=1, variables={"SMELT_EMU_MULTIPROCESSORS": "5"}),
    check("bwd-sm90-slices-pairs", "heads=128,dqk=512,dv=512,topk=300", "--queries 2 --rows 400 --width 300 --lists random",
          schedules=1, variables={"SMELT_EMU_MULTIPROCESSORS": "10"}),
    # An item of at most three key blocks that has two, for five thread blocks: three have no slice.
    check("bwd-sm90-slices-few", "heads=64,dqk=512,dv=512,topk=130", "--queries 6 --rows 200 --valid 128 --lists random",
          schedules=1, variables={"SMELT_EMU_MULTIPROCESSORS": "5"}),
    # An item of three key blocks, shared by three of five thread blocks.
    check("bwd-sm90-slices-none", "heads=64,dqk=512,dv=512,topk=130", "--queries 6 --rows 200 --width 130 --lists random",
          schedules=1, variables={"SMELT_EMU_MULTIPROCESSORS": "5"}),
    check("bwd-sm90-far", "heads=64,dqk=512,dv=512,topk=70",
          "--far --batches 2 --queries 2 --seed 70 --lists random", schedules=1),
    # Groups of four; all in one batch, so that one product gives a row of kv.
    check("bwd-sm90-far-fours", "heads=16,dqk=512,dv=512,topk=70",
          "--far --queries 5 --seed 70 --lists random", schedules=1),
    # Two chunks of groups.
    check("bwd-sm90-chunks", "heads=64,dqk=512,dv=512,topk=64,deterministic=1",
          "--queries 140 --rows 100 --lists random --valid 3", schedules=1),
    check("bwd-sm90-racecheck", "heads=64,dqk=512,dv=512,topk=100", "--queries 2 --rows 150 --lists random",
          knobs="racecheck=1", schedules=1),
    check("bwd-sm90-halves-racecheck", "heads=65,dqk=576,dv=512,topk=100", "--queries 2 --rows 150 --lists random",
          knobs="racecheck=1", schedules=1),
    # In another kernel the second warpgroup also uses a tile of fragments.
    Check("fragments-of-two", "indexer_bwd:heads=40,dim=64,topk=100,main.variant=sm90",
          "indexer_bwd_main:heads=40,dim=64,variant=sm90", "--queries 3 --rows 150 --lists random",
          schedules=1, files=("templates/common/fragment_tile.cuh",)),
    check("bwd-sm90-empty", "heads=64,dqk=512,dv=512,topk=64", "--query-list empty --lists random", schedules=1),
)
