"""Rows as e4m3: rows of every kind, both scales, with and without the instruction that rounds."""

from configurations import Check

FILES = ("templates/quantize_rows.cu", "templates/common/e4m3.cuh")


def check(name, keys, options, **more):
    return Check(name, "quantize:" + keys, "quantize_rows:" + keys, options, files=FILES, **more)

COVERAGE = ("quantize-integers", "quantize", "quantize-groups")

CONFIGURATIONS = (
    check("quantize", "dim=128,scale=power_of_two", "--strided --queries 151 --sample 151 --lists adversarial",
          schedules=1),
    check("quantize-integers", "dim=64", "--queries 300 --sample 300 --lists adversarial --seed 3", arch="sm_80",
          schedules=1),
    check("quantize-plain", "dim=128", "--queries 151 --sample 151 --lists adversarial", schedules=1),
    check("quantize-wide", "dim=576", "--strided --queries 71 --sample 71 --lists adversarial", schedules=1),
    check("quantize-groups", "dim=96,groups=3", "--strided --queries 153 --sample 153 --lists adversarial", schedules=1),
    check("quantize-few", "dim=256,groups=2", "--queries 38 --sample 38 --lists adversarial", schedules=1),
    check("quantize-one", "dim=64", "--queries 1 --lists random", schedules=1),
    check("quantize-far", "dim=64", "--far --queries 301 --lists random", schedules=1),
)
