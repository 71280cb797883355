"""dq of sparse_gqa with mma."""

from sparse_gqa import check

FILES = ("templates/sparse_gqa_bwd.mma.cu",)
BWD = "sparse_gqa_bwd"

COVERAGE = ("gqa-dq", "gqa-dq-tiles")

CONFIGURATIONS = (
    check("gqa-dq", "heads=6,kv_heads=2,dqk=64,dv=64,granularity=4,lists=kv,sink=1",
          "--strided --topk-length --limits odd --batches 2 --queries 7 --rows 120 --seed 70 --lists adversarial "
          "--query-list partial", 20, BWD),
    check("gqa-dq-tiles", "heads=33,kv_heads=1,dqk=96,dv=64,granularity=128", "--limits causal --queries 3 --rows 300 "
          "--lists random", 2, BWD, schedules=2),
)
