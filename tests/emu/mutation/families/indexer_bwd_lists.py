"""The lists of the indexer's backward pass."""

from configurations import Check

FILES = ("templates/indexer_bwd_lists", "templates/common/warp_scan.cuh")


def check(name, keys, options, **more):
    return Check("indexer-lists-" + name, "indexer_bwd:" + keys, "indexer_bwd_lists", options + " --sample 1000", **{"schedules": 1, **more})

COVERAGE = ("indexer-lists-pairs", "indexer-lists-fours", "indexer-lists-windows")

CONFIGURATIONS = (
    # Groups of one to eight queries, the last partial, of one and of two parts.
    check("pairs", "heads=64,dim=64,topk=140", "--queries 31 --rows 500 --strided --topk-length --seed 70 --lists adversarial",
          schedules=2),
    check("fours", "heads=32,dim=64,topk=200", "--queries 13 --rows 700 --topk-length --lists drift"),
    check("eights", "heads=4,dim=64,topk=100", "--queries 21 --rows 300 --lists adversarial", schedules=2),
    check("one", "heads=64,dim=64,topk=300,main.group=1", "--queries 9 --rows 900 --width 300 --topk-length --lists random"),
    check("one-mma", "heads=16,dim=64,topk=70,main.group=1,main.variant=mma", "--queries 9 --rows 120 --lists window"),
    # Several windows of the map; rows of full words.
    check("windows", "heads=64,dim=64,topk=300", "--queries 5 --rows 65536 --width 300 --lists drift"),
    check("windows-eights", "heads=4,dim=64,topk=100", "--queries 9 --rows 40000 --lists random"),
    # More keys than are put together at a time.
    check("long", "heads=64,dim=64,topk=16900,main.group=1", "--queries 2 --rows 17000 --width 16900 --lists random"),
    check("long-eights", "heads=4,dim=64,topk=3000", "--queries 9 --rows 14000 --width 3000 --lists random"),
    # Entries of several rows, the last of them partly past the last row.
    check("blocks", "heads=4,dim=64,topk=20,granularity=8", "--topk-length --queries 10 --rows 203 --lists adversarial"),
    # Every dimension of every tensor reaches past 2^32 elements.
    check("far", "heads=64,dim=64,topk=70", "--far --topk-length --queries 5 --lists random"),
)
