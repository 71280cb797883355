"""The forward pass's kernel with mma. The plan's constants are those that `smelt emit` prints."""

from sparse_attn import check

COVERAGE = ("first-row", "small", "ragged", "ring", "long", "bucket-one")

CONFIGURATIONS = (
    # Two blocks, three stages, two depth groups and two groups of heads: catches most mutants. The seed gives
    # topk_length 95, 107 (past the width), -3 and 54.
    check("small", "heads=24,dqk=128,dv=64,topk=100,sink=1",
          "--strided --max-logits --topk-length --rows 150 --queries 4 --seed 70 "
          "--lists adversarial"),
    # Two head blocks, the second with fewer tiles; seven key blocks, shorter than one copy by the block's threads; four
    # partial sums.
    check("ragged", "heads=112,dqk=128,dv=64,topk=100,block_keys=16,stages=2,warps=8",
          "--max-logits --spiky --lists window"),
    # Every slot gets an entry, masked or not, over three scans; several batches; a query list that
    # ends early.
    check("masked", "heads=8,dqk=128,dv=64,topk=300,block_keys=32,stages=4,warps=4,compact=0",
          "--width 300 --queries 4 --batches 2 --query-list partial --strided --max-logits "
          "--lists adversarial"),
    # The same with whole key blocks before the first valid slot, which names row 0.
    check("first-row", "heads=8,dqk=64,dv=64,topk=100,block_keys=16,stages=2,warps=4,compact=0",
          "--rows 101 --lists window"),
    # One rope buffer for two stages; the ring wraps; no head past the first tile.
    check("ring", "heads=16,dqk=128,dv=64,topk=700,block_keys=32,stages=2,blocks=4",
          "--width 700 --rows 900 --queries 2 --lists random", arch="sm_86"),
    # Several tiles of heads a warp, the query in shared memory.
    check("tiles", "heads=64,dqk=128,dv=64,topk=100,sink=1,warps=4",
          "--query-list clamped --lists window"),
    # No rope, one head, one slot; neither a sink nor optional arguments.
    check("one", "heads=1,dqk=64,dv=64,topk=1", "--query-list whole --lists random"),
    # The widest rows, long key blocks.
    check("wide", "heads=16,dqk=576,dv=512,topk=60,variant=mma", "--queries 2 --rows 100 --lists causal"),
    check("long", "heads=40,dqk=64,dv=64,topk=300,block_keys=128",
          "--queries 2 --width 300 --spiky --lists window"),
    check("empty", "heads=1,dqk=64,dv=64,topk=1", "--query-list empty --lists random", schedules=1),
    # Every dimension of every tensor reaches past 2^32 elements.
    check("far", "heads=8,dqk=128,dv=64,topk=100",
          "--far --topk-length --max-logits --batches 2 --queries 2 --seed 70 --lists random", schedules=1),
    # Buckets. The largest one's kernel waits for the partition; about 45 queries a block, more than a warp holds
    # entries of the list. A smaller one's kernel runs concurrently; and one with wider rows.
    check("bucket-first", "heads=1,dqk=64,dv=64,topk=20,blocks=1",
          "--width 24 --rows 60 --queries 90 --batches 2 --valid 12 --topk-length --lists random", buckets="5", schedules=2),
    check("bucket-last", "heads=24,dqk=128,dv=64,topk=40,blocks=1",
          "--width 50 --rows 90 --queries 9 --batches 2 --lists adversarial", buckets="9/20", bound="9"),
    check("bucket-wide", "heads=8,dqk=64,dv=64,topk=20,blocks=1,compact=0,block_keys=16,warps=4",
          "--width 330 --rows 200 --queries 9 --valid 50 --lists random", buckets="9"),
    # A single block, of the bucket that ends last.
    check("bucket-one", "heads=8,dqk=64,dv=64,topk=100",
          "--queries 1 --lists random", buckets="40", bound="40", schedules=1),
)
