"""The indexer's loss: rows of one warp, of several, of several parts; every kind of numbers."""

from configurations import Check

FILES = ("templates/indexer_loss_rows.cu", "templates/indexer_loss_sum.cu",
         "templates/common/block_sums.cuh", "templates/common/warp_sums.cuh")


def check(name, topk, options, kernel=None, **more):
    return Check("loss-" + name, f"indexer_loss:topk={topk}",
                 kernel or f"indexer_loss_rows:topk={topk}", options + " --seed 70", files=FILES, **more)

COVERAGE = ("loss-odd", "loss-strided", "loss-sum", "loss-parts")

CONFIGURATIONS = (
    check("odd", "300", "--queries 43 --sample 43 --scores odd --lists adversarial --weighted --outputs losses",
          schedules=2),
    check("odd-all", "300", "--queries 43 --sample 43 --scores odd --lists random --weighted --outputs losses",
          schedules=1),
    check("strided", "300", "--queries 31 --sample 31 --width 299 --scores odd --lists log --topk-length --strided "
          "--outputs losses", schedules=2),
    check("strided-any", "100", "--queries 20 --sample 20 --width 99 --lists adversarial --strided", schedules=1),
    check("lengths", "100", "--queries 40 --sample 40 --lists random --topk-length --scores trained", schedules=1),
    check("blocks", "100", "--queries 40 --sample 40 --lists random --weighted --seed 3", arch="sm_80", schedules=1),
    # Two parts, the second with one slot.
    check("parts", "4100,vectors=1", "--queries 3 --width 4097 --scores far-off --lists random --outputs losses",
          kernel="indexer_loss_rows:topk=4100,vectors=1", schedules=2),
    # Gradients of 0 though grad_loss is infinite.
    check("certain", "100", "--queries 9 --lists random --scores certain --weighted", schedules=1),
    check("alone", "40", "--queries 5 --scores far-off --outputs loss", schedules=1),
    check("far", "40", "--far --queries 5 --scores far-off --topk-length --weighted --outputs losses", schedules=1),
    check("sum", "20", "--queries 2500 --scores far-off", kernel="indexer_loss_sum", schedules=2),
)
