"""The lists of the indexer's backward pass, alone, compared with the reference entry for entry."""

from configurations import Check, Program

FILES = ("templates/indexer_bwd_lists", "templates/common/warp_scan.cuh")

COVERAGE = ("indexer-lists",)

CONFIGURATIONS = (
    # Few random cases: the listed ones catch most mutants.
    Program("indexer-lists", "gpu_indexer_lists", ("2", "sm_90a"),
            emitted_by=("smelt", "emit", "indexer_bwd_lists", "--arch", "sm_90a"),
            report=r"^    report ([a-z]+): (.*)", variables={"SMELT_TEST_SEED": "70"}),
    # Entries of several rows, the last of them partly past the last row.
    Check("indexer-lists-blocks", "indexer_bwd:heads=4,dim=64,topk=20,granularity=8", "indexer_bwd_lists",
          "--topk-length --queries 10 --rows 203 --lists adversarial", schedules=1),
    # Every dimension of every tensor reaches past 2^32 elements.
    Check("indexer-lists-far", "indexer_bwd:heads=64,dim=64,topk=70", "indexer_bwd_lists",
          "--far --topk-length --queries 5 --lists random", schedules=1),
)
