"""Attention's probabilities over windows, with wgmma: rounds of heads, several key heads, tiles without keys."""

from configurations import Check

FILES = ("templates/dense_scores_fwd.sm90.cu", "templates/dense_scores_fwd.sm90_copies.cuh",
         "templates/dense_scores_fwd.sm90_shared.cuh", "templates/dense_scores_fwd.items.cuh",
         "templates/common/streamed_wgmma.cuh")
INDEXER = ",index_heads=2,index_dim=64"


def check(name, keys, knobs, options, **more):
    knobs = "variant=sm90," + knobs
    scores = "".join(",scores." + knob for knob in knobs.split(","))
    return Check("dense90-" + name, f"indexer_dense_loss:{keys}{INDEXER}{scores}", f"dense_scores_fwd:{keys},{knobs}",
                 options, files=FILES, **more)


# Together they reach every statement (coverage.py --suggest).
COVERAGE = ("dense90-few", "dense90-rounds")

CONFIGURATIONS = (
    check("few", "heads=5,dqk=128", "slabs=2,item_tiles=1",
          "--queries 19 --rows 200 --lists adversarial --weighted --each-loss --strided", schedules=2),
    check("groups", "heads=12,dqk=80,kv_heads=3", "slabs=1,stages=3,item_tiles=2",
          "--queries 19 --rows 140 --lists random --each-loss", schedules=2),
    check("rounds", "heads=128,dqk=64", "slabs=1,stages=3,item_tiles=4",
          "--queries 5 --rows 150 --lists causal --documents 1 --each-loss", schedules=1),
)
