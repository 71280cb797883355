#!/usr/bin/env python3
"""Times sparse_scores beside cuDNN Frontend's sparse_attn_score_recompute_wrapper, in turn, in one
process, and checks sampled rows of both against PyTorch in double precision.

    python3 bench/peers/sparse_scores.py [--library PATH]... [--shapes HxDQKxTOPKxTxS[,...]]
                                         [--lists random|drift] [--knobs KNOBS]... [--rounds N]
                                         [--rest MS[,...]] [--smelt-only]

A shape 64x576x2048x8192x8192 has 64 heads, rows of 576 columns, 2048 slots, 8192 queries, 8192 KV
rows. drift: each query keeps 90 % of its predecessor's slots. Several --knobs are several contenders,
and so are several libraries; one that a shape does not take has no time there. --rest lets the chip
cool for so many milliseconds after each launch: without it the chip is at its power limit from the
first rounds on. Several rests (0,25) are several lines.

cuDNN's result is divided by each query's sum, smelt's is not: rows are compared after division. The
last columns are the largest errors over sampled queries, relative to the query's sum.

Exit status: 0; 1 when an error is above 1e-4; 3 when there is no GPU.
"""

import argparse
import math
import pathlib
import statistics
import sys
import time

import smelt_library

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHAPES = (
    "64x576x2048x8192x8192,128x576x2048x8192x8192,32x576x2048x8192x8192,16x576x2048x8192x8192,"
    "8x576x2048x8192x8192"
)
WARM_UPS = 3
SAMPLE = 16  # queries that are compared
TOLERANCE = 1e-4

torch = None  # imported in main


def make_lists(kind, tokens, rows, topk):
    """Distinct slots of each query."""
    generator = torch.Generator(device="cuda").manual_seed(5)
    noise = torch.rand((tokens, rows), generator=generator, device="cuda", dtype=torch.float32)
    if kind == "random":
        return noise.topk(topk, dim=1).indices.int().contiguous()
    lists = torch.empty((tokens, topk), dtype=torch.int32, device="cuda")
    chosen = torch.zeros(rows, dtype=torch.bool, device="cuda")
    chosen[noise[0].topk(topk).indices] = True
    leaving = topk // 10
    for token in range(tokens):
        if token > 0:
            inside = torch.where(chosen, noise[token], -1.0).topk(leaving).indices
            outside = torch.where(chosen, -1.0, noise[token]).topk(leaving).indices
            chosen[inside] = False
            chosen[outside] = True
        lists[token] = chosen.nonzero()[:, 0]
    return lists


class Inputs:
    def __init__(self, heads, dqk, topk, tokens, rows, kind):
        generator = torch.Generator(device="cuda").manual_seed(3)

        def normal(*shape):
            return torch.randn(shape, generator=generator, device="cuda").bfloat16()

        self.heads, self.dqk, self.topk, self.tokens, self.rows = heads, dqk, topk, tokens, rows
        self.scale = 1 / math.sqrt(dqk)
        self.q, self.kv = normal(1, tokens, heads, dqk), normal(1, rows, dqk)
        self.lists = make_lists(kind, tokens, rows, topk)[None]
        # Near the true one, which costs a forward pass: what is computed is the same for any.
        self.lse = torch.full((1, tokens, heads), math.log(topk) + 0.5, device="cuda")

    def error(self, target):
        """Of sampled rows, each divided by its sum."""
        worst = 0.0
        for token in torch.linspace(0, self.tokens - 1, SAMPLE).long().tolist():
            keys = self.kv[0, self.lists[0, token].long()].double()
            scores = self.q[0, token].double() @ keys.T * self.scale
            right = torch.exp(scores - self.lse[0, token, :, None].double()).sum(0)
            got = target[0, token].double()
            worst = max(worst, float((got / got.sum() - right / right.sum()).abs().max()))
        return worst


