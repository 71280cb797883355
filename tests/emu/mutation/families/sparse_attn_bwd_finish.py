"""dkv out of its sums and dsink out of its parts: through whole calls of small kernels."""

from configurations import Check


def check(name, keys, options, **more):
    return Check(name, f"sparse_attn:{keys},passes=backward,variant=mma", "sparse_attn_bwd_finish:dqk=128",
                 options, **more)


# Together they reach every statement (coverage.py --suggest).
COVERAGE = ("finish-far", "finish-fp32", "finish-add")

CONFIGURATIONS = (
    # More parts of dsink than a warp has lanes takes more than 512 queries.
    check("finish", "heads=3,dqk=128,dv=64,topk=4,sink=1",
          "--strided --batches 2 --queries 300 --rows 30 --seed 70 --lists random", schedules=1),
    check("finish-add", "heads=2,dqk=128,dv=64,topk=30,sink=1",
          "--strided --dkv add --batches 2 --queries 3 --rows 300 --seed 70 --lists adversarial"),
    check("finish-fp32", "heads=2,dqk=128,dv=64,topk=30",
          "--dkv fp32 --queries 3 --rows 90 --seed 70 --lists random"),
    check("finish-far", "heads=2,dqk=128,dv=64,topk=30,sink=1",
          "--far --batches 2 --queries 2 --seed 70 --lists random", schedules=1),
)
