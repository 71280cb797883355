#!/usr/bin/env python3
"""Times indexer_logits beside DeepGEMM's fp8_mqa_logits and cuDNN Frontend's indexer forward, in turn,
in one process, and compares their logits.

    python3 bench/peers/indexer.py [--rows NAME,...] [--deep-gemm FOLDER] [--knobs KNOBS]...
                                   [--library PATH]... [--rounds N] [--smelt-only]

A row's name says its shape: fp8-h64-16384-causal is e4m3, 64 heads, 16384 queries and as many keys,
windows up to a query's own; bf16-h32-4096x8192-full has 4096 queries, 8192 keys and windows of all of
them. FOLDER holds DeepGEMM's cubins (bench/peers/deep_gemm.py). It is timed with its clean pass and
without; cuDNN masks by itself. Several --knobs, or builds of the library, are several contenders.

TFLOP/s counts 2 * H * 128 for every pair of a query and a key in its window. "off" is the largest
difference from smelt's first contender in any window, over the largest logit, and "finite" the logits
outside of windows that are not -inf in smelt's. Exit status: 0; 1 when smelt has finite ones or is off
by more than rounding; 3 when there is no GPU.
"""

import argparse
import pathlib
import re
import statistics
import sys

import deep_gemm
import smelt_library

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROWS = """fp8-h64-16384-causal,fp8-h32-16384-causal,fp8-h64-4096x8192-full,fp8-h32-4096x8192-full,
bf16-h64-16384-causal,bf16-h32-16384-causal,bf16-h64-4096x8192-full,bf16-h32-4096x8192-full,
fp8-h16-16384-causal,fp8-h8-16384-causal"""
DIM = 128
WARM_UPS = 2
DIFFERENT = 1e-2  # of the largest logit: cuDNN's fp8 takes other roundings
DEEP_GEMM_HEADS, CUDNN_HEADS = (32, 64), {"fp8": (32, 64), "bf16": (16, 32, 64)}

torch = None  # imported in main


class Row:
    def __init__(self, name):
        match = re.fullmatch(r"(fp8|bf16)-h(\d+)-(\d+)(?:x(\d+))?-(causal|full)", name)
        if not match:
            raise ValueError(f"{name}: expected fp8-h64-16384-causal or the like")
        self.name, self.dtype, self.windows = name, match[1], match[5]
        self.heads, self.tokens = int(match[2]), int(match[3])
        self.keys = int(match[4] or match[3])

    def make(self):
        """Inputs; what a query is multiplied by is in the weights."""
        generator = torch.Generator(device="cuda").manual_seed(3)
        q = torch.randn(self.tokens, self.heads, DIM, device="cuda", generator=generator)
        k = torch.randn(self.keys, DIM, device="cuda", generator=generator)
        self.weights = torch.randn(self.tokens, self.heads, device="cuda", generator=generator)
        self.scale = None
        if self.dtype == "fp8":
            self.scale = k.abs().amax(dim=1) / 448
            self.q = (q * 100).clamp(-448, 448).to(torch.float8_e4m3fn)
            self.k = (k / self.scale[:, None]).to(torch.float8_e4m3fn)
        else:
            self.q, self.k = q.bfloat16(), k.bfloat16()
        query = torch.arange(self.tokens, device="cuda", dtype=torch.int32)
        full = torch.full_like(query, self.keys)
        self.ends = full if self.windows == "full" else query + 1 + self.keys - self.tokens
        self.begins = torch.zeros_like(query)
        self.flops = 2 * self.heads * DIM * int(self.ends.sum(dtype=torch.int64))


class Smelt:
    def __init__(self, library, row, knobs, build=""):
        text = f"indexer_logits:heads={row.heads},dim={DIM},dtype={row.dtype}"
        self.name = " ".join(word for word in ("smelt", build, knobs) if word)
        self.operator = smelt_library.Operator(library, text + (f",{knobs}" if knobs else ""))
        self.logits = torch.full((row.tokens, row.keys), float("nan"), device="cuda")
        args = smelt_library.with_size(smelt_library.IndexerLogitsArgs)
        args.tokens, args.rows = row.tokens, row.keys
        for field, tensor in (
            ("q", row.q),
            ("k", row.k),
            ("weights", row.weights),
            ("k_scale", row.scale),
            ("window_begin", row.begins),
            ("window_end", row.ends),
            ("logits", self.logits),
        ):
            if tensor is not None:
                getattr(args, field).data = tensor.data_ptr()
        self.args = args

    def run(self):
        self.operator.launch(self.args, torch.cuda.current_stream().cuda_stream)


class DeepGemm:
    def __init__(self, kernels, row, clean):
        self.name = "deep_gemm" + (" + clean" if clean else "")
        self.call = deep_gemm.Logits(
            kernels, torch, row.q, row.k, row.scale, row.weights, row.begins, row.ends, clean
        )
        self.logits = self.call.logits

    def run(self):
        self.call.run(torch.cuda.current_stream().cuda_stream)


