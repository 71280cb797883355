"""The passes of the partition: in an operator with buckets, and alone, their lists compared with the
reference."""

from configurations import Program
from sparse_attn import check


def lists(name, which):
    """gpu_partition's cases on the emulator, with few random ones: the listed ones catch most mutants."""
    return Program(name, "gpu_partition", ("4", "sm_90a"),
                   emitted_by=("smelt", "emit", "sparse_attn_partition:pass=" + which, "--arch",
                               "sm_90a"),
                   report=r"^    report ([a-z]+): (.*)", variables={"SMELT_TEST_SEED": "70"})


COVERAGE = ("count-lists", "place-lists")

CONFIGURATIONS = (
    # Aligned rows and others, lists and lengths, short rows and long.
    check("count-list", "heads=1,dqk=64,dv=64,topk=20,blocks=1",
          "--width 37 --rows 60 --queries 40 --batches 2 --strided --topk-length --query-list partial "
          "--lists adversarial", buckets="5", partition="count"),
    check("count-long", "heads=1,dqk=64,dv=64,topk=600,blocks=1",
          "--width 1600 --rows 2000 --queries 20 --valid 700 --lists random",
          buckets="5", partition="count", schedules=2),
    check("place-list", "heads=1,dqk=64,dv=64,topk=20,blocks=1",
          "--width 37 --rows 60 --queries 40 --batches 2 --strided --topk-length --query-list partial "
          "--lists adversarial", buckets="5", partition="place"),
    check("place-many", "heads=1,dqk=64,dv=64,topk=4,blocks=1",
          "--width 8 --rows 20 --queries 1500 --lists adversarial", buckets="1/2/3",
          partition="place", schedules=1),
    lists("count-lists", "count"),
    lists("place-lists", "place"),
)
