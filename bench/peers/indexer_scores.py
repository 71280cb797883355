#!/usr/bin/env python3
"""Times indexer_scores beside cuDNN Frontend's sparse_indexer_score_recompute_wrapper, in turn, in one
process, and compares smelt's logits with double precision's.

    python3 bench/peers/indexer_scores.py [--library PATH]... [--rows NAME,...] [--knobs KNOBS]...
                                          [--rounds N] [--smelt-only]

A row's name says its shape: h64-8192-random has 64 heads, 8192 queries and as many keys, 2048 random ones
a query; drift: nine in ten of them are those of the query before. Several --knobs are several contenders,
and so are several libraries.
cuDNN goes on to the softmax over a query's slots and takes bf16 weights; smelt gets the same numbers.

"off" is the largest difference of a sampled query's results from double precision, of smelt's logits over
the sum of the sizes of their terms, of cuDNN's probabilities over the largest of them. Exit status: 0; 1
when smelt is off by more than 1e-5; 3 when there is no GPU.
"""

import argparse
import pathlib
import re
import sys

import indexer
import smelt_library

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROWS = "h64-8192-random,h32-8192-random,h16-8192-random,h8-8192-random,h64-8192-drift,h32-8192-drift"
DIM, TOPK = indexer.DIM, 2048
SAMPLE = 16  # queries
TOLERANCE = 1e-5

torch = None  # imported in main


class Row:
    def __init__(self, name):
        match = re.fullmatch(r"h(\d+)-(\d+)-(random|drift)", name)
        if not match:
            raise ValueError(f"{name}: expected h64-8192-random or the like")
        self.name, self.heads, self.tokens = name, int(match[1]), int(match[2])
        self.drift = match[3] == "drift"

    def make(self):
        generator = torch.Generator(device="cuda").manual_seed(3)
        normal = {"device": "cuda", "generator": generator}
        self.q = torch.randn(self.tokens, self.heads, DIM, **normal).bfloat16()
        self.k = torch.randn(self.tokens, DIM, **normal).bfloat16()
        self.weights = (torch.randn(self.tokens, self.heads, **normal) / 100).bfloat16().float()
        order = torch.rand(self.tokens, self.tokens, **normal).argsort(dim=1)[:, :TOPK].int()
        if self.drift:
            fresh = torch.rand(self.tokens, TOPK, **normal) < 0.1
            for query in range(1, self.tokens):
                order[query] = torch.where(fresh[query], order[query], order[query - 1])
        self.indices = order.contiguous()
        self.flops = 2 * self.heads * DIM * self.tokens * TOPK
        self.bytes = 2 * DIM * self.tokens * TOPK

    def expected(self, query):
        """Logits of a query's slots, and the sizes of their terms, in double precision."""
        keys, q = self.k[self.indices[query].long()].double(), self.q[query].double()
        weights = self.weights[query].double()
        logits = (q @ keys.T).clamp(min=0).mul(weights[:, None]).sum(dim=0)
        return logits, (q.abs() @ keys.abs().T).mul(weights.abs()[:, None]).sum(dim=0)


class Smelt:
    def __init__(self, library, row, knobs):
        text = f"indexer_scores:heads={row.heads},dim={DIM},topk={TOPK}"
        self.name = library.name + (f" {knobs}" if knobs else "")
        self.operator = smelt_library.Operator(library, text + (f",{knobs}" if knobs else ""))
        self.logits = torch.full((row.tokens, TOPK), float("nan"), device="cuda")
        args = smelt_library.with_size(smelt_library.IndexerScoresArgs)
        args.tokens, args.rows, args.width = row.tokens, row.tokens, TOPK
        for field, tensor in (
            ("q", row.q),
            ("k", row.k),
            ("weights", row.weights),
            ("indices", row.indices),
            ("logits", self.logits),
        ):
            getattr(args, field).data = tensor.data_ptr()
        self.args = args

    def run(self):
        self.operator.launch(self.args, torch.cuda.current_stream().cuda_stream)

    def off(self, query, logits, sizes):
        return float(((self.logits[query].double() - logits).abs() / sizes).max())


class Cudnn:
    name = "cudnn"

    def __init__(self, row):
        import cudnn

        self.wrapper = cudnn.DSA.sparse_indexer_score_recompute_wrapper
        self.inputs = row.q[None], row.k[None], row.weights.bfloat16()[None], row.indices[None]
        self.out = torch.empty(1, row.tokens, TOPK, device="cuda")

    def run(self):
        self.wrapper(*self.inputs, out=self.out)

    def off(self, query, logits, _):
        right = logits.softmax(dim=0)
        return float((self.out[0, query].double() - right).abs().max() / right.max())


def contenders_of(row, libraries, options):
    found = [Smelt(lib, row, knobs) for lib in libraries for knobs in options.knobs or [""]]
    if options.smelt_only:
        return found
    try:
        peer = Cudnn(row)
        peer.run()
        torch.cuda.synchronize()
        found.append(peer)
    except Exception as error:  # pylint: disable=broad-except
        print(f"# {row.name}: {type(error).__name__}: {str(error)[:300]}")
    return found


def compare(row, contenders):
    off = [0.0] * len(contenders)
    for query in range(0, row.tokens, row.tokens // SAMPLE):
        logits, sizes = row.expected(query)
        off = [max(o, c.off(query, logits, sizes)) for o, c in zip(off, contenders)]
    return off


def show(row, contenders, times, off):
    print(row.name)
    for contender, ms, difference in zip(contenders, times, off):
        print(
            f"  {contender.name:36} {ms:8.4f} ms {row.flops / ms / 1e9:7.1f} TFLOP/s "
            f"{row.bytes / ms / 1e9:6.2f} TB/s {ms / times[0]:7.3f} x  off {difference:.1e}",
            flush=True,
        )


def main():
    global torch
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", action="append", default=[])
    parser.add_argument("--rows", default=ROWS)
    parser.add_argument("--knobs", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--smelt-only", action="store_true")
    options = parser.parse_args()
    import torch as imported

    torch = indexer.torch = imported
    if not torch.cuda.is_available():
        print("no GPU", file=sys.stderr)
        return 3
    torch.empty(1, device="cuda")
    libraries = []
    for path in options.library or [str(ROOT / "build" / "libsmelt.so")]:
        libraries.append(smelt_library.Library(path))
        libraries[-1].make_context()
        libraries[-1].name = pathlib.Path(path).stem if len(options.library) > 1 else "smelt"
    print(f"# {torch.cuda.get_device_name()}, torch {torch.__version__}, smelt {libraries[0].version}")
    wrong = False
    for name in options.rows.split(","):
        row = Row(name)
        row.make()
        contenders = contenders_of(row, libraries, options)
        times = indexer.median_ms(contenders, options.rounds)
        off = compare(row, contenders)
        show(row, contenders, times, off)
        wrong |= not all(o < TOLERANCE for o, c in zip(off, contenders) if c.name != "cudnn")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
