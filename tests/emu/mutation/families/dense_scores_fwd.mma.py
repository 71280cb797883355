"""Attention's probabilities over windows: rounds of heads, several key heads, a short last part, tiles without keys."""

from configurations import Check

FILES = ("templates/dense_scores_fwd.mma.cu", "templates/dense_scores_fwd.items.cuh",
         "templates/common/streamed_product.cuh")
INDEXER = ",index_heads=2,index_dim=64"


def check(name, keys, knobs, options, **more):
    knobs = "variant=mma," + knobs
    scores = "".join(",scores." + knob for knob in knobs.split(","))
    return Check("dense-" + name, f"indexer_dense_loss:{keys}{INDEXER}{scores}",
                 f"dense_scores_fwd:{keys},{knobs}", options, files=FILES, **more)


# Together they reach every statement (coverage.py --suggest).
COVERAGE = ("dense-short", "dense-rounds")

CONFIGURATIONS = (
    check("short", "heads=5,dqk=80", "block_keys=32,slabs=2,item_tiles=2",
          "--queries 19 --rows 150 --lists adversarial --weighted --each-loss --strided", schedules=2),
    check("groups", "heads=12,dqk=64,kv_heads=3", "block_keys=64,slabs=1,item_tiles=1",
          "--queries 9 --rows 140 --lists random --each-loss", schedules=2),
    check("rounds", "heads=128,dqk=64", "block_keys=32,slabs=1,stages=3,item_tiles=4",
          "--queries 5 --rows 70 --lists causal --documents 1 --each-loss", schedules=1),
    check("far", "heads=4,dqk=64,kv_heads=2", "block_keys=32,slabs=1",
          "--far --queries 4 --rows 70 --lists random --each-loss", schedules=1),
)
