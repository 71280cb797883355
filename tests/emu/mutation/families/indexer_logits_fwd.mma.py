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
COVERAGE = ("logits", "logits-causal", "logits-groups", "logits-odd-groups", "logits-heads", "logits-wide-blocks")

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
    # Groups of an even and of an odd number of heads that end anywhere in a part; no ReLU, no weights; blocks of a
    # thread's keys, of a quad's, of several tiles, of several warps.
    check("logits-groups", "heads=18,dim=64,dtype=bf16,groups=3,block_max=8",
          "--queries 19 --rows 301 --lists adversarial --seed 5", knobs=SMALL, schedules=2),
    check("logits-odd-groups", "heads=15,dim=64,dtype=bf16,groups=5,block_max=2,activation=none",
          "--queries 19 --rows 301 --lists random --seed 6", knobs=SMALL, schedules=2),
    check("logits-heads", "heads=9,dim=64,dtype=bf16,groups=9,weights=0,block_max=128",
          "--queries 19 --rows 301 --lists adversarial --seed 3", knobs=SMALL),
    check("logits-wide-blocks", "heads=4,dim=64,dtype=fp8,groups=2,block_max=64",
          "--queries 33 --rows 300 --lists causal --seed 7", knobs=SMALL),
    check("logits-tiles", "heads=3,dim=64,dtype=fp8,block_max=32", "--queries 19 --rows 301 --lists random --seed 8",
          knobs="warps=4,warp_keys=64", schedules=1),
    check("logits-small-blocks", "heads=3,dim=64,dtype=bf16,block_max=4,weights=0",
          "--queries 19 --rows 301 --lists adversarial --seed 4", knobs=SMALL, schedules=1),
    check("logits-far-groups", "heads=6,dim=64,dtype=bf16,groups=3,block_max=16",
          "--far --queries 11 --rows 140 --lists random", knobs=SMALL, schedules=1),
    # Every tensor's every dimension reaches past 2^32 elements.
    check("logits-far", "heads=3,dim=64,dtype=bf16", "--far --queries 11 --rows 140 --lists random",
          knobs=SMALL, schedules=1),
    check("logits-far-fp8", "heads=3,dim=64,dtype=fp8", "--far --queries 11 --rows 140 --lists random",
          knobs=SMALL, schedules=1),
)
