"""The indexer's logits of wgmma: both element types, heads that fill no pair and no set, several parts
of columns, one buffer of queries and two, rows and windows of every kind, more batches than are
looked at together."""

from configurations import Check

FILES = ("templates/indexer_logits_fwd.sm90.cu", "templates/indexer_logits_fwd.sm90_copies.cuh",
         "templates/indexer_logits_fwd.sm90_runs.cuh", "templates/indexer_logits_fwd.sm90_tiles.cuh")


def check(name, keys, options, knobs="", **more):
    spec = keys + ",variant=sm90" + ("," + knobs if knobs else "")
    return Check(name, "indexer_logits:" + spec, "indexer_logits_fwd:" + spec, options, **more)


# Together they reach every statement (coverage.py --suggest).
COVERAGE = ("logits-sm90-parts", "logits-sm90-many", "logits-sm90-sets", "logits-sm90-long",
            "logits-sm90-own", "logits-sm90-near", "logits-sm90-coarse",
            "logits-sm90-lines")

CONFIGURATIONS = (
    # Blocks of 32 queries, the second not whole; an odd number of heads; windows that are empty,
    # inverted, out of range; rows that begin at odd places.
    check("logits-sm90", "heads=3,dim=64,dtype=fp8", "--queries 43 --rows 301 --lists adversarial --seed 3"),
    # Fills longer than one bulk store, of all of what they are copied from, beside the weights of two blocks.
    check("logits-sm90-long", "heads=2,dim=64,dtype=fp8", "--queries 130 --rows 9003 --lists window", schedules=1),
    # One query in the last batch and one key in the last KV tile; a thread block that begins behind the middle of its
    # only block.
    check("logits-sm90-late", "heads=2,dim=64,dtype=fp8", "--queries 33 --rows 705 --lists full",
          schedules=1, variables={"SMELT_EMU_MULTIPROCESSORS": "8"}),
    # Whole lines: several KV tiles of all warpgroups in all windows of a whole block, in two parts.
    check("logits-sm90-lines", "heads=8,dim=64,dtype=fp8", "--queries 32 --rows 640 --lists full"),
    # The same KV tiles, but rows that begin at no multiple of 16 bytes: by their stride, by the first one's address.
    check("logits-sm90-lines-odd", "heads=8,dim=64,dtype=fp8", "--queries 32 --rows 305 --lists full", schedules=1),
    check("logits-sm90-lines-shifted", "heads=8,dim=64,dtype=fp8", "--strided --queries 32 --rows 455 --lists full",
          schedules=1),
    # Parts that end within a set, whose logits are not staged.
    check("logits-sm90-lines-split", "heads=6,dim=64,dtype=fp8", "--queries 32 --rows 140 --lists full",
          knobs="columns=64", schedules=1),
    # Weights a part at a time.
    check("logits-sm90-parts", "heads=67,dim=64,dtype=bf16", "--queries 7 --rows 140 --lists log", schedules=2),
    # Several sets and parts; whole blocks, whose inner KV tiles need no tests, and one that is not.
    check("logits-sm90-sets", "heads=12,dim=64,dtype=bf16", "--queries 37 --rows 200 --lists full", schedules=2,
          variables={"SMELT_EMU_MULTIPROCESSORS": "5"}),
    check("logits-sm90-causal", "heads=20,dim=128,dtype=bf16", "--queries 13 --rows 200 --lists causal", schedules=2,
          variables={"SMELT_EMU_MULTIPROCESSORS": "5"}),
    # Nearly as many batches as groups, each lane's among them; more KV tiles than stages.
    check("logits-sm90-many", "heads=2,dim=64,dtype=fp8", "--queries 7300 --rows 130 --lists causal", schedules=1),
    # More batches than groups, which then have several each.
    check("logits-sm90-coarse", "heads=1,dim=64,dtype=fp8", "--queries 8230 --rows 70 --lists causal", schedules=1),
    # More batches than are looked at together in all groups.
    check("logits-sm90-most", "heads=1,dim=64,dtype=fp8", "--queries 32769 --rows 3 --lists full", schedules=1),
    check("logits-sm90-groups", "heads=5,dim=64,dtype=fp8", "--queries 21 --rows 400 --lists full",
          knobs="warpgroups=2,columns=256", schedules=2),
    # A warpgroup has one stage alone, again and again.
    check("logits-sm90-own", "heads=64,dim=128,dtype=bf16", "--queries 5 --rows 600 --lists causal", schedules=1),
    # Scales of the current KV tile, not of the next one; a filler that waits for its stores.
    check("logits-sm90-near", "heads=20,dim=64,dtype=fp8", "--queries 40 --rows 300 --lists causal", schedules=1),
    check("logits-sm90-one", "heads=1,dim=64,dtype=bf16", "--queries 1 --rows 1 --lists full", schedules=1),
    # Products of 64 columns into registers that earlier ones have left.
    check("logits-sm90-two", "heads=1,dim=64,dtype=bf16", "--queries 2 --rows 500 --lists full", schedules=1),
    # A whole block whose windows begin and end apart: in order, the last after the first key of a KV tile, and not.
    check("logits-sm90-sliding", "heads=2,dim=64,dtype=fp8", "--queries 32 --rows 6400 --lists window --width 6335",
          schedules=1),
    check("logits-sm90-random", "heads=2,dim=64,dtype=fp8", "--queries 32 --rows 3000 --lists random --seed 1",
          schedules=1),
    # No window of fewer keys than a KV tile.
    check("logits-sm90-short", "heads=2,dim=64,dtype=fp8", "--queries 1 --rows 50 --lists adversarial --seed 0",
          schedules=1),
    # No window at all; infinite keys beside heads that are not there.
    check("logits-sm90-none", "heads=1,dim=64,dtype=fp8", "--queries 1 --rows 301 --lists adversarial --seed 0",
          schedules=1),
    # NaN, infinities, scales below 0 and what is too small for fp32 in whole blocks of queries and keys.
    check("logits-sm90-whole", "heads=8,dim=64,dtype=fp8",
          "--queries 96 --rows 450 --lists adversarial --seed 7 --sample 96", schedules=1),
    check("logits-sm90-odd", "heads=3,dim=64,dtype=bf16", "--queries 43 --rows 301 --lists adversarial --seed 3",
          schedules=1),
    check("logits-sm90-racecheck", "heads=4,dim=64,dtype=fp8", "--queries 9 --rows 140 --lists random",
          knobs="racecheck=1", schedules=1),
    # Groups of an even and of an odd number of heads that end anywhere in a part; no ReLU, no weights; blocks of a
    # quad's keys and of a warp's.
    check("logits-sm90-groups-8", "heads=18,dim=64,dtype=bf16,groups=3,block_max=8",
          "--queries 19 --rows 301 --lists adversarial --seed 5", schedules=1),
    check("logits-sm90-odd-groups", "heads=15,dim=64,dtype=fp8,groups=5,activation=none",
          "--queries 19 --rows 301 --lists random --seed 6", schedules=1),
    check("logits-sm90-16", "heads=4,dim=64,dtype=fp8,weights=0,block_max=16",
          "--queries 43 --rows 301 --lists adversarial --seed 3", schedules=1),
    check("logits-sm90-heads", "heads=9,dim=64,dtype=bf16,groups=9,block_max=2",
          "--queries 33 --rows 300 --lists causal --seed 7", schedules=1),
    check("logits-sm90-far-groups", "heads=6,dim=64,dtype=bf16,groups=3,block_max=4",
          "--far --queries 11 --rows 140 --lists random", schedules=1),
    # Every tensor's every dimension reaches past 2^32 elements.
    check("logits-sm90-far", "heads=20,dim=64,dtype=bf16", "--far --queries 11 --rows 140 --lists full",
          schedules=1),
    check("logits-sm90-far-sets", "heads=3,dim=64,dtype=fp8", "--far --queries 40 --rows 140 --lists full",
          schedules=1),
    check("logits-sm90-far-pieces", "heads=3,dim=64,dtype=bf16", "--far --queries 40 --rows 140 --lists full",
          schedules=1),
    check("logits-sm90-far-fills", "heads=3,dim=64,dtype=fp8", "--far --queries 40 --rows 140 --lists causal",
          schedules=1),
    # Fills nearly as long as one bulk store.
    check("logits-sm90-fills", "heads=1,dim=64,dtype=fp8", "--queries 1 --rows 1750 --lists window --width 20",
          schedules=1),
)
