"""The indexer's logits at selected slots with wgmma: heads not a multiple of eight, both widths, slots of every kind,
more blocks than stages, queries without a valid slot between others."""

from configurations import Check

FILES = ("templates/indexer_scores_fwd.sm90.cu",)


def check(name, keys, options, knobs="", **more):
    spec = keys + ",variant=sm90" + ("," + knobs if knobs else "")
    return Check(name, "indexer_scores:" + spec.replace("variant", "topk=600,variant"),
                 "indexer_scores_fwd:" + spec, options, files=FILES, **more)


def listed(name, keys, kernel, options, knobs="", **more):
    knobs = ",variant=sm90" + ("," + knobs if knobs else "")
    return Check(name, "indexer_logits:" + keys + knobs, "indexer_scores_fwd:" + kernel + ",windows=1" + knobs, options,
                 files=FILES, **more)

COVERAGE = ("slots-sm90-far", "slots-sm90-narrow")

CONFIGURATIONS = (
    # Seed 3: one block for all queries, some of them without a valid slot.
    check("slots-sm90", "heads=9,dim=128",
          "--queries 11 --rows 90 --width 320 --lists adversarial --topk-length --seed 3", knobs="warpgroups=2,stages=2"),
    check("slots-sm90-narrow", "heads=3,dim=64", "--strided --queries 5 --rows 60 --width 140 --lists adversarial --seed 7",
          knobs="warpgroups=2,block_keys=128,stages=2"),
    # A query with more blocks than stages.
    check("slots-sm90-long", "heads=32,dim=64", "--queries 2 --rows 90 --width 600 --lists random --seed 3",
          knobs="warpgroups=2,stages=3", schedules=2),
    check("slots-sm90-one", "heads=1,dim=64", "--queries 1 --rows 1 --width 1 --lists full", schedules=1),
    # Queries shorter than a block, all on one thread block: pairs without one of their slots.
    check("slots-sm90-racecheck", "heads=4,dim=64", "--queries 5 --rows 60 --width 60 --lists log --seed 3",
          knobs="racecheck=1", schedules=1),
    # Listed keys: blocks of several rows in windows, e4m3, groups of heads not a multiple of eight, no ReLU, no
    # weights.
    listed("listed-sm90", "heads=9,dim=128,dtype=fp8,candidate_block=4", "heads=9,dim=128,dtype=fp8,granularity=4",
           "--queries 11 --rows 203 --lists adversarial --seed 3", knobs="warpgroups=2,stages=2"),
    listed("listed-sm90-groups", "heads=6,dim=64,dtype=bf16,activation=none,weights=0,groups=2,candidate_block=8",
           "heads=6,dim=64,activation=none,weights=0,groups=2,granularity=8",
           "--queries 9 --rows 150 --lists random --seed 4", knobs="warpgroups=2,stages=2", schedules=2),
    listed("listed-sm90-blocks", "heads=9,dim=128,dtype=fp8,block_max=16,candidate_block=16",
           "heads=9,dim=128,dtype=fp8,granularity=16,block_max=16", "--queries 9 --rows 203 --lists adversarial",
           knobs="warpgroups=2,stages=2", schedules=1),
    listed("listed-sm90-wide", "heads=6,dim=64,dtype=bf16,weights=0,groups=2,block_max=32,candidate_block=128",
           "heads=6,dim=64,weights=0,groups=2,granularity=128,block_max=32", "--queries 5 --rows 700 --lists random",
           knobs="warpgroups=2,stages=2"),
    listed("listed-sm90-single", "heads=8,dim=64,dtype=bf16,candidate_block=1", "heads=8,dim=64",
           "--queries 9 --rows 150 --lists causal", schedules=1),
    # Blocks without a valid slot among them.
    check("slots-sm90-far", "heads=3,dim=64", "--far --queries 5 --rows 40 --width 300 --lists adversarial --topk-length",
          knobs="warpgroups=2", schedules=1),
)
