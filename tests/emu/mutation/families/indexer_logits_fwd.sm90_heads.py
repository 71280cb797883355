"""The indexer's logits of wgmma with a head for each group and blocks of keys: both element types, weights, scales of either
sign, blocks of one tile and smaller ones, windows of every kind, one query a lane and several."""

from configurations import Check

FILES = ("templates/indexer_logits_fwd.sm90_heads.cu",)


def check(name, keys, options, knobs="", **more):
    spec = keys + ("," + knobs if knobs else "")  # the variant that such a spec gets
    return Check(name, "indexer_logits:" + spec, "indexer_logits_fwd:" + spec, options, **more)


# Together they reach every statement (coverage.py --suggest).
COVERAGE = ("heads-sm90", "heads-sm90-weights", "heads-sm90-fp8")

CONFIGURATIONS = (
    # Rows in threes: a scale above 0, whose maxima are weighted last; two more: one below 0. More tiles than stages.
    check("heads-sm90", "heads=4,dim=64,dtype=bf16,activation=none,weights=0,groups=4,block_max=128",
          "--queries 70 --rows 1299 --lists causal --seed 3", schedules=2),
    check("heads-sm90-relu", "heads=2,dim=64,dtype=bf16,weights=0,groups=2,block_max=64",
          "--queries 19 --rows 300 --lists adversarial --seed 6", schedules=1),
    check("heads-sm90-negative", "heads=4,dim=64,dtype=bf16,weights=0,groups=4,block_max=32",
          "--queries 19 --rows 302 --lists full --seed 5", schedules=1),
    check("heads-sm90-weights", "heads=16,dim=64,dtype=bf16,groups=16,block_max=8",
          "--queries 43 --rows 301 --lists adversarial --seed 3", schedules=2),
    check("heads-sm90-fp8", "heads=8,dim=128,dtype=fp8,groups=8,block_max=16",
          "--queries 43 --rows 401 --lists random --seed 4", knobs="warpgroups=3", schedules=1),
    check("heads-sm90-inner", "heads=64,dim=64,dtype=fp8,groups=64,block_max=128,activation=none",
          "--queries 9 --rows 512 --lists full", schedules=1),
    # Several queries of a lane, whose windows differ.
    check("heads-sm90-single", "heads=1,dim=64,dtype=bf16,block_max=128", "--queries 300 --rows 700 --lists random --seed 1",
          schedules=1),
    check("heads-sm90-racecheck", "heads=4,dim=64,dtype=fp8,groups=4,block_max=64",
          "--queries 9 --rows 140 --lists random", knobs="racecheck=1", schedules=1),
    check("heads-sm90-far", "heads=4,dim=64,dtype=bf16,groups=4,block_max=8",
          "--far --queries 11 --rows 140 --lists random", schedules=1),
)
