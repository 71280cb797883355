"""Attention's probabilities summed over heads, with mma: parts of heads that are added, groups of warps over heads and
over slots, slots of every kind."""

from sparse_scores import check

FILES = ("templates/sparse_scores_fwd.mma.cu", "templates/sparse_scores_fwd.heads.cuh")

COVERAGE = ("scores-depths", "scores-parts")

CONFIGURATIONS = (
    # Two parts of heads; masked slots anywhere, rows that end early.
    check("scores-parts", "heads=128,dqk=128,dv=64,sink=1",
          "--strided --topk-length --rows 150 --queries 4 --batches 2 --seed 70 --lists adversarial",
          100, "variant=mma,block_keys=32,stages=2,warps=8"),
    # No last columns, one head of a part.
    check("scores-one", "heads=1,dqk=64,dv=64", "--queries 3 --rows 90 --lists window", 65,
          "variant=mma,warps=4", schedules=2),
    check("scores-long", "heads=40,dqk=192,dv=128",
          "--queries 3 --width 330 --rows 400 --query-list partial --lists random", 400,
          "variant=mma,block_keys=128,stages=2", schedules=2),
    check("scores-spiky", "heads=24,dqk=64,dv=64,sink=1", "--spiky --queries 4 --lists causal", 130,
          "variant=mma,blocks=2,stages=3", schedules=2),
    # Warps that share the depth, with little shared memory.
    check("scores-depths", "heads=20,dqk=576,dv=512", "--queries 2 --rows 90 --lists random", 40,
          "variant=mma", arch="sm_86", schedules=2),
    # Every dimension of every tensor reaches past 2^32 elements.
    check("scores-far", "heads=8,dqk=128,dv=64",
          "--far --topk-length --batches 2 --queries 3 --seed 70 --lists random", 100, "variant=mma",
          schedules=1),
)
