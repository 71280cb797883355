"""By what is rounded what is added to rows of dk: through whole calls, whose dk must be the same bits
in whatever order thread blocks run."""

from configurations import Check

FILES = ("templates/indexer_bwd_grains",)


def check(name, keys, which, options, **more):
    return Check(name, f"indexer_bwd:{keys},deterministic=1,variant=mma", f"indexer_bwd_grains:pass={which}",
                 options, **more)


UNSETTLED = "of 64 tried 41 survived: its numbers need a program that compares them with a reference"

# Together they reach every statement (coverage.py --suggest).
COVERAGE = ("grains-bounds-far", "grains-grains", "grains-bounds-large", "grains-reach")

NARROW, WIDE = "heads=5,dim=64,topk=100", "heads=3,dim=128,topk=70"
LISTS = "--strided --queries 19 --rows 60 --seed 70 --lists adversarial"

CONFIGURATIONS = tuple(
    check(f"grains-{which}{suffix}", keys, which, options, **more)
    for which in ("reach", "bounds", "grains")
    for suffix, keys, options, more in (
        ("", NARROW, LISTS, {}),
        ("-wide", WIDE, "--queries 40 --rows 50 --lists drift", {"schedules": 2}),
        ("-far", NARROW, "--far --queries 5 --lists random", {"schedules": 1}),
    )
) + (
    # More rows than are added up in shared memory.
    check("grains-bounds-large", NARROW, "bounds", "--queries 3 --rows 17000 --lists random",
          schedules=1),
)
