"""topk_select's kernels: a block a row, several blocks a row, their merge, a warp a row."""

from configurations import Check

# Not .guess.cuh: whatever is guessed there, exact counts prove it or it is guessed again, so that its
# mutants cost time alone.
FILES = ("templates/common/warp_scan.cuh",
         *("templates/topk_select_rows." + part for part in ("cu", "emit", "list", "parts", "rank", "target", "warps", "window")))


def check(name, keys, options, which="rows", **more):
    # Entries that several passes have are mutated in one of them alone.
    files = ("templates/topk_select_rows." + which,) if which in ("parts", "warps") else FILES
    kernel = keys.replace("dtype=", "logits=")
    return Check("topk-" + name, "topk_select:" + keys, f"topk_select_rows:{kernel},pass={which}",
                 options + " --seed 70", files=files, **more)


# Together they reach every statement (coverage.py --suggest).
COVERAGE = ("topk-merge-decoy", "topk-parts", "topk-long", "topk-decoy", "topk-score", "topk-short",
            "topk-score-levels", "topk-negative", "topk-one", "topk-more", "topk-merge-map",
            "topk-parts-decoy", "topk-warps", "topk-warps-equal")

CONFIGURATIONS = (
    check("special", "topk=100", "--queries 16 --rows 2600 --data special --windows random "
          "--strided", schedules=2),
    check("gaussian", "topk=700", "--queries 8 --rows 4500 --windows causal", schedules=2),
    # First and last elements of windows, and of those that are short.
    check("first", "topk=100", "--queries 12 --rows 2500 --data decreasing --windows random --strided",
          schedules=1),
    check("last", "topk=100", "--queries 12 --rows 2500 --data increasing --windows random --strided",
          schedules=1),
    check("short", "topk=700", "--queries 16 --rows 650 --data special --windows random --values "
          "--strided", schedules=1),
    check("one", "topk=1", "--queries 3 --rows 2600 --strided", schedules=2),
    check("equal", "topk=700", "--queries 2 --rows 9000 --data equal", schedules=2),
    check("levels", "topk=700", "--queries 3 --rows 5001 --data levels --windows random", schedules=2),
    check("negative", "topk=700", "--queries 2 --rows 5000 --data negative", schedules=2),
    # More zeros of both signs than the list has room for; numbers of which none is between two.
    check("zeros", "topk=100", "--queries 2 --rows 9000 --data negative", schedules=1),
    check("adjacent", "topk=100", "--queries 4 --rows 5000 --data adjacent", schedules=1),
    check("adjacent-few", "topk=100", "--queries 4 --rows 2200 --data adjacent", schedules=1),
    # Rows whose first element is among those from which the last wanted one is ranked.
    check("adjacent-first", "topk=700", "--queries 8 --rows 2200 --data adjacent", schedules=1),
    check("adjacent-zeros", "topk=2048", "--queries 1 --rows 4500 --data adjacent", schedules=1),
    # Windows that the list has room for, of equal elements: of two neighbours one is the last wanted.
    check("equal-odd", "topk=701", "--queries 1 --rows 3000 --data equal", schedules=1),
    # Keys so small that entries are below what counts look like.
    check("lowest", "topk=700", "--queries 48 --rows 1000 --data lowest", schedules=1),
    # One element in the last block, the largest.
    check("edge", "topk=100", "--queries 1 --rows 2049 --data increasing", schedules=1),
    check("decoy", "topk=700", "--queries 2 --rows 6000 --data decoy", schedules=1),
    # A plateau that turns out to have too few elements; windows that fill the list to its last entry.
    check("plateau", "topk=700", "--queries 2 --rows 6000 --data plateau", schedules=1),
    check("filled", "topk=100", "--queries 2 --rows 2048", schedules=1),
    check("score", "topk=70,order=score", "--queries 6 --rows 2500 --data bf16 --windows random --values",
          schedules=2),
    check("score-levels", "topk=70,order=score", "--queries 2 --rows 2500 --data levels",
          schedules=2),
    # Windows that are chosen whole are sorted, too.
    check("score-short", "topk=700,order=score", "--queries 6 --rows 650 --windows random", schedules=1),
    # A warp a row: windows that begin at any element and end in any vector, pinned entries, groups.
    check("warps", "topk=40,groups=2,pinned=3", "--queries 12 --rows 1001 --data special --windows random --values "
          "--strided", "warps", schedules=1),
    check("warps-equal", "topk=64", "--queries 4 --rows 1024 --data levels --windows causal", "warps", schedules=1),
    # Lists of rows, pinned entries, groups.
    check("rows", "topk=60,groups=2,pinned=5,expand=4,tail=1", "--queries 12 --rows 300 --windows random --values "
          "--strided", schedules=1),
    check("rows-limit", "topk=30,expand=8,tail=1", "--queries 16 --rows 200 --windows random", schedules=1),
    check("rows-bf16", "topk=100,dtype=bf16,expand=2", "--queries 4 --rows 2601 --windows random --strided",
          schedules=1),
    # Every tensor's every dimension reaches past 2^32 elements.
    check("far", "topk=80", "--far --queries 5 --rows 300 --windows random --values", schedules=1),
    # More samples than the least.
    check("more", "topk=100,samples=256", "--queries 2 --rows 17000", schedules=1),
    # Longer than the map.
    check("long", "topk=600", "--queries 1 --rows 420001 --data levels --values", "merge", arch="sm_86",
          schedules=1),
    # The last elements of the longest map, whose pairs are shared out among the threads as evenly as can be.
    check("merge-map", "topk=100", "--queries 1 --rows 492000 --data increasing", "merge", schedules=1),
    check("merge-levels", "topk=100", "--queries 1 --rows 33001 --data levels --values", "merge",
          schedules=2),
    check("merge-gaussian", "topk=700", "--queries 2 --rows 33000", "merge", schedules=1),
    check("merge-increasing", "topk=2000", "--queries 1 --rows 40000 --data increasing", "merge",
          schedules=1),
    check("merge-decoy", "topk=700", "--queries 1 --rows 33000 --data decoy", "merge", schedules=1),
    # More than the list has room for, of parts that have room for theirs.
    check("merge-over", "topk=700", "--queries 2 --rows 32768 --data decoy", "merge", schedules=1,
          variables={"SMELT_EMU_MULTIPROCESSORS": "4"}),
    # One part whose list is too short, though all together the list has room for.
    check("merge-gaps", "topk=4096", "--queries 1 --rows 57268 --data decreasing", "merge", schedules=1),
    # As many parts as there can be: a thread each.
    check("merge-most", "topk=100", "--queries 1 --rows 2097152 --data levels", "merge", schedules=1,
          variables={"SMELT_EMU_MULTIPROCESSORS": "128"}),
    # A row of 511 equal elements, as many as are ranked at once, and of one more.
    check("merge-few", "topk=510", "--queries 16 --rows 32768 --data equal --windows random", "merge",
          schedules=1, variables={"SMELT_EMU_MULTIPROCESSORS": "8"}),
    check("merge-few-more", "topk=511", "--queries 16 --rows 32768 --data equal --windows random", "merge",
          schedules=1, variables={"SMELT_EMU_MULTIPROCESSORS": "8"}),
    # The first row's window is as long as the list, so that no part looks at it: under the fourth
    # schedule what stands in its headers would do.
    check("merge-alone", "topk=3", "--queries 3 --rows 36864 --windows causal", "merge"),
    check("parts", "topk=100", "--queries 3 --rows 33001 --data levels --windows causal",
          "parts", schedules=3),
    # The last part of a row has more than its list holds.
    check("parts-decoy", "topk=700", "--queries 2 --rows 33000 --data decoy", "parts", schedules=1),
    # Parts of six blocks, of which the first one's elements fill its list to the last entry.
    check("parts-full", "topk=4096", "--queries 1 --rows 600000 --data decreasing", "parts", schedules=1,
          variables={"SMELT_EMU_MULTIPROCESSORS": "24"}),
)
