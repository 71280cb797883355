"""What kernels of indexer_logits and topk_select do in the chain of indexer_topk alone: windows that
are not scored, nothing outside of them, launches with PDL."""

from configurations import Check


def check(name, keys, kernel, files, options, **more):
    return Check(name, "indexer_topk:" + keys, kernel, options + " --seed 70", files=(files,), **more)


BF16 = "heads=3,dim=64,dtype=bf16"

# Together they reach every statement (coverage.py --suggest).
COVERAGE = ("chain-sm90", "chain-mma", "chain-rows", "chain-parts")

CONFIGURATIONS = (
    check("chain-mma", BF16 + ",topk=40,variant=mma", f"indexer_logits_fwd:{BF16},variant=mma",
          "templates/indexer_logits_fwd.mma", "--queries 19 --rows 300 --lists causal --documents 2"),
    check("chain-sm90", BF16 + ",topk=40", f"indexer_logits_fwd:{BF16}",
          "templates/indexer_logits_fwd.sm90", "--queries 19 --rows 300 --lists causal --documents 2"),
    check("chain-rows", BF16 + ",topk=40", "topk_select_rows:topk=40,pass=rows",
          "templates/topk_select_rows.cu", "--queries 19 --rows 300 --lists causal --documents 2"),
    # Few long rows. Of three schedules the last finds in the workspace what no header can hold.
    check("chain-parts", BF16 + ",topk=40", "topk_select_rows:topk=40,pass=parts",
          "templates/topk_select_rows.parts", "--queries 2 --rows 32800 --lists full", schedules=3),
)
