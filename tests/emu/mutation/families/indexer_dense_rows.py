"""The indexer's loss over windows: windows of every kind in groups of one, two and more queries, odd weights."""

from configurations import Check

FILES = ("templates/indexer_dense_rows.cu", "templates/indexer_dense_windows.cu")


def check(name, keys, options, kernel="", **more):
    return Check("dense-rows-" + name, f"indexer_dense_loss:heads=2,dqk=64,{keys}", "indexer_dense_rows" + kernel,
                 options, files=FILES, **more)


# Together they reach every statement (coverage.py --suggest).
COVERAGE = ("dense-rows-pairs", "dense-rows-eight", "dense-rows-windows", "dense-rows-blocks")

CONFIGURATIONS = (
    check("pairs", "index_heads=64,index_dim=64",
          "--queries 13 --rows 2200 --lists adversarial --weighted --each-loss", schedules=1),
    check("eight", "index_heads=2,index_dim=64",
          "--queries 19 --rows 150 --lists adversarial --weighted --each-loss", schedules=2),
    check("one", "index_heads=64,index_dim=64,main.variant=mma",
          "--queries 9 --rows 150 --lists random", arch="sm_80", schedules=2),
    check("alone", "index_heads=2,index_dim=64", "--queries 9 --rows 90 --lists random --loss-alone --each-loss",
          schedules=1),
    check("deterministic", "index_heads=2,index_dim=64,deterministic=1,main.exact_groups=1",
          "--queries 19 --rows 150 --lists adversarial --weighted", schedules=1),
    check("pools", "index_heads=2,index_dim=64,granularity=4",
          "--queries 19 --rows 150 --lists adversarial --weighted --each-loss", ":granularity=4", schedules=1),
    check("windows", "index_heads=2,index_dim=64,granularity=4",
          "--queries 19 --rows 150 --lists adversarial --weighted --each-loss", ":pass=windows,granularity=4",
          schedules=1),
    check("blocks", "index_heads=2,index_dim=64,block_max=8,groups=2",
          "--queries 19 --rows 150 --lists adversarial --weighted --each-loss", ":block_max=8", schedules=2),
)
