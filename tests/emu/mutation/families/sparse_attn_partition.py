"""The passes of the partition, in operators with buckets."""

from configurations import Program
from sparse_attn import check

COVERAGE = ("count-list", "count-long", "count-runs", "place-list", "place-long")

KEYS = "heads=1,dqk=64,dv=64,topk=20,blocks=1"
# Aligned rows and others, lists and lengths, short rows and long.
LISTED = "--width 37 --rows 60 --queries 40 --batches 2 --strided --topk-length --query-list partial --lists adversarial"
SHORT = "heads=1,dqk=64,dv=64,topk=4,blocks=1"


def both(name, *arguments, **more):
    """The two passes of a problem."""
    return tuple(check(f"{which}-{name}", *arguments, partition=which, **more) for which in ("count", "place"))


def chunked(which):
    """More runs than the partition prefers, each of several entries a warp."""
    return Program(which + "-runs", "emu_chunked", ("buckets=8/16/32",),
                   emitted_by=("smelt", "emit", "sparse_attn_partition:pass=" + which, "--arch", "sm_90a"),
                   report=r"^FAILED [^\n]*: (forbidden|bounds|race|uninitialized|deadlock): (.*)",
                   variables={"SMELT_EMU_DEVICES": "2", "SMELT_TEST_SEED": "70"}, schedules=1)


CONFIGURATIONS = (
    *both("list", KEYS, LISTED, buckets="5"),
    *both("long", "heads=1,dqk=64,dv=64,topk=600,blocks=1", "--width 1600 --rows 2000 --queries 20 --valid 700 --lists random",
          buckets="5", schedules=2),
    # Rows at 4 bytes, at their bounds; whole lists without a count.
    *both("bounds", KEYS, "--width 33 --rows 50 --queries 90 --query-list whole --lists window --odd 6", buckets="4/10", schedules=2),
    *both("many", SHORT, "--width 8 --rows 20 --queries 700 --lists adversarial", buckets="1/2/3", schedules=1),
    *both("far", KEYS, "--far --topk-length --width 30 --rows 60 --queries 9 --batches 2 --query-list clamped --lists random",
          buckets="5", schedules=1),
    chunked("count"), chunked("place"),
)
