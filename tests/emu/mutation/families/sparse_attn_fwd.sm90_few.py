"""Kernels with wgmma and keys as rows."""

from sparse_attn import FALL, FALL_OPTIONS, WGMMA_PARTS, check

FILES = ("templates/sparse_attn_fwd.sm90_few", "templates/common/few_", *WGMMA_PARTS)

COVERAGE = ("few", "few-32", "few-far")

CONFIGURATIONS = (
    # Two queries in flight; more queries than the emulated GPU runs at once.
    check("few", "heads=13,dqk=576,dv=512,topk=300,sink=1,variant=sm90,orientation=keys",
          "--strided --max-logits --topk-length --queries 7 --rows 310 --width 300 --seed 70 "
          "--lists adversarial"),
    # Query 0 follows another one.
    check("few-parts", "heads=24,dqk=576,dv=512,topk=100,variant=sm90,part_tiles=4,stages=2",
          "--spiky --batches 2 --queries 5 --query-list partial --rows 301 --seed 1 --lists window"),
    check("few-random", "heads=16,dqk=576,dv=512,topk=600,variant=sm90",
          "--width 577 --rows 700 --queries 3 --lists random", schedules=2),
    check("few-spiky", "heads=8,dqk=576,dv=512,topk=381,sink=1,variant=sm90",
          "--spiky --queries 5 --rows 400 --width 381 --seed 7 --lists adversarial", schedules=2),
    check("few-racecheck", "heads=8,dqk=576,dv=512,topk=100,variant=sm90,racecheck=1",
          "--queries 5 --rows 150 --lists random", schedules=1),
    # Query 0 alone, in a ring of one tile more than three blocks.
    check("few-one", "heads=1,dqk=512,dv=512,topk=600,variant=sm90",
          "--queries 1 --lists random", schedules=2),
    check("few-32", "heads=32,dqk=512,dv=512,topk=300,variant=sm90,orientation=keys",
          "--width 300 --lists causal --max-logits --spiky --queries 6"),
    # Query 0 is the longer of the last two.
    check("few-far", "heads=8,dqk=576,dv=512,topk=100,variant=sm90",
          "--far --topk-length --max-logits --batches 2 --queries 3 --query-list partial --seed 77 "
          "--lists random", schedules=1),
    # Rows of a later token and a later batch in every tensor.
    check("few-far-tokens", "heads=8,dqk=576,dv=512,topk=100,variant=sm90",
          "--far --max-logits --batches 2 --queries 3 --seed 70 --lists random", schedules=1),
    # Query 0 has no slots: its indices must not be accessed.
    check("few-short", "heads=8,dqk=576,dv=512,topk=40,variant=sm90",
          "--topk-length --width 40 --rows 90 --queries 4 --lists random", schedules=1),
    check("few-fall", FALL + "4", FALL_OPTIONS, schedules=1),
    # A bucket's kernel that runs concurrently with the largest one's.
    check("few-bucket", "heads=8,dqk=576,dv=512,topk=40,variant=sm90",
          "--width 50 --rows 90 --queries 9 --lists adversarial", buckets="9",
          bound="9", schedules=1),
)
