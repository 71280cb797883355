"""The backward pass of sparse_gqa with entries of 1 to 16 rows and wgmma. The ring is sparse_attn_fwd.sm90_few's."""

from sparse_gqa import check

FILES = ("templates/sparse_gqa_bwd.sm90",)
BWD = "sparse_gqa_bwd"

COVERAGE = ("gqa-grad", "gqa-grad-wide")

CONFIGURATIONS = (
    check("gqa-grad", "heads=6,kv_heads=2,dqk=96,dv=64,granularity=4,lists=kv,sink=1",
          "--strided --topk-length --limits odd --batches 2 --queries 7 --rows 300 --seed 70 --lists adversarial "
          "--query-list partial", 40, BWD, variant="auto"),
    check("gqa-grad-wide", "heads=17,kv_heads=1,dqk=192,dv=192,granularity=16", "--spiky --queries 5 --rows 260 "
          "--limits odd --lists window", 12, BWD, variant="auto", schedules=2),
    check("gqa-grad-far", "heads=4,kv_heads=2,dqk=64,dv=64,granularity=16,lists=kv",
          "--far --topk-length --limits odd --queries 3 --rows 40 --seed 70 --lists random", 8, BWD, variant="auto", schedules=1),
)