class Smelt:
    def __init__(self, library, knobs):
        self.library, self.knobs = library, knobs
        self.name = library.name + (f" {knobs}" if knobs else "")

    def prepare(self, inputs):
        text = (
            f"sparse_scores:heads={inputs.heads},dqk={inputs.dqk},dv={inputs.dqk // 128 * 128},"
            f"topk={inputs.topk}" + (f",{self.knobs}" if self.knobs else "")
        )
        self.operator = smelt_library.Operator(self.library, text)
        self.target = torch.full((1, inputs.tokens, inputs.topk), math.nan, device="cuda")
        args = smelt_library.with_size(smelt_library.SparseScoresArgs)
        args.tokens, args.rows, args.width = inputs.tokens, inputs.rows, inputs.topk
        args.scale = inputs.scale
        args.q.data, args.kv.data = inputs.q.data_ptr(), inputs.kv.data_ptr()
        args.indices.data, args.lse.data = inputs.lists.data_ptr(), inputs.lse.data_ptr()
        args.target.data = self.target.data_ptr()
        self.args = args

    def run(self):
        self.operator.launch(self.args, torch.cuda.current_stream().cuda_stream)


class Cudnn:
    name = "cudnn"

    def __init__(self):
        import cudnn

        self.wrapper = cudnn.DSA.sparse_attn_score_recompute_wrapper

    def prepare(self, inputs):
        self.inputs = inputs
        self.target = torch.full((1, inputs.tokens, inputs.topk), math.nan, device="cuda")

    def run(self):
        inputs = self.inputs
        self.wrapper(
            inputs.q,
            inputs.kv,
            inputs.lse,
            inputs.lists,
            softmax_scale=inputs.scale,
            out=self.target,
        )


def attempt(contender, call):
    """Whether that could be done; says why not."""
    try:
        call()
        return True
    except Exception as error:  # pylint: disable=broad-except
        print(f"# {contender.name}: {type(error).__name__}: {str(error)[:300]}")
        return False


def median_ms(contenders, rounds, rest):
    """Medians of launches in turn; without those that fail."""
    events = {c: [] for c in contenders}
    for turn in range(-WARM_UPS, rounds):
        for contender in list(events):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            done = attempt(contender, contender.run)
            end.record()
            if not done:
                del events[contender]
                continue
            if rest:
                torch.cuda.synchronize()
                time.sleep(rest / 1000)
            if turn >= 0:
                events[contender].append((begin, end))
    torch.cuda.synchronize()
    return {
        c: statistics.median(b.elapsed_time(e) for b, e in found) for c, found in events.items()
    }


def time_shape(shape, contenders, options):
    """One shape's lines; how many results of smelt's are wrong."""
    wrong = 0
    inputs = Inputs(*(int(part) for part in shape.split("x")), options.lists)
    ready = [c for c in contenders if attempt(c, lambda: c.prepare(inputs))]
    for rest in options.rest.split(","):
        times = median_ms(ready, options.rounds, float(rest))
        shown, errors = "", ""
        for contender in contenders:
            ran = contender in times
            error = inputs.error(contender.target) if ran else math.nan
            wrong += ran and isinstance(contender, Smelt) and not error <= TOLERANCE
            shown += f" {times[contender]:34.4f}" if ran else f" {'-':>34}"
            errors += f" {error:.1e}"
        print(f"{shape + ' rest ' + rest:34}{shown}  {errors}", flush=True)
    return wrong


def main():
    global torch
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", action="append", default=[])
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--lists", default="random", choices=("random", "drift"))
    parser.add_argument("--knobs", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--rest", default="0")
    parser.add_argument("--smelt-only", action="store_true")
    options = parser.parse_args()
    import torch as imported

    torch = imported
    if not torch.cuda.is_available():
        print("no GPU", file=sys.stderr)
        return 3
    torch.cuda.init()
    torch.empty(1, device="cuda")
    libraries = []
    for path in options.library or [str(ROOT / "build" / "libsmelt.so")]:
        libraries.append(smelt_library.Library(path))
        libraries[-1].make_context()
        libraries[-1].name = pathlib.Path(path).stem if len(options.library) > 1 else "smelt"
    version = libraries[0].version
    print(f"# {torch.cuda.get_device_name()}, torch {torch.__version__}, smelt {version}")
    contenders = [Smelt(lib, knobs) for lib in libraries for knobs in options.knobs or [""]]
    if not options.smelt_only:
        try:
            contenders.append(Cudnn())
        except Exception as error:  # pylint: disable=broad-except
            print(f"# no cuDNN: {type(error).__name__}: {str(error)[:300]}")
    print(f"{'ms; errors':34}" + " ".join(f"{c.name:>34}" for c in contenders))
    wrong = sum(time_shape(shape, contenders, options) for shape in options.shapes.split(","))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
