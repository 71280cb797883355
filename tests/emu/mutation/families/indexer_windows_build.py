"""The windows: every kind of metadata, with one chunk of documents and several."""

from configurations import Check


def check(name, options, **more):
    """Every query is compared."""
    return Check(name, "indexer_windows", "indexer_windows_build",
                 options + " --seed 70 --sample 10000", **more)

COVERAGE = ("wild-some", "parts")

CONFIGURATIONS = (
    check("shard", "--lists random --queries 300 --documents 40"),
    check("many", "--lists log --queries 300 --documents 5000", schedules=2),
    check("wild", "--lists adversarial --queries 500 --documents 9", schedules=2),
    check("wild-packed", "--lists adversarial --queries 700 --documents 30 --rows 1500", schedules=2),
    check("wild-many", "--lists adversarial --queries 1100 --documents 4097 --rows 5000", schedules=2),
    check("wild-some", "--lists adversarial --queries 700 --documents 301 --rows 1500", schedules=2),
    check("wild-none", "--lists adversarial --queries 40 --documents 1", schedules=2),
    check("ratio", "--lists drift --queries 290 --documents 5", schedules=2),
    check("packed", "--lists causal --queries 520 --documents 7 --rows 300", schedules=2),
    check("padded", "--lists packed --queries 270 --documents 2047", schedules=2),
    check("offset", "--lists window --queries 270 --documents 20", schedules=2),
    # A document with queries begins, and another ends, at the second part of cu_seqlens.
    check("parts", "--lists causal --queries 9000 --documents 4200", schedules=1),
)
