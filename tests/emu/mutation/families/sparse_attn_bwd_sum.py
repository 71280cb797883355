"""The deterministic backward pass's sums, alone, compared with the reference bit for bit."""

from configurations import Check, Program


def sums(name, dqk, cases="4", arch="sm_90a", only="", **more):
    return Program(name, "gpu_bwd_segments", (cases, arch, only),
                   emitted_by=("smelt", "emit", "sparse_attn_bwd_sum:dqk=" + dqk, "--arch", arch),
                   report=r"^    report ([a-z]+): (.*)", **{"variables": SEED, **more})


SEED = {"SMELT_TEST_SEED": "70"}


COVERAGE = ("sum-few", "sum-one-by-one", "sum-shared")

ONCE = {"schedules": 1, "variables": dict(SEED, SMELT_TEST_SCHEDULES="1")}

CONFIGURATIONS = (
    # A few cases that catch most mutants; a key of so many entries that several teams sum them; then all.
    sums("sum-few", "64", "0", only="few keys", **ONCE),
    sums("sum-576", "576", "0", only="wide rows"),
    sums("sum-one-by-one", "64", "0", "sm_80", "any keys"),
    sums("sum-shared", "64", "0", only="a shared key", **ONCE),
    sums("sum-64", "64", **ONCE),
    # One chunk's sums, concurrent with the next one's main kernel: no later kernel may begin before that ends. So few
    # keys that one thread block sums them, so that no other waits.
    Check("sum-beside", "sparse_attn:heads=64,dqk=512,dv=512,topk=64,deterministic=1,passes=backward,variant=sm90",
          "sparse_attn_bwd_sum:dqk=512", "--queries 140 --rows 3 --lists random --valid 3", schedules=1),
)
