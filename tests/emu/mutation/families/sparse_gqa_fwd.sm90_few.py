"""The forward pass of sparse_gqa with entries of 1 to 16 rows and wgmma. The ring and the math are sparse_attn_fwd.sm90_few's."""

from sparse_gqa import check

FILES = ("templates/sparse_gqa_fwd.sm90_few", "templates/common/gqa_few.cuh")
FWD = "sparse_gqa_fwd"

COVERAGE = ("gqa-few", "gqa-few-wide", "gqa-few-united")

CONFIGURATIONS = (
    check("gqa-few", "heads=6,kv_heads=2,dqk=96,dv=64,granularity=4,lists=kv,sink=1",
          "--strided --topk-length --limits odd --batches 2 --queries 9 --rows 300 --seed 70 --lists adversarial "
          "--query-list partial", 40, FWD, variant="sm90"),
    check("gqa-few-wide", "heads=24,kv_heads=2,dqk=256,dv=192,granularity=16", "--spiky --queries 5 --rows 260 "
          "--limits odd --lists window", 12, FWD, variant="sm90", schedules=2),
    check("gqa-few-far", "heads=4,kv_heads=2,dqk=64,dv=64,granularity=16,lists=kv",
          "--far --topk-length --limits odd --queries 3 --rows 40 --seed 70 --lists random", 8, FWD, variant="sm90", schedules=1),
    check("gqa-few-united", "heads=6,kv_heads=2,dqk=96,dv=64,granularity=4,lists=kv,sink=1,unite=1",
          "--strided --topk-length --limits odd --batches 2 --queries 11 --rows 301 --seed 70 --lists adversarial "
          "--query-list partial", 40, FWD, variant="sm90"),
    check("gqa-few-united-drift", "heads=24,kv_heads=2,dqk=64,dv=64,granularity=16,unite=1", "--spiky --queries 9 "
          "--rows 260 --limits odd --lists drift", 12, FWD, variant="sm90", schedules=2),
)
