#!/usr/bin/env python3
"""Times indexer_topk, causal, T = S, beside what there is today: DeepGEMM's or cuDNN's logits in a matrix
(DeepGEMM's with its clean pass), then cuDNN Frontend's indexer_top_k_wrapper; in turn, in one process.

    python3 bench/peers/indexer_topk.py [--rows NAME,...] [--deep-gemm FOLDER] [--rounds N] [--smelt-only]

A row's name says its shape: fp8-h64-16384-causal (see indexer.py). Over some queries, the last ones of
equal parts, "same" is the share of the keys that smelt chose which the peer chose, too: sums are rounded
differently, so that a few differ. Of the same queries "wrong" counts those whose keys are not the first
of a stable sort of smelt's own logits, which indexer_logits gives for these queries alone, and "error" is
how far those are from double precision, over the sum of the sizes of all products of a weight, a query's
and a key's elements. "memory" is what a call took beside its workspace. Exit status: 0; 1 when a query is
wrong, an error above 5e-4 or less than 0.99 the same; 3 when there is no GPU.
"""

import argparse
import pathlib
import sys

import deep_gemm
import indexer
import smelt_library
import topk

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOPK, COMPARED, LEAST_SAME = 2048, 64, 0.99
MOST_ERROR = 5e-4
ROWS = ",".join(
    f"{dtype}-h{heads}-{tokens}-causal"
    for dtype in ("fp8", "bf16")
    for heads in (32, 64)
    for tokens in (16384, 32768, 65536)
)

torch = None  # imported in main


class Smelt:
    name = "smelt"

    def __init__(self, library, row):
        text = f"indexer_topk:heads={row.heads},dim={indexer.DIM},dtype={row.dtype},topk={TOPK}"
        self.operator = smelt_library.Operator(library, text)
        self.indices = torch.empty(row.tokens, TOPK, dtype=torch.int32, device="cuda")
        args = smelt_library.with_size(smelt_library.IndexerTopkArgs)
        args.tokens, args.rows = row.tokens, row.keys
        args.causal_limit = 0 if row.windows == "full" else 1 + row.keys - row.tokens
        for field, tensor in (
            ("q", row.q),
            ("k", row.k),
            ("weights", row.weights),
            ("k_scale", row.scale),
            ("window_begin", row.begins),
            ("window_end", row.ends),
            ("indices", self.indices),
        ):
            if tensor is not None:
                getattr(args, field).data = tensor.data_ptr()
        args.workspace_bytes = self.operator.workspace(args)
        self.workspace = torch.empty(args.workspace_bytes, dtype=torch.uint8, device="cuda")
        args.workspace = self.workspace.data_ptr()
        self.args = args

    def run(self):
        self.operator.launch(self.args, torch.cuda.current_stream().cuda_stream)


class TwoSteps:
    """Logits of a peer, then cuDNN's selection."""

    def __init__(self, row, logits):
        self.logits, self.select = logits, topk.Cudnn(TOPK)
        self.name = f"{logits.name}, cudnn top-k"
        self.ends = row.ends

    def run(self):
        self.logits.run()
        self.select.prepare(self.logits.logits, self.ends, True)
        found = self.select.wrapper(
            self.logits.logits, self.ends, top_k=TOPK, next_n=1, return_val=False
        )
        self.indices = (
            found
            if torch.is_tensor(found)
            else next(
                t
                for t in (found.values() if hasattr(found, "values") else found)
                if torch.is_tensor(t) and t.dtype == torch.int32
            )
        )


def contenders_of(row, library, kernels, smelt_only):
    found = [Smelt(library, row)]
    makers = []
    if kernels and row.dtype == "fp8" and row.heads in indexer.DEEP_GEMM_HEADS:
        makers.append(lambda: indexer.DeepGemm(kernels, row, True))
    if not smelt_only and row.heads in indexer.CUDNN_HEADS[row.dtype]:
        makers.append(lambda: indexer.Cudnn(row))
    found[0].run()
    for make in makers:
        try:
            contender = TwoSteps(row, make())
            contender.run()
            torch.cuda.synchronize()
            found.append(contender)
        except Exception as error:  # pylint: disable=broad-except
            print(f"# {row.name}: {type(error).__name__}: {str(error)[:300]}")
    return found


