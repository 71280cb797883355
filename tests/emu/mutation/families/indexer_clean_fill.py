"""-inf outside the windows: rows of several items, of one, and of less than 16 bytes; far ones."""

from configurations import Check


FILES = ("templates/indexer_clean_fill.cu", "templates/common/logit.cuh")


def check(name, options, **more):
    return Check(name, "indexer_clean", "indexer_clean_fill", options, files=FILES, **more)


# Together they reach every statement (coverage.py --suggest).
COVERAGE = ("clean",)

CONFIGURATIONS = (
    check("clean", "--strided --queries 13 --rows 8450 --lists adversarial --seed 2", schedules=1),
    check("clean-random", "--queries 6 --rows 8193 --lists random --seed 3", schedules=1),
    check("clean-short", "--queries 30 --rows 9 --lists random", schedules=2),
    check("clean-far", "--far --queries 5 --rows 300 --lists random", schedules=1),
)
