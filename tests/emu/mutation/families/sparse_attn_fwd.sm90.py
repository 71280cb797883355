"""Kernels with wgmma and heads as rows: five queries on two multiprocessors; rope and none, a sink and
none; several head blocks, a query list that ends early."""

from sparse_attn import FALL, FALL_OPTIONS, WGMMA_PARTS, check

FILES = ("templates/sparse_attn_fwd.sm90.cu",
         *(f"templates/sparse_attn_fwd.sm90_{part}.cuh" for part in ("gather", "output", "scores", "shared")),
         *WGMMA_PARTS)

COVERAGE = ("sm90-sink", "sm90")

CONFIGURATIONS = (
    check("sm90", "heads=64,dqk=576,dv=512,topk=300,variant=sm90",
          "--strided --max-logits --topk-length --queries 5 --rows 310 --width 300 --seed 70 "
          "--lists adversarial"),
    # The second head block has eight heads.
    check("sm90-sink", "heads=72,dqk=512,dv=512,topk=100,sink=1,variant=sm90,orientation=heads",
          "--max-logits --spiky --batches 2 --queries 3 --query-list partial --rows 301 --lists window"),
    # 65 entries at a row's end.
    check("sm90-random", "heads=64,dqk=576,dv=512,topk=600,variant=sm90",
          "--width 577 --rows 700 --lists random"),
    # Two buffers of P; maxima that change after the first block; the third query's valid slots are such that 65 entries
    # wait when the next 64 slots are all valid; the fourth query has none.
    check("sm90-spiky", "heads=64,dqk=512,dv=512,topk=381,sink=1,variant=sm90",
          "--spiky --queries 4 --rows 400 --width 381 --seed 7 --lists adversarial", schedules=2),
    check("sm90-far", "heads=64,dqk=576,dv=512,topk=100,variant=sm90",
          "--far --topk-length --max-logits --batches 2 --queries 2 --seed 70 --lists random", schedules=1),
    check("sm90-racecheck", "heads=64,dqk=512,dv=512,topk=100,variant=sm90,racecheck=1",
          "--queries 2 --rows 150 --lists random", schedules=1),
    check("sm90-fall", FALL + "64", FALL_OPTIONS, schedules=1),
    # All rows of a product are the same head: their maxima change together.
    check("sm90-one", "heads=1,dqk=512,dv=512,topk=300,variant=sm90,orientation=heads",
          "--spiky --queries 8 --rows 400 --width 300 --lists random", schedules=1),
    # A bucket's kernel that runs concurrently with the largest one's; queries without a valid slot, and a sink of
    # minus infinity in a lower row of a thread's two.
    check("sm90-bucket", "heads=64,dqk=512,dv=512,topk=40,sink=1,variant=sm90",
          "--width 50 --rows 90 --queries 9 --seed 9 --lists adversarial", buckets="9", bound="9",
          schedules=1),
    # Blocks without an item.
    check("sm90-empty", "heads=64,dqk=512,dv=512,topk=64,variant=sm90",
          "--query-list empty --lists random", schedules=1),
    # A query list in a kernel that loads an entry in each iteration.
    check("list", "heads=128,dqk=512,dv=512,topk=64,variant=sm90",
          "--batches 2 --queries 8 --query-list partial --lists random",
          files="templates/common/work.cuh", schedules=1),
)
