"""Dense attention's log-sum-exp: rounds of heads, several key heads, a short last part, windows of every kind."""

from configurations import Check

FILES = ("templates/dense_lse_fwd.mma.cu", "templates/dense_lse_fwd.items.cuh",
         "templates/common/streamed_product.cuh")


def check(name, keys, options, **more):
    return Check("lse-" + name, f"dense_lse:{keys}", f"dense_lse_fwd:{keys}", options, files=FILES, **more)


# Together they reach every statement (coverage.py --suggest).
COVERAGE = ("lse-short", "lse-rounds")

CONFIGURATIONS = (
    check("short", "heads=5,dqk=80,block_rows=32,slabs=2",
          "--queries 19 --rows 300 --lists adversarial --strided", schedules=2),
    check("groups", "heads=12,dqk=64,kv_heads=3,block_rows=32,slabs=1",
          "--queries 9 --rows 140 --lists random --scale 3", schedules=2),
    check("rounds", "heads=128,dqk=64,block_rows=32,slabs=1,stages=3",
          "--queries 3 --rows 150 --lists causal --documents 1", schedules=1),
    check("far", "heads=4,dqk=64,kv_heads=2", "--far --queries 4 --rows 140 --lists random", schedules=1),
)
