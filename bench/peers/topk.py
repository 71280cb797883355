#!/usr/bin/env python3
"""Times topk_select beside torch.topk and cuDNN Frontend's indexer_top_k_wrapper, in turn, in one
process, and checks every row of smelt's results.

    python3 bench/peers/topk.py [--shapes KxTxS[,...]] [--data NAME,...] [--knobs KNOBS]...
                                [--library PATH]... [--rounds N] [--smelt-only]

A shape 2048x4096x32768 selects 2048 of each of 4096 rows of 32768 columns. Without --shapes the first
of the table below takes every kind of data, the others gaussian alone. Several --knobs, or builds of
the library, are several contenders. "wrong" counts rows that are not what a sort of the (value, -index) pairs gives.

cuDNN's and torch's ties may be any; torch's result is by score. Exit status: 0; 1 when a row is
wrong; 3 when there is no GPU.
"""

import argparse
import pathlib
import statistics
import sys

import smelt_library

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHAPES = "2048x4096x32768,512x8192x8192,2048x512x131072,2048x1x1048576,2048x128x262144"
KINDS = (
    "gaussian equal zeros negative narrow increasing decreasing correlated bf16 levels periodic "
    "special causal"
).split()
WARM_UPS = 2
CHUNK = 1 << 24  # elements that are checked at a time

torch = None  # imported in main


def make(kind, tokens, columns):
    """Rows of scores, and where each window ends."""
    generator = torch.Generator(device="cuda").manual_seed(7)
    shape = (tokens, columns)
    ends = torch.full((tokens,), columns, dtype=torch.int32, device="cuda")
    column = torch.arange(columns, device="cuda", dtype=torch.float32).expand(shape)
    row = torch.arange(tokens, device="cuda", dtype=torch.float32)[:, None]
    normal = torch.randn(shape, generator=generator, device="cuda")
    if kind == "equal":
        normal = torch.full(shape, 0.75, device="cuda")
    elif kind in ("zeros", "negative"):
        which = torch.randint(0, 4, shape, generator=generator, device="cuda")
        if kind == "negative":
            normal = -normal.abs()
            normal[which == 1] = -0.0
        normal[which == 0] = 0.0
        if kind == "zeros":
            normal[which == 1] = 0.0
    elif kind == "narrow":
        normal = 1 + 0.01 * torch.rand(shape, generator=generator, device="cuda")
    elif kind == "increasing":
        normal = (column * 0.37 - 5000).contiguous()
    elif kind == "decreasing":
        normal = (5000 - column * 0.37).contiguous()
    elif kind == "correlated":
        normal = (
            torch.sin(column * 0.0113 + row) * 2
            + torch.sin(column * 0.00071 * (1 + row % 7))
            + 0.05 * normal
        )
    elif kind == "bf16":
        normal = normal.bfloat16().float()
    elif kind == "levels":
        normal = normal.round()
    elif kind == "periodic":
        last = (column % 32 == 31).float()
        normal = column % 32 + last * 0.001 * normal
    elif kind == "special":
        which = torch.randint(0, 100, shape, generator=generator, device="cuda")
        normal[which < 30] = float("nan")
        normal[(which >= 30) & (which < 60)] = float("-inf")
        normal[which == 60] = float("inf")
        bits = torch.randint(-(2**31), 2**31, shape, generator=generator, device="cuda")
        normal[1::3] = bits.int().view(torch.float32)[1::3]
        normal[2::3] = float("nan")
    elif kind == "causal":
        ends = torch.div(
            (torch.arange(tokens, device="cuda") + 1) * columns, tokens, rounding_mode="floor"
        ).int()
    return normal.contiguous(), ends


def expected(scores, ends, topk):
    """Ascending columns of the selection of each row, -1 in the rest."""
    columns = scores.shape[1]
    bits = torch.where(scores.isnan(), float("-inf"), scores).add(0.0).view(torch.int32).long()
    keys = torch.where(bits < 0, -1 - (bits & 0x7FFFFFFF), bits)
    index = torch.arange(columns, device="cuda")
    pairs = (keys << 31) + (columns - 1 - index)
    pairs = torch.where(index < ends[:, None], pairs, torch.iinfo(torch.int64).min)
    top = min(topk, columns)
    best = pairs.topk(top, dim=1).indices
    best = torch.where(pairs.gather(1, best) > torch.iinfo(torch.int64).min, best, columns)
    best = best.sort(dim=1).values
    best = torch.where(best < columns, best, -1).int()
    return torch.nn.functional.pad(best, (0, topk - top), value=-1)


