"""The indexer's backward pass with mma: partial groups, lists that end within a block, empty lists, heads past the
last, items of all lengths."""

import re

from configurations import Check

FILES = ("templates/indexer_bwd_main.mma.cu", "templates/common/fragments.cuh",
         "templates/common/key_units.cuh", "templates/common/grain.cuh")


def check(name, keys, options, knobs="", **more):
    """A check of the operator with these keys and this kernel's knobs."""
    knobs = "variant=mma" + ("," + knobs if knobs else "")
    kernel, of_member = re.sub(",topk=[0-9]+", "", keys), re.sub("(^|,)", r"\1main.", knobs)
    return Check(name, f"indexer_bwd:{keys},{of_member}", f"indexer_bwd_main:{kernel},{knobs}",
                 options, **more)

COVERAGE = ("indexer-bwd-mma-fours", "indexer-bwd-mma-alone")

CONFIGURATIONS = (
    # Four queries an item, the last item partial; heads past the last; gaps; keys of zeros.
    check("indexer-bwd-mma-fours", "heads=5,dim=64,topk=150",
          "--strided --topk-length --queries 9 --rows 200 --seed 70 --lists adversarial"),
    # Scalar additions to memory; three warps.
    check("indexer-bwd-mma-one-by-one", "heads=40,dim=128,topk=70", "--queries 3 --rows 150 --lists causal",
          arch="sm_80"),
    check("indexer-bwd-mma-exact", "heads=20,dim=128,topk=200,deterministic=1",
          "--queries 5 --rows 300 --lists random", knobs="stages=3"),
    # One query fills a group's rows.
    check("indexer-bwd-mma-alone", "heads=16,dim=64,topk=100,deterministic=1",
          "--queries 5 --rows 120 --lists window", knobs="group=1,stages=4", schedules=2),
    # Queries without keys, one an item, with more than eight heads.
    check("indexer-bwd-mma-none", "heads=16,dim=64,topk=40,activation=none",
          "--topk-length --queries 9 --rows 90 --seed 70 --lists adversarial", knobs="group=1", schedules=1),
    check("indexer-bwd-mma-wide", "heads=128,dim=128,topk=70", "--queries 2 --rows 100 --lists random",
          schedules=2),
    # Many items add to each key.
    check("indexer-bwd-mma-many", "heads=20,dim=64,topk=40,deterministic=1",
          "--queries 60 --rows 50 --lists random"),
    # Several items a thread block, of all lengths.
    check("indexer-bwd-mma-items", "heads=64,dim=64,topk=100", "--queries 40 --rows 150 --seed 4 --lists causal",
          schedules=1),
    # Every dimension of every tensor reaches past 2^32 elements.
    check("indexer-bwd-mma-far", "heads=17,dim=64,topk=70", "--far --queries 5 --lists random", schedules=1),
)
