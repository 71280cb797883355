"""The forward pass of sparse_gqa with mma: groups of heads of one and of several tiles, warps that divide keys, entries
shorter and longer than a block of keys, limits and entries of every kind."""

from sparse_gqa import check

FILES = ("templates/sparse_gqa_fwd.mma.cu", "templates/common/gqa_rows.cuh", "templates/common/gqa_tile.cuh",
         "templates/common/gqa_lists.cuh")
FWD = "sparse_gqa_fwd"

COVERAGE = ("gqa-entries", "gqa-tiles")

CONFIGURATIONS = (
    check("gqa-entries", "heads=6,kv_heads=2,dqk=64,dv=64,granularity=4,lists=kv,sink=1",
          "--strided --topk-length --limits odd --batches 2 --queries 9 --rows 300 --seed 70 --lists adversarial "
          "--query-list partial", 40, FWD),
    check("gqa-tiles", "heads=33,kv_heads=1,dqk=96,dv=64,granularity=128", "--limits causal --queries 5 --rows 500 "
          "--lists random", 3, FWD, "block_keys=64,stages=2,key_groups=2"),
    check("gqa-single", "heads=2,kv_heads=2,dqk=128,dv=128,granularity=1", "--spiky --queries 4 --rows 200 "
          "--lists causal", 100, FWD, schedules=2),
    check("gqa-wide", "heads=24,kv_heads=1,dqk=256,dv=256,granularity=16", "--spiky --queries 3 --rows 260 "
          "--limits odd --lists window", 12, FWD, schedules=2),
    check("gqa-far", "heads=4,kv_heads=2,dqk=64,dv=64,granularity=16,lists=kv",
          "--far --topk-length --limits odd --queries 3 --seed 70 --lists random", 8, FWD, schedules=1),
)
