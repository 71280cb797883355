"""Tiles of queries whose lists are united: drifting lists, limits, padded heads, query lists; and the pass that unites."""

from configurations import Check

FILES = ("templates/sparse_gqa_united.", "templates/sparse_gqa_lists.unite.cu", "templates/common/gqa_products.cuh",
         "templates/common/gqa_copies.cuh")
UNSETTLED = "which lists are united is a matter of speed: survivors of that rule have not been judged"


def check(name, keys, topk, options, **more):
    return Check(name, f"sparse_gqa:{keys},topk={topk},unite=1", f"sparse_gqa_united:{keys}", options, **more)


# Together they reach every statement (coverage.py --suggest).
COVERAGE = ("gqa-united", "gqa-united-shared")

CONFIGURATIONS = (
    check("gqa-united", "heads=12,kv_heads=1,dqk=64,dv=64,granularity=64,lists=kv,sink=1", 4,
          "--queries 37 --rows 500 --lists drift --limits odd --strided --query-list partial", schedules=2),
    check("gqa-united-shared", "heads=8,kv_heads=2,dqk=96,dv=64,granularity=64", 3,
          "--queries 21 --rows 300 --lists causal --limits causal --batches 2", schedules=2),
    # One buffer of Q, three of K and V: a part skips as many blocks as it may before it adds P V.
    check("gqa-united-wide", "heads=16,kv_heads=1,dqk=128,dv=128,granularity=128", 8,
          "--queries 24 --rows 2100 --width 8 --lists drift", schedules=1),
    # One buffer of each: P V before any skipped block.
    check("gqa-united-single", "heads=16,kv_heads=1,dqk=256,dv=128,granularity=128", 4,
          "--queries 16 --rows 1100 --lists drift", schedules=1),
)
