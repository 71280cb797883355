"""The backward pass's lists of keys and lists by keys, alone, compared with the reference."""

from configurations import Program


def lists(name, program, which, *arguments, **more):
    """The program's cases on the emulator, with few random ones: the listed ones catch most mutants."""
    return Program(name, program, arguments,
                   emitted_by=("smelt", "emit", "sparse_attn_bwd_lists:pass=" + which, "--arch",
                               "sm_90a"),
                   report=r"^    report ([a-z]+): (.*)", **more)


SEED = {"SMELT_TEST_SEED": "70"}
ONE_SCHEDULE = {"schedules": 1, "variables": dict(SEED, SMELT_TEST_SCHEDULES="1")}

COVERAGE = ("group", "transpose-chunks")

CONFIGURATIONS = (
    # A few cases that catch most mutants; then all.
    lists("group-fours", "gpu_bwd_lists", "group", "0", "sm_90a", "fours", variables=SEED),
    lists("transpose-few", "gpu_bwd_segments", "transpose", "0", "sm_90a", "several ranges", "lists", **ONE_SCHEDULE),
    lists("transpose-schedules", "gpu_bwd_segments", "transpose", "0", "sm_90a", "several ranges", "lists",
          variables=SEED),
    lists("group", "gpu_bwd_lists", "group", "4", "sm_90a", variables=SEED),
    lists("transpose-chunks", "gpu_bwd_segments", "transpose", "0", "sm_90a", "chunks", "lists", **ONE_SCHEDULE),
    lists("transpose", "gpu_bwd_segments", "transpose", "4", "sm_90a", "", "lists", **ONE_SCHEDULE),
)
