"""The indexer's logits at selected slots, of mma: heads that fill no eight, both widths, slots of every
kind, several pieces a warp, several queries a block."""

from configurations import Check

FILES = ("templates/indexer_scores_fwd.mma.cu", "templates/indexer_scores_fwd.heads.cuh",
         "templates/common/quad_sum.cuh")


def check(name, keys, options, knobs="", **more):
    spec = keys + ",variant=mma" + ("," + knobs if knobs else "")
    return Check(name, "indexer_scores:" + spec.replace("variant", "topk=300,variant"),
                 "indexer_scores_fwd:" + spec, options, files=FILES, **more)


# Together they reach every statement (coverage.py --suggest).
COVERAGE = ("slots-far",)

CONFIGURATIONS = (
    # Seed 3: one block for all queries. A warp has two pieces, the last not whole.
    check("slots", "heads=9,dim=128", "--queries 11 --rows 90 --width 137 --lists adversarial --topk-length --seed 3",
          knobs="warps=4,warp_keys=16"),
    check("slots-narrow", "heads=8,dim=64", "--strided --queries 5 --rows 60 --width 140 --lists adversarial --seed 4"),
    check("slots-one", "heads=1,dim=64", "--queries 1 --rows 1 --width 1 --lists full", schedules=1),
    # Every tensor's every dimension reaches past 2^32 elements.
    check("slots-far", "heads=3,dim=64", "--far --queries 5 --rows 40 --width 70 --lists random --topk-length",
          schedules=1),
)
