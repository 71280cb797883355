"""The indexer's backward pass with wgmma: one tile of rows and two, several queries a tile, lists in sections, lists
that end within a block, empty lists, partial groups, heads past the last."""

import re

from configurations import Check

FILES = ("templates/indexer_bwd_main.sm90.cu",
         *(f"templates/indexer_bwd_main.sm90_{part}.cuh" for part in ("gather", "scores", "shared", "sums")),
         "templates/common/wgmma_tile.cuh")


def check(name, keys, options, knobs="", **more):
    """A check of the operator with these keys and this kernel's knobs."""
    knobs = "variant=sm90" + ("," + knobs if knobs else "")
    kernel, of_member = re.sub(",topk=[0-9]+", "", keys), re.sub("(^|,)", r"\1main.", knobs)
    return Check(name, f"indexer_bwd:{keys},{of_member}",
                 f"indexer_bwd_main:{kernel},{knobs}", options, **more)

COVERAGE = ("indexer-bwd-partial", "indexer-bwd-pairs", "indexer-bwd-one-tile")


CONFIGURATIONS = (
    # Pairs, the last partial; keys of one query, of the other, of both; heads past the last.
    check("indexer-bwd-pairs", "heads=40,dim=64,topk=100", "--queries 13 --rows 150 --lists adversarial"),
    check("indexer-bwd-partial", "heads=64,dim=128,topk=140,deterministic=1",
          "--queries 5 --rows 300 --lists random", schedules=2),
    # Two tiles of one query.
    check("indexer-bwd-wide", "heads=100,dim=64,topk=100", "--queries 5 --rows 150 --lists adversarial", schedules=2),
    # Two, four and eight queries a tile.
    check("indexer-bwd-fours", "heads=32,dim=128,topk=70", "--queries 9 --rows 200 --lists random", schedules=2),
    check("indexer-bwd-eights", "heads=13,dim=64,topk=70", "--queries 21 --rows 200 --lists drift", schedules=2),
    check("indexer-bwd-one-tile", "heads=5,dim=64,topk=70", "--queries 21 --rows 200 --lists adversarial", schedules=2),
    check("indexer-bwd-alone", "heads=64,dim=64,topk=200", "--queries 7 --rows 300 --lists causal",
          knobs="group=1", schedules=2),
    # Sections of several blocks in several items, so that a stage alternates between the tiles' blocks.
    check("indexer-bwd-sections", "heads=64,dim=64,topk=250", "--queries 13 --rows 900 --width 250 --lists random",
          schedules=1),
    # Each thread block has a single block of keys.
    check("indexer-bwd-one-block", "heads=64,dim=64,topk=30", "--queries 4 --rows 150 --lists random", schedules=1),
    # Several items a thread block, of all lengths.
    check("indexer-bwd-items", "heads=64,dim=64,topk=100", "--queries 40 --rows 150 --lists causal", schedules=1),
    check("indexer-bwd-one-key", "heads=33,dim=128,topk=1", "--queries 4 --rows 50 --lists random", schedules=2),
    # Every dimension of every tensor reaches past 2^32 elements.
    check("indexer-bwd-far", "heads=64,dim=64,topk=70", "--far --queries 5 --lists random", schedules=1),
    check("indexer-bwd-racecheck", "heads=64,dim=64,topk=100", "--queries 4 --rows 150 --lists random",
          knobs="racecheck=1", schedules=1),
)
