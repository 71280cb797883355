"""Attention's probabilities summed over heads, with wgmma and heads as rows."""

from sparse_scores import check

FILES = ("templates/sparse_scores_fwd.sm90_heads.cu",)

UNSETTLED = "it is new"

# Together they reach every statement (coverage.py --suggest).
COVERAGE = ("scores-rows",)

CONFIGURATIONS = (
    check("scores-rows", "heads=40,dqk=128,dv=64,sink=1",
          "--strided --topk-length --queries 7 --batches 2 --rows 310 --width 300 --seed 70 "
          "--lists adversarial", 300, "variant=sm90,orientation=heads,ring_tiles=5"),
    check("scores-rows-wide", "heads=64,dqk=576,dv=512", "--width 577 --rows 700 --queries 3 --lists random",
          600, "variant=sm90,orientation=heads", schedules=2),
    check("scores-rows-few", "heads=1,dqk=64,dv=64", "--spiky --queries 5 --rows 90 --lists window", 130,
          "variant=sm90,orientation=heads", schedules=2),
    check("scores-rows-racecheck", "heads=33,dqk=64,dv=64", "--queries 5 --rows 150 --lists random", 130,
          "variant=sm90,orientation=heads,query_buffers=2,racecheck=1", schedules=1),
)
