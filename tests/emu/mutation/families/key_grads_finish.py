"""dkv from its sums, dsink from its parts, dq from slices, in whole calls of small kernels."""

from configurations import Check


def check(name, keys, options, **more):
    return Check(name, f"sparse_attn:{keys},passes=backward,variant=mma", "key_grads_finish:dqk=128",
                 options, **more)


def pairs(name, keys):
    return Check(name, "sparse_attn:heads=72,dqk=512,dv=512,topk=321,passes=backward,variant=sm90",
                 "key_grads_finish:dqk=512",
                 f"--queries 2 --rows 400 --width 321 --valid {keys} --lists random", schedules=1,
                 variables={"SMELT_EMU_MULTIPROCESSORS": "6"})

COVERAGE = ("finish-far", "finish-fp32", "finish-add", "finish-slices")

CONFIGURATIONS = (
    check("finish-add", "heads=2,dqk=128,dv=64,topk=30,sink=1",
          "--strided --dkv add --batches 2 --queries 3 --rows 300 --seed 70 --lists adversarial"),
    check("finish-fp32", "heads=2,dqk=128,dv=64,topk=30",
          "--dkv fp32 --queries 3 --rows 90 --seed 70 --lists random"),
    # Four groups of two queries, most of them absent, with lists of one key and of several blocks, for six thread
    # blocks.
    Check("finish-slices", "sparse_attn:heads=24,dqk=512,dv=512,topk=200,passes=backward,variant=sm90",
          "key_grads_finish:dqk=512",
          "--far --batches 2 --queries 2 --rows 300 --seed 75 --query-list partial --lists adversarial",
          schedules=1, variables={"SMELT_EMU_MULTIPROCESSORS": "6"}),
    # Three groups; the second begins within the second thread block's share.
    Check("finish-thirds", "sparse_attn:heads=24,dqk=512,dv=512,topk=200,passes=backward,variant=sm90",
          "key_grads_finish:dqk=512", "--queries 6 --rows 300 --lists random", schedules=1,
          variables={"SMELT_EMU_MULTIPROCESSORS": "5"}),
    # Pairs of blocks of heads: four items for six thread blocks; one key more than two blocks.
    pairs("finish-pairs", 129),
    # The same with as many items as thread blocks.
    pairs("finish-whole-blocks", 128),
    check("finish-far", "heads=2,dqk=128,dv=64,topk=30,sink=1",
          "--far --batches 2 --queries 2 --seed 70 --lists random", schedules=1),
    # More than 512 queries, for more parts of dsink than a warp has lanes.
    check("finish", "heads=3,dqk=128,dv=64,topk=4,sink=1",
          "--strided --batches 2 --queries 300 --rows 30 --seed 70 --lists random", schedules=1),
)
