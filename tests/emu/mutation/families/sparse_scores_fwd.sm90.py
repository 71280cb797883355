"""Attention's probabilities summed over heads, with wgmma and heads as columns; and the gather, which heads
as rows have, too: a ring of a tile more than a block and of many, queries of one block and of several,
blocks without a valid slot."""

from sparse_scores import check

FILES = ("templates/sparse_scores_fwd.sm90.cu", "templates/sparse_scores_fwd.gather.cuh",
         "templates/sparse_scores_fwd.heads.cuh", "templates/common/warp_arrival.cuh")

COVERAGE = ("scores-ring", "scores-ring-short")

CONFIGURATIONS = (
    # Masked slots anywhere and blocks of them alone, rows that end early; more queries than blocks.
    check("scores-ring", "heads=13,dqk=128,dv=64,sink=1",
          "--strided --topk-length --queries 7 --batches 2 --rows 310 --width 300 --seed 70 "
          "--lists adversarial", 300, "variant=sm90,ring_tiles=5"),
    # One tile more than a block; a query's Q waits for the one before.
    check("scores-ring-short", "heads=72,dqk=192,dv=128",
          "--queries 5 --query-list partial --width 200 --rows 260 --seed 1 --lists window", 200,
          "variant=sm90,query_buffers=1,ring_tiles=4"),
    check("scores-ring-wide", "heads=16,dqk=576,dv=512", "--width 577 --rows 700 --queries 3 --lists random",
          600, "variant=sm90", schedules=2),
    check("scores-ring-many", "heads=128,dqk=576,dv=512,sink=1",
          "--spiky --width 140 --rows 300 --queries 4 --lists causal", 200, "variant=sm90",
          schedules=2),
    check("scores-ring-one", "heads=1,dqk=64,dv=64", "--queries 1 --batches 2 --lists random", 1, "variant=sm90",
          schedules=2),
    check("scores-ring-racecheck", "heads=8,dqk=64,dv=64", "--queries 5 --rows 150 --lists random", 130,
          "variant=sm90,racecheck=1", schedules=1),
    check("scores-ring-far", "heads=8,dqk=128,dv=64",
          "--far --topk-length --batches 2 --queries 3 --seed 77 --lists random",
          100, "variant=sm90", schedules=1),
)
