"""The indexer's logits at selected slots, of wgmma: heads that fill no eight, both widths, slots of every
kind, more blocks than stages, queries without a valid slot between others."""

from configurations import Check

FILES = ("templates/indexer_scores_fwd.sm90.cu",)


def check(name, keys, options, knobs="", **more):
    spec = keys + ",variant=sm90" + ("," + knobs if knobs else "")
    return Check(name, "indexer_scores:" + spec.replace("variant", "topk=600,variant"),
                 "indexer_scores_fwd:" + spec, options, files=FILES, **more)


# Together they reach every statement (coverage.py --suggest).
COVERAGE = ("slots-sm90-far", "slots-sm90-narrow")

CONFIGURATIONS = (
    # Seed 3: one block for all queries, some of them without a valid slot.
    check("slots-sm90", "heads=9,dim=128",
          "--queries 11 --rows 90 --width 320 --lists adversarial --topk-length --seed 3", knobs="groups=2,stages=2"),
    check("slots-sm90-narrow", "heads=3,dim=64", "--strided --queries 5 --rows 60 --width 140 --lists adversarial --seed 7",
          knobs="groups=2,block_keys=128,stages=2"),
    # A query of more blocks than there are stages.
    check("slots-sm90-long", "heads=32,dim=64", "--queries 2 --rows 90 --width 600 --lists random --seed 3",
          knobs="groups=2,stages=3", schedules=2),
    check("slots-sm90-one", "heads=1,dim=64", "--queries 1 --rows 1 --width 1 --lists full", schedules=1),
    # Queries shorter than a block, all on one block: pairs that have no slot of them.
    check("slots-sm90-racecheck", "heads=4,dim=64", "--queries 5 --rows 60 --width 60 --lists log --seed 3",
          knobs="racecheck=1", schedules=1),
    # Blocks without a valid slot among them.
    check("slots-sm90-far", "heads=3,dim=64", "--far --queries 5 --rows 40 --width 300 --lists adversarial --topk-length",
          knobs="groups=2", schedules=1),
)
