"""The backward pass's lists of keys, lists by keys and their sums, in deterministic backward passes."""

from configurations import Check

KERNELS = {"group": "sparse_attn_bwd_lists:pass=group", "transpose": "sparse_attn_bwd_lists:pass=transpose"}
ONE = "heads=8,dqk=64,dv=64,topk="


def check(name, kernel, keys, options, deterministic=1, **more):
    """A check of a backward pass; the operator is sparse_attn unless keys name another."""
    operator = keys if ":" in keys else f"sparse_attn:{keys},passes=backward,deterministic={deterministic}"
    return Check(f"{kernel}-{name}", operator, KERNELS[kernel], options + " --sample 1000", **{"schedules": 1, **more})


WGMMA = "dqk=512,dv=512,variant=sm90,topk="

UNITED = "sparse_gqa:heads=4,kv_heads=1,dqk=64,dv=64,topk=30,granularity=1,unite=1,variant=sm90"

COVERAGE = ("group-eights", "group-one", "transpose-one", "transpose-several")

CONFIGURATIONS = (
    # Groups of two, four and eight queries, the last partial; rows at any address, lists and lengths.
    check("eights", "group", "heads=7," + WGMMA + "100",
          "--queries 21 --rows 300 --batches 2 --strided --topk-length --query-list partial --seed 70 --lists adversarial",
          schedules=2),
    check("fours", "group", "heads=16," + WGMMA + "70", "--queries 9 --rows 120 --topk-length --lists random", 0),
    check("pairs", "group", "heads=24," + WGMMA + "300", "--queries 7 --rows 500 --width 300 --lists drift"),
    # One query a group, in the order of slots, ascending, once and again.
    check("one", "group", ONE + "700", "--queries 9 --rows 120 --width 700 --batches 2 --strided --topk-length --query-list clamped "
          "--lists adversarial", schedules=2),
    check("slots", "group", ONE + "300", "--queries 19 --rows 500 --topk-length --width 270 --lists adversarial", 0),
    check("ascending", "group", ONE + "700", "--queries 4 --rows 13000 --width 650 --lists random", 0),
    # Several windows of the map for groups.
    check("windows", "group", UNITED, "--queries 9 --rows 120000 --topk-length --lists drift"),
    check("buckets", "group", "heads=8,dqk=64,dv=64,topk=128,buckets=20/60", "--queries 30 --rows 200 --width 150 --lists causal"),
    # More keys than all windows of the map have bits.
    check("united", "group", UNITED, "--queries 9 --rows 1700000 --lists drift"),
    check("buckets-in-order", "group", "heads=8,dqk=64,dv=64,topk=128,buckets=20/60",
          "--queries 9 --rows 200 --width 170 --lists random", 0),
    check("far", "group", ONE + "70", "--far --batches 2 --queries 3 --rows 90 --topk-length --lists random"),
    check("one", "transpose", ONE + "70", "--queries 30 --rows 300 --batches 2 --lists adversarial", schedules=2),
    check("several", "transpose", ONE + "3", "--queries 500 --rows 60 --lists adversarial"),
    # No list names a key twice.
    check("once", "transpose", ONE + "20", "--queries 70 --rows 30 --lists random"),
    check("long", "transpose", ONE + "600", "--queries 9 --rows 5000 --width 600 --lists random"),
    check("eights", "transpose", "heads=7," + WGMMA + "100", "--queries 21 --rows 520 --lists adversarial"),
    check("ranges", "transpose", ONE + "40", "--queries 9 --rows 20000 --lists random"),
    check("chunks", "transpose", ONE + "70", "--queries 30 --rows 300 --workspace-limit 90000 --lists adversarial"),
)
