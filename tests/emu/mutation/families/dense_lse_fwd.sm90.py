"""Dense attention's log-sum-exp with wgmma: rounds of heads, several key heads, items without keys, masked tiles."""

from configurations import Check

FILES = ("templates/dense_lse_fwd.sm90.cu", "templates/dense_lse_fwd.items.cuh",
         "templates/common/streamed_wgmma.cuh")


def check(name, keys, options, **more):
    keys += ",variant=sm90"
    return Check("lse90-" + name, f"dense_lse:{keys}", f"dense_lse_fwd:{keys}", options, files=FILES, **more)


# Together they reach every statement (coverage.py --suggest).
COVERAGE = ("lse90-short", "lse90-rounds")

CONFIGURATIONS = (
    check("short", "heads=5,dqk=80,slabs=1", "--queries 19 --rows 300 --lists adversarial --strided", schedules=2),
    check("groups", "heads=12,dqk=64,kv_heads=3,stages=3", "--queries 40 --rows 300 --lists random --scale 3",
          schedules=2),
    check("rounds", "heads=192,dqk=64,stages=2", "--queries 3 --rows 300 --lists causal --documents 1", schedules=1),
)
