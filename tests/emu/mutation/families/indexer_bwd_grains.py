"""The rounding grains of dk's rows: each pass alone, compared with the reference bit for bit."""

from configurations import Program

FILES = ("templates/indexer_bwd_grains",)


def grains(which):
    """The program's cases on the emulator, with few random ones: the listed ones catch most mutants."""
    return Program("grains-" + which, "gpu_indexer_grains", ("4", "sm_90a"),
                   emitted_by=("smelt", "emit", "indexer_bwd_grains:pass=" + which, "--arch", "sm_90a"),
                   report=r"^    report ([a-z]+): (.*)", variables={"SMELT_TEST_SEED": "70"})


COVERAGE = ("grains-reach", "grains-bounds", "grains-grains", "grains-totals")

CONFIGURATIONS = tuple(grains(which) for which in ("reach", "bounds", "grains", "totals"))
