"""The indexer's logits of mma: both element types, heads that fill no pair and no stage, rows and
windows of every kind, several items of queries and of keys."""

from configurations import Check


FILES = ("templates/indexer_logits_fwd.mma.cu", "templates/common/logit.cuh",
         "templates/common/query_rows.cuh")


def check(name, keys, options, knobs="", **more):
    spec = keys + ",variant=mma" + ("," + knobs if knobs else "")
    return Check(name, "indexer_logits:" + spec, "indexer_logits_fwd:" + spec, options, files=FILES, **more)


SMALL = "warps=4,warp_keys=32,block_queries=16"

# Together they reach every statement (coverage.py --suggest).
COVERAGE = ("logits", "logits-causal")

CONFIGURATIONS = (
    # Two items of queries, three of keys, the last of each not whole; an odd number of heads; windows
    # that are empty, inverted, out of range.
    check("logits", "heads=11,dim=64,dtype=bf16", "--queries 27 --rows 301 --lists adversarial --seed 3",
          knobs=SMALL + ",stages=2"),
    check("logits-fp8", "heads=3,dim=128,dtype=fp8",
          "--strided --queries 27 --rows 301 --lists adversarial --seed 4", knobs=SMALL),
    # Groups that a warp has no key of, and others that it has; a block takes all items in turn.
    check("logits-causal", "heads=2,dim=64,dtype=fp8", "--queries 33 --rows 300 --lists causal --seed 7",
          knobs=SMALL + ",stages=4"),
    check("logits-wide", "heads=18,dim=128,dtype=bf16", "--queries 9 --rows 130 --lists log",
          knobs="warps=4,warp_keys=64", schedules=2),
    # One key, one query.
    check("logits-one", "heads=1,dim=64,dtype=bf16", "--queries 1 --rows 1 --lists full", schedules=1),
    # One key more than two blocks of them.
    check("logits-last", "heads=1,dim=64,dtype=bf16", "--queries 2 --rows 257 --lists full", knobs=SMALL,
          schedules=1),
    # Every tensor's every dimension reaches past 2^32 elements.
    check("logits-far", "heads=3,dim=64,dtype=bf16", "--far --queries 11 --rows 140 --lists random",
          knobs=SMALL, schedules=1),
    check("logits-far-fp8", "heads=3,dim=64,dtype=fp8", "--far --queries 11 --rows 140 --lists random",
          knobs=SMALL, schedules=1),
)
