"""dk and dv of sparse_gqa with entries of 1 to 16 rows and wgmma: groups that divide a warp or not; limits within a block,
blocks of no query. The ring is sparse_attn_fwd.sm90_few's."""

from sparse_gqa import check

FILES = ("templates/sparse_gqa_bwd_keys.sm90_few",)
KEYS = "sparse_gqa_bwd_keys"

COVERAGE = ("gqa-few-keys", "gqa-few-keys-wide")

CONFIGURATIONS = (
    check("gqa-few-keys", "heads=6,kv_heads=2,dqk=96,dv=64,granularity=4,lists=kv,deterministic=1",
          "--strided --topk-length --limits odd --batches 2 --queries 30 --rows 60 --seed 70 --lists adversarial "
          "--query-list partial", 12, KEYS, variant="auto"),
    check("gqa-few-keys-wide", "heads=40,kv_heads=1,dqk=192,dv=96,granularity=16", "--queries 14 --rows 70 "
          "--limits causal --lists causal --dkv add", 4, KEYS, variant="auto", schedules=2),
    check("gqa-few-keys-far", "heads=4,kv_heads=2,dqk=64,dv=64,granularity=16,lists=kv,deterministic=1",
          "--far --topk-length --limits odd --queries 3 --rows 40 --seed 70 --lists random", 4, KEYS, variant="auto",
          schedules=1),
)