def count_wrong(scores, ends, topk, results):
    """Wrong rows of each result."""
    wrong, step = [0] * len(results), max(1, CHUNK // scores.shape[1])
    for first in range(0, scores.shape[0], step):
        rows = slice(first, first + step)
        right = expected(scores[rows], ends[rows], topk)
        for i, indices in enumerate(results):
            wrong[i] += int((right != indices[rows]).any(dim=1).sum())
    return wrong


class Smelt:
    def __init__(self, library, topk, knobs, build=""):
        self.name = "smelt" + build + (f" {knobs}" if knobs else "")
        text = f"topk_select:topk={topk}" + (f",{knobs}" if knobs else "")
        self.operator = smelt_library.Operator(library, text)
        self.topk = topk

    def prepare(self, scores, ends, windows):
        self.indices = torch.full(
            (scores.shape[0], self.topk), -2, dtype=torch.int32, device="cuda"
        )
        begins = torch.zeros_like(ends)
        args = smelt_library.with_size(smelt_library.TopkSelectArgs)
        args.tokens, args.rows = scores.shape
        args.logits.data = scores.data_ptr()
        if windows:
            args.window_begin.data, args.window_end.data = begins.data_ptr(), ends.data_ptr()
        args.indices.data = self.indices.data_ptr()
        args.workspace_bytes = self.operator.workspace(args)
        self.workspace = torch.empty(max(args.workspace_bytes, 1), dtype=torch.uint8, device="cuda")
        args.workspace = self.workspace.data_ptr()
        self.args, self.keep = args, (scores, begins, ends)

    def run(self):
        self.operator.launch(self.args, torch.cuda.current_stream().cuda_stream)


class Torch:
    name = "torch"

    def __init__(self, topk):
        self.topk = topk

    def prepare(self, scores, ends, windows):
        self.scores = scores

    def run(self):
        torch.topk(self.scores, self.topk, dim=1)


class Cudnn:
    def __init__(self, topk, **options):
        import cudnn

        self.wrapper, self.topk, self.options = cudnn.DSA.indexer_top_k_wrapper, topk, options
        self.name = "cudnn" + "".join(f" {key}" for key in options)

    def prepare(self, scores, ends, windows):
        self.scores, self.ends = scores, ends

    def run(self):
        self.wrapper(
            self.scores, self.ends, top_k=self.topk, next_n=1, return_val=False, **self.options
        )


def median_ms(contenders, rounds):
    """Medians of launches in turn; None for one that fails."""
    events = {c: [] for c in contenders}
    failed = set()
    for turn in range(-WARM_UPS, rounds):
        for contender in contenders:
            if contender in failed:
                continue
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            try:
                begin.record()
                contender.run()
                end.record()
            except Exception as error:  # pylint: disable=broad-except
                print(f"# {contender.name}: {type(error).__name__}: {str(error)[:300]}")
                failed.add(contender)
                continue
            if turn >= 0:
                events[contender].append((begin, end))
    torch.cuda.synchronize()
    return {
        c: statistics.median(b.elapsed_time(e) for b, e in found) if found else None
        for c, found in events.items()
    }


def peers_of(topk):
    found = [Torch(topk)]
    try:
        found.append(Cudnn(topk))
        import inspect

        names = inspect.signature(found[-1].wrapper).parameters
        if "deterministic" in names:
            found.append(Cudnn(topk, deterministic=True))
    except Exception as error:  # pylint: disable=broad-except
        print(f"# no cuDNN: {type(error).__name__}: {str(error)[:300]}")
    return found


def main():
    global torch
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", action="append")
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--data", default="")
    parser.add_argument("--knobs", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--smelt-only", action="store_true")
    options = parser.parse_args()
    import torch as imported

    torch = imported
    if not torch.cuda.is_available():
        print("no GPU", file=sys.stderr)
        return 3
    torch.cuda.init()
    torch.empty(1, device="cuda")
    paths = options.library or [str(ROOT / "build" / "libsmelt.so")]
    libraries = [smelt_library.Library(path) for path in paths]
    for library in libraries:
        library.make_context()
    builds = [f" {i}" if len(libraries) > 1 else "" for i in range(len(libraries))]
    print(
        f"# {torch.cuda.get_device_name()}, torch {torch.__version__}, "
        f"smelt {libraries[0].version}"
    )
    wrong = 0
    for number, shape in enumerate(options.shapes.split(",")):
        topk, tokens, columns = (int(part) for part in shape.split("x"))
        kinds = options.data.split(",") if options.data else KINDS if number == 0 else KINDS[:1]
        mine = [
            Smelt(library, topk, knobs, build)
            for library, build in zip(libraries, builds)
            for knobs in options.knobs or [""]
        ]
        contenders = mine + ([] if options.smelt_only else peers_of(topk))
        print(f"{shape:24} " + " ".join(f"{c.name:>20}" for c in contenders) + "  wrong")
        for kind in kinds:
            scores, ends = make(kind, tokens, columns)
            for contender in contenders:
                contender.prepare(scores, ends, kind == "causal")
            times = median_ms(contenders, options.rounds)
            bad = count_wrong(scores, ends, topk, [c.indices for c in mine])
            wrong += sum(bad)
            shown = " ".join(
                f"{times[c]:20.4f}" if times[c] is not None else f"{'-':>20}" for c in contenders
            )
            print(f"{kind:24} {shown}  {' '.join(map(str, bad))}", flush=True)
            del scores
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
