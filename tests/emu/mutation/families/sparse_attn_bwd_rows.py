"""The values that the backward pass computes for its rows first: in whole calls of small kernels."""

from configurations import Check


def check(name, keys, options, kernel, **more):
    return Check(name, f"sparse_attn:{keys},passes=backward,variant=mma", "sparse_attn_bwd_rows:" + kernel,
                 options, **more)

COVERAGE = ("rows-wide", "rows")

CONFIGURATIONS = (
    # More queries than one block's, heads that the main kernel pads, all kinds of sinks.
    check("rows", "heads=5,dqk=128,dv=64,topk=30,sink=1",
          "--strided --topk-length --batches 2 --queries 11 --rows 60 --seed 70 --query-list partial "
          "--lists adversarial", "heads=5,dv=64"),
    # Two chunks a lane.
    check("rows-wide", "heads=3,dqk=512,dv=512,topk=20", "--queries 3 --rows 40 --lists random", "heads=3,dv=512"),
    check("rows-far", "heads=2,dqk=64,dv=64,topk=20,sink=1",
          "--far --batches 2 --queries 2 --seed 70 --lists random", "heads=2,dv=64", schedules=1),
)
