"""The deterministic backward pass's sums, alone, compared with the reference bit for bit."""

from configurations import Program


def sums(dqk):
    return Program("sum-" + dqk, "gpu_bwd_segments", ("4", "sm_90a"),
                   emitted_by=("smelt", "emit", "sparse_attn_bwd_sum:dqk=" + dqk, "--arch", "sm_90a"),
                   report=r"^    report ([a-z]+): (.*)", variables={"SMELT_TEST_SEED": "70"})


UNSETTLED = "changed after its survivors were settled"

# Together they reach every statement (coverage.py --suggest).
COVERAGE = ("sum-64",)

CONFIGURATIONS = (sums("64"), sums("576"))
