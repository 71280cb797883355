"""The backward pass's lists of keys and lists by keys, alone, compared with the reference."""

from configurations import Program


def lists(name, program, which, cases="4", only=""):
    """The program's cases on the emulator. The seed's random ones are few: the listed ones find
    most."""
    return Program(name, program, (cases, "sm_90a", only),
                   emitted_by=("smelt", "emit", "sparse_attn_bwd_lists:pass=" + which, "--arch",
                               "sm_90a"),
                   report=r"^    report ([a-z]+): (.*)", variables={"SMELT_TEST_SEED": "70"})


# Together they reach every statement (coverage.py --suggest).
COVERAGE = ("group", "scan", "place", "count")

CONFIGURATIONS = (
    # A few cases, by which most mutants die; then all of them.
    lists("group-fours", "gpu_bwd_lists", "group", "0", "fours"),
    lists("count-few", "gpu_bwd_segments", "count", "0", "chunks of"),
    lists("scan-few", "gpu_bwd_segments", "scan", "0", "several tiles"),
    lists("place-few", "gpu_bwd_segments", "place", "0", "chunks, united"),
    lists("group", "gpu_bwd_lists", "group"),
    lists("count", "gpu_bwd_segments", "count"),
    lists("scan", "gpu_bwd_segments", "scan"),
    lists("place", "gpu_bwd_segments", "place"),
)
