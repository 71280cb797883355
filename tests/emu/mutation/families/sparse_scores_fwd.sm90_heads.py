"""Attention's probabilities summed over heads, with wgmma and heads as rows."""

from sparse_scores import check

# The gather goes another way here; its mutants are of the family sparse_scores_fwd.sm90.
FILES = ("templates/sparse_scores_fwd.sm90_heads.cu", "templates/sparse_scores_fwd.gather.cuh",
         "templates/sparse_scores_fwd.heads.cuh", "templates/common/warp_arrival.cuh")

COVERAGE = ("scores-rows-far", "scores-rows-short")

CONFIGURATIONS = (
    check("scores-rows", "heads=40,dqk=128,dv=64,sink=1",
          "--strided --topk-length --queries 7 --batches 2 --rows 310 --width 300 --seed 70 "
          "--lists adversarial", 300, "variant=sm90,orientation=heads,ring_tiles=5"),
    # A ring of just a block, and Q that takes two thirds of it.
    check("scores-rows-short", "heads=33,dqk=192,dv=128",
          "--queries 5 --query-list partial --width 200 --rows 260 --seed 1 --lists window", 200,
          "variant=sm90,orientation=heads,query_buffers=1,ring_tiles=3"),
    check("scores-rows-wide", "heads=64,dqk=576,dv=512", "--width 577 --rows 700 --queries 3 --lists random",
          600, "variant=sm90,orientation=heads", schedules=2),
    check("scores-rows-few", "heads=1,dqk=64,dv=64", "--spiky --queries 5 --rows 90 --lists window", 130,
          "variant=sm90,orientation=heads", schedules=2),
    check("scores-rows-racecheck", "heads=33,dqk=64,dv=64", "--queries 5 --rows 150 --lists random", 130,
          "variant=sm90,orientation=heads,query_buffers=2,racecheck=1", schedules=1),
    check("scores-rows-far", "heads=8,dqk=128,dv=64",
          "--far --topk-length --batches 2 --queries 3 --seed 77 --lists random", 100,
          "variant=sm90,orientation=heads", schedules=1),
)
