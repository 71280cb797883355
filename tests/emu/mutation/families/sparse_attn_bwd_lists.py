"""The backward pass's lists of keys and lists by keys, alone, compared with the reference."""

from configurations import Program


def lists(name, program, which, cases="4", only=""):
    """The program's cases on the emulator. The seed's random ones are few: the listed ones find
    most."""
    return Program(name, program, (cases, "sm_90a", only),
                   emitted_by=("smelt", "emit", "sparse_attn_bwd_lists:pass=" + which, "--arch",
                               "sm_90a"),
                   report=r"^    report ([a-z]+): (.*)", variables={"SMELT_TEST_SEED": "70"})


UNSETTLED = "of the 374 mutants of the pass `turn` some 85 were run since it was written: none unexplained; the rest was not"

# Together they reach every statement (coverage.py --suggest).
COVERAGE = ("group", "turn")

CONFIGURATIONS = (
    # A few cases, by which most mutants die; then all of them.
    lists("group-fours", "gpu_bwd_lists", "group", "0", "fours"),
    lists("turn-few", "gpu_bwd_segments", "turn", "0", "several ranges"),
    lists("group", "gpu_bwd_lists", "group"),
    lists("turn", "gpu_bwd_segments", "turn"),
)
