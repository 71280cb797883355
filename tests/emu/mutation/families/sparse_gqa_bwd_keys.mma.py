"""dk and dv of sparse_gqa with mma: groups that share a tile, that fill one and that have several parts; blocks of
fewer rows than a tile of keys, and of several items."""

from sparse_gqa import check

FILES = ("templates/sparse_gqa_bwd_keys.mma.cu",)
KEYS = "sparse_gqa_bwd_keys"

COVERAGE = ("gqa-keys", "gqa-keys-parts", "gqa-keys-blocks")

CONFIGURATIONS = (
    check("gqa-keys", "heads=6,kv_heads=2,dqk=64,dv=64,granularity=4,lists=kv",
          "--strided --topk-length --limits odd --batches 2 --queries 9 --rows 60 --seed 70 --lists adversarial "
          "--query-list partial", 12, KEYS),
    check("gqa-keys-parts", "heads=40,kv_heads=1,dqk=128,dv=96,granularity=16", "--limits odd --queries 4 --rows 100 "
          "--lists random --dkv fp32", 4, KEYS, "tile_rows=16"),
    check("gqa-keys-blocks", "heads=4,kv_heads=2,dqk=96,dv=64,granularity=128", "--limits causal --queries 6 "
          "--rows 300 --lists causal --dkv add", 2, KEYS),
)
