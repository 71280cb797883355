"""The micro-kernels (tests/emu/micro), compared with an H200's results."""

import pathlib

from configurations import Program

RECORDED = pathlib.Path(__file__).resolve().parents[2] / "micro" / "sm_90a.results"


def case(name, which, files="", schedules=6):
    """With more schedules some warp lags."""
    return Program(name, "micro", ("--replay", str(RECORDED), "--case", which, "--schedules",
                                   str(schedules)),
                   emitted_by=("micro", "--emit", which), files=files,
                   report=r": schedule \d+: ([a-z]+): (.*)")

COVERAGE = ("swizzle-0",)

CONFIGURATIONS = (
    case("gather", "pipeline gather 7 blocks 3 stages"),
    case("gather-short", "pipeline gather 1 blocks 2 stages"),
    case("gather-late", "pipeline gather 5 blocks 2 stages", schedules=24),
    case("tensor", "pipeline tensor 256 x 128 x 192 on 2 blocks"),
    case("tensor-tall", "pipeline tensor 384 x 64 x 64 on 1 blocks"),
    # Descriptors of the other swizzles.
    case("swizzle-32", "wgmma n8 ss_t00 swizzle 32 integers", "templates/common/"),
    case("swizzle-64", "wgmma n8 ss_t00 swizzle 64 integers", "templates/common/"),
    case("swizzle-0", "wgmma n8 ss_t00 swizzle 0 integers", "templates/common/"),
)
