"""The indexer's logits at selected slots with mma: heads not a multiple of eight, both widths, slots of every kind,
several pieces a warp, several queries a block."""

from configurations import Check

FILES = ("templates/indexer_scores_fwd.mma.cu", "templates/indexer_scores_fwd.heads.cuh",
         "templates/common/quad_sum.cuh")


def check(name, keys, options, knobs="", **more):
    spec = keys + ",variant=mma" + ("," + knobs if knobs else "")
    return Check(name, "indexer_scores:" + spec.replace("variant", "topk=300,variant"),
                 "indexer_scores_fwd:" + spec, options, files=FILES, **more)


def listed(name, keys, kernel, options, knobs="", **more):
    knobs = ",variant=mma" + ("," + knobs if knobs else "")
    own = knobs.replace("warp_keys", "scores.warp_keys")  # not the other kernels'
    return Check(name, "indexer_logits:" + keys + own, "indexer_scores_fwd:" + kernel + ",windows=1" + knobs, options,
                 files=FILES, **more)

COVERAGE = ("slots-far",)

CONFIGURATIONS = (
    # Seed 3: one block for all queries. A warp has two pieces, the last partial.
    check("slots", "heads=9,dim=128", "--queries 11 --rows 90 --width 137 --lists adversarial --topk-length --seed 3",
          knobs="warps=4,warp_keys=16"),
    check("slots-narrow", "heads=8,dim=64", "--strided --queries 5 --rows 60 --width 140 --lists adversarial --seed 4"),
    check("slots-one", "heads=1,dim=64", "--queries 1 --rows 1 --width 1 --lists full", schedules=1),
    # Listed keys: blocks of several rows in windows, e4m3, groups of heads not a multiple of eight, no ReLU, no
    # weights.
    listed("listed", "heads=9,dim=64,dtype=fp8,candidate_block=4", "heads=9,dim=64,dtype=fp8,granularity=4",
           "--queries 11 --rows 203 --lists adversarial --seed 3", knobs="warps=4,warp_keys=16"),
    listed("listed-groups", "heads=6,dim=64,dtype=bf16,activation=none,weights=0,groups=2,candidate_block=8",
           "heads=6,dim=64,activation=none,weights=0,groups=2,granularity=8",
           "--queries 9 --rows 150 --lists random --seed 4", knobs="warps=4,warp_keys=16", schedules=2),
    # Blocks within a warp's slots, and wider than a piece.
    listed("listed-blocks", "heads=6,dim=64,dtype=bf16,weights=0,groups=2,block_max=4,candidate_block=8",
           "heads=6,dim=64,weights=0,groups=2,granularity=8,block_max=4", "--queries 9 --rows 150 --lists adversarial",
           knobs="warps=4,warp_keys=16", schedules=1),
    listed("listed-wide", "heads=3,dim=64,dtype=fp8,block_max=64,candidate_block=128",
           "heads=3,dim=64,dtype=fp8,granularity=128,block_max=64", "--queries 5 --rows 700 --lists adversarial",
           knobs="warps=4,warp_keys=16", schedules=1),
    listed("listed-single", "heads=8,dim=64,dtype=bf16,candidate_block=1", "heads=8,dim=64",
           "--queries 9 --rows 150 --lists causal", schedules=1),
    # Every dimension of every tensor reaches past 2^32 elements.
    check("slots-far", "heads=3,dim=64", "--far --queries 5 --rows 40 --width 70 --lists random --topk-length",
          schedules=1),
)
