"""The deterministic backward pass's sums, alone, compared with the reference bit for bit."""

from configurations import Program


def sums(name, dqk, cases="4", arch="sm_90a", only=""):
    return Program(name, "gpu_bwd_segments", (cases, arch, only),
                   emitted_by=("smelt", "emit", "sparse_attn_bwd_sum:dqk=" + dqk, "--arch", arch),
                   report=r"^    report ([a-z]+): (.*)", variables={"SMELT_TEST_SEED": "70"})


UNSETTLED = "46 of 361 were not tried, of sum_long_key and of the kernel; two of open_front and one of sum_long_key are open"

# Together they reach every statement (coverage.py --suggest).
COVERAGE = ("sum-64", "sum-one-by-one")

CONFIGURATIONS = (
    sums("sum-576", "576", "0", only="wide rows"),
    sums("sum-one-by-one", "64", "0", "sm_80", "any keys"),
    sums("sum-64", "64"),
)