class Cudnn:
    name = "cudnn"

    def __init__(self, row):
        import cudnn

        self.wrapper = cudnn.DSA.indexer_forward_wrapper
        self.options = {"ratio": 1}
        last = row.keys if row.windows == "full" else row.keys - row.tokens
        if last:
            self.options["q_causal_offsets"] = torch.full(
                (1,), last, dtype=torch.int32, device="cuda"
            )
        if row.dtype == "fp8":
            self.options["precision"] = "fp8"
            ones = torch.ones(1, row.tokens, row.heads, device="cuda")
            self.options.update(q_scale=ones, k_scale=row.scale.view(1, -1, 1))
        self.logits = torch.empty(row.tokens, row.keys, device="cuda")
        self.options["out"] = self.logits[None]
        self.inputs = row.q[None], row.k[None, :, None], row.weights[None]

    def run(self):
        self.wrapper(*self.inputs, **self.options)


def contenders_of(row, libraries, kernels, options):
    found = [
        Smelt(library, row, knobs, path if len(libraries) > 1 else "")
        for path, library in libraries.items()
        for knobs in options.knobs or [""]
    ]
    makers = []
    if kernels and row.dtype == "fp8" and row.heads in DEEP_GEMM_HEADS:
        makers += [lambda: DeepGemm(kernels, row, True), lambda: DeepGemm(kernels, row, False)]
    if not options.smelt_only and row.heads in CUDNN_HEADS[row.dtype]:
        makers.append(lambda: Cudnn(row))
    for make in makers:
        try:
            contender = make()
            contender.run()
            torch.cuda.synchronize()
            found.append(contender)
        except Exception as error:  # pylint: disable=broad-except
            print(f"# {row.name}: {type(error).__name__}: {str(error)[:300]}")
    return found


def median_ms(contenders, rounds):
    """Medians of launches in turn, the host not waiting in between."""
    events = [[] for _ in contenders]
    for turn in range(-WARM_UPS, rounds):
        for found, contender in zip(events, contenders):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            contender.run()
            end.record()
            if turn >= 0:
                found.append((begin, end))
    torch.cuda.synchronize()
    return [statistics.median(b.elapsed_time(e) for b, e in found) for found in events]


def compare(row, contenders):
    """How far the others are from the first; the first's finite logits outside of windows."""
    largest, finite, off = 0.0, 0, [0.0] * len(contenders)
    columns = torch.arange(row.keys, device="cuda", dtype=torch.int32)
    step = max(1, (1 << 26) // row.keys)
    for first in range(0, row.tokens, step):
        part = slice(first, first + step)
        inside = (columns >= row.begins[part, None]) & (columns < row.ends[part, None])
        mine = contenders[0].logits[part]
        finite += int((~inside & (mine != float("-inf"))).sum())
        mine = torch.where(inside, mine, 0.0)
        largest = max(largest, float(mine.abs().max()))
        for i, contender in enumerate(contenders):
            other = torch.where(inside, contender.logits[part], 0.0)
            off[i] = max(off[i], float((mine - other).abs().max()))
    return [d / largest for d in off], finite


def show(row, contenders, times, off, finite):
    print(f"{row.name}: {finite} finite outside of windows")
    for contender, ms, difference in zip(contenders, times, off):
        print(
            f"  {contender.name:28} {ms:9.4f} ms {row.flops / ms / 1e9:8.1f} TFLOP/s "
            f"{ms / times[0]:7.3f} x  off {difference:.1e}",
            flush=True,
        )


def main():
    global torch
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", action="append")
    parser.add_argument("--rows", default=ROWS)
    parser.add_argument("--deep-gemm", help="folder of cubins")
    parser.add_argument("--knobs", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--smelt-only", action="store_true")
    options = parser.parse_args()
    import torch as imported

    torch = imported
    if not torch.cuda.is_available():
        print("no GPU", file=sys.stderr)
        return 3
    torch.empty(1, device="cuda")
    paths = options.library or [str(ROOT / "build" / "libsmelt.so")]
    libraries = {path: smelt_library.Library(path) for path in paths}
    for library in libraries.values():
        library.make_context()
    kernels = deep_gemm.Kernels(options.deep_gemm) if options.deep_gemm else None
    print(f"# {torch.cuda.get_device_name()}, torch {torch.__version__}, smelt {library.version}")
    wrong = False
    for name in options.rows.replace("\n", "").split(","):
        row = Row(name)
        row.make()
        contenders = contenders_of(row, libraries, kernels, options)
        times = median_ms(contenders, options.rounds)
        off, finite = compare(row, contenders)
        show(row, contenders, times, off, finite)
        wrong |= finite > 0 or not max(off) < DIFFERENT
        del contenders, row
        torch.cuda.empty_cache()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