def compared(row):
    return range(row.tokens // COMPARED - 1, row.tokens, row.tokens // COMPARED)


class Sample:
    """The compared queries of a row, with all its keys."""

    def __init__(self, row):
        queries = torch.tensor(compared(row), device="cuda")
        self.dtype, self.heads, self.keys, self.tokens = row.dtype, row.heads, row.keys, COMPARED
        self.q = row.q.view(torch.uint8)[queries].view(row.q.dtype)
        self.k, self.scale = row.k, row.scale
        self.weights, self.begins, self.ends = (
            tensor[queries].contiguous() for tensor in (row.weights, row.begins, row.ends)
        )
        self.queries = queries


def exact(row, library, indices):
    """Of the compared queries: how many are wrong, and their logits' largest error."""
    sample = Sample(row)
    scorer = indexer.Smelt(library, sample, "")
    scorer.run()
    right = topk.expected(scorer.logits, sample.ends, TOPK)
    wrong = int((right != indices[sample.queries]).any(dim=1).sum())
    error = 0.0
    k = sample.k.double()
    for i, end in enumerate(sample.ends.tolist()):
        q, weights = sample.q[i].double(), sample.weights[i].double()
        scale = 1.0 if sample.scale is None else sample.scale[:end].double()
        logits = weights @ (q @ k[:end].T).relu() * scale
        terms = weights.abs() @ (q.abs() @ k[:end].abs().T) * scale
        off = (scorer.logits[i, :end] - logits).abs()
        error = max(error, float((off / terms.clamp(min=1e-30)).max()))
    return wrong, error


def memory_taken(run):
    """MB of the device that a call took, beside what its caller holds."""
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    run()
    torch.cuda.synchronize()
    return (before - torch.cuda.mem_get_info()[0]) / 1e6


def share_same(row, mine, other):
    same = total = 0
    for query in compared(row):
        chosen = set(mine[query].tolist()) - {-1}
        same += len(chosen & set(other[query].tolist()))
        total += len(chosen)
    return same / total


def main():
    global torch
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", default=str(ROOT / "build" / "libsmelt.so"))
    parser.add_argument("--rows", default=ROWS)
    parser.add_argument("--deep-gemm", help="folder of cubins")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--smelt-only", action="store_true")
    options = parser.parse_args()
    import torch as imported

    torch = indexer.torch = topk.torch = imported
    if not torch.cuda.is_available():
        print("no GPU", file=sys.stderr)
        return 3
    torch.empty(1, device="cuda")
    library = smelt_library.Library(options.library)
    library.make_context()
    kernels = deep_gemm.Kernels(options.deep_gemm) if options.deep_gemm else None
    print(f"# {torch.cuda.get_device_name()}, torch {torch.__version__}, smelt {library.version}")
    wrong = False
    for name in options.rows.split(","):
        row = indexer.Row(name)
        row.make()
        contenders = contenders_of(row, library, kernels, options.smelt_only)
        times = indexer.median_ms(contenders, options.rounds)
        taken = memory_taken(contenders[0].run)
        wrongs, error = exact(row, library, contenders[0].indices)
        wrong |= wrongs > 0 or not error <= MOST_ERROR
        print(
            f"{name}: workspace {contenders[0].args.workspace_bytes / 1e6:.1f} MB, memory "
            f"{taken:.1f} MB beside it, wrong {wrongs} of {COMPARED}, error {error:.1e}"
        )
        for contender, ms in zip(contenders, times):
            same = share_same(row, contenders[0].indices, contender.indices)
            wrong |= same < LEAST_SAME
            print(
                f"  {contender.name:32} {ms:9.3f} ms {row.flops / ms / 1e9:8.1f} TFLOP/s "
                f"{ms / times[0]:7.3f} x  same {same:.5f}",
                flush=True,
            )
        del contenders
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
