"""The deterministic backward pass's sums."""

from configurations import Check


def sums(name, keys, options, **more):
    dqk = keys.split("dqk=")[1].split(",")[0]
    return Check("sum-" + name, f"sparse_attn:{keys},deterministic=1,passes=backward",
                 "sparse_attn_bwd_sum:dqk=" + dqk, options + " --sample 400", **{"schedules": 1, **more})

COVERAGE = ("sum-few", "sum-one-by-one", "sum-shared")

CONFIGURATIONS = (
    sums("few", "heads=8,dqk=64,dv=64,topk=70", "--queries 30 --rows 90 --batches 2 --lists adversarial", schedules=2),
    sums("wide", "heads=8,dqk=576,dv=512,topk=64,variant=mma", "--queries 4 --rows 60 --lists random"),
    sums("one-by-one", "heads=8,dqk=64,dv=64,topk=70", "--queries 12 --rows 300 --lists random", arch="sm_80"),
    # A key of so many entries that several teams sum them; two blocks of heads; chunks.
    sums("shared", "heads=8,dqk=64,dv=64,topk=4", "--queries 600 --rows 5 --lists random"),
    sums("blocks", "heads=70,dqk=128,dv=64,topk=70", "--queries 5 --rows 60 --lists random --dkv add"),
    sums("chunks", "heads=8,dqk=64,dv=64,topk=70", "--queries 30 --rows 300 --workspace-limit 90000 --lists adversarial"),
    # One chunk's sums, concurrent with the next one's main kernel: no later kernel may begin before that ends. So few
    # keys that one thread block sums them, so that no other waits.
    sums("beside", "heads=64,dqk=512,dv=512,topk=64,variant=sm90", "--queries 140 --rows 3 --lists random --valid 3"),
)
