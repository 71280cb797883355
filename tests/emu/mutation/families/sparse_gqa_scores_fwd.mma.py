"""The target of sparse_gqa's indexers: lists of one KV head and shared ones, entries within a warp's keys, a block of keys
and beyond it, heads of one tile and of several."""

from configurations import Check

FILES = ("templates/sparse_gqa_scores_fwd.mma.cu", "templates/common/gqa_scores.cuh", "templates/common/denominator.cuh")

COVERAGE = ("target-entries", "target-tiles", "target-rows")


def check(name, keys, options, topk, knobs="", **more):
    knobs = "," + knobs if knobs else ""
    return Check(name, f"sparse_gqa_scores:{keys},topk={topk}{knobs}",
                 f"sparse_gqa_scores_fwd:{keys.replace(',sink=1', '')}{knobs}", options, **more)


CONFIGURATIONS = (
    check("target-entries", "heads=6,kv_heads=2,dqk=64,granularity=4,lists=kv,sink=1",
          "--strided --topk-length --limits odd --batches 2 --queries 9 --rows 300 --seed 70 --lists adversarial "
          "--query-list partial", 40),
    check("target-tiles", "heads=66,kv_heads=2,dqk=96,granularity=128", "--limits causal --queries 5 --rows 500 "
          "--lists random", 3, "block_keys=64,stages=2,key_groups=2"),
    check("target-rows", "heads=2,kv_heads=2,dqk=128,granularity=1", "--spiky --queries 4 --rows 200 "
          "--lists causal", 100, "block_keys=32", schedules=2),
    check("target-blocks", "heads=24,kv_heads=1,dqk=64,granularity=16", "--spiky --queries 3 --rows 260 "
          "--limits odd --lists window", 12, schedules=2),
    check("target-far", "heads=2,kv_heads=2,dqk=64,granularity=16,lists=kv",
          "--far --topk-length --limits odd --queries 4 --rows 40 --seed 70 --lists random", 8, schedules=1),
)
