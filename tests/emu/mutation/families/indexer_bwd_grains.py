"""The rounding grains of dk's rows, in deterministic passes."""

from configurations import Check, Program

FILES = ("templates/indexer_bwd_grains",)

COVERAGE = ("grains-reach-exact", "grains-bounds-exact", "grains-grains-exact", "grains-totals-parts")


def grains(which):
    """The mutated pass: sums that must be exact, and checks of the operator."""
    def check(name, keys, options, **more):
        return Check(f"grains-{which}-{name}", f"indexer_bwd:{keys},deterministic=1", "indexer_bwd_grains:pass=" + which,
                     options, **{"schedules": 2, **more})
    return (
        Program(f"grains-{which}-exact", "gpu_suite", ("--group", "exact"),
                emitted_by=("smelt", "emit", "indexer_bwd_grains:pass=" + which, "--arch", "sm_90a"),
                report=r"^FAILED [^\n]*: (forbidden|bounds|race|uninitialized|deadlock): (.*)", schedules=1),
        check("few", "heads=13,dim=64,topk=100", "--queries 27 --rows 200 --strided --topk-length --seed 70 --lists adversarial"),
        check("parts", "heads=4,dim=64,topk=40,main.exact_groups=2", "--queries 40 --rows 60 --dkv add --lists random", schedules=4),
        check("rows", "heads=3,dim=64,topk=300", "--queries 6 --rows 16400 --lists random"),
        check("far", "heads=4,dim=64,topk=70", "--far --queries 11 --rows 90 --lists random", schedules=1),
    )


CONFIGURATIONS = tuple(check for which in ("reach", "bounds", "grains", "totals") for check in grains(which))
