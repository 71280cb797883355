#!/usr/bin/env python3
"""Times indexer_bwd beside cuDNN Frontend's indexer_backward_wrapper, in turn, in one process, and
compares sampled rows of the gradients with double precision's.

    python3 bench/peers/indexer_bwd.py [--library PATH]... [--rows NAME,...] [--knobs KNOBS]...
                                       [--rounds N] [--deterministic] [--smelt-only]

A row's name says its shape: h64-8192-random has 64 heads, 8192 queries and as many keys, 2048 random ones
a query; drift: nine in ten of them are those of the query before. Several --knobs are several contenders,
and so are several libraries; --deterministic adds each with deterministic=1, whose dk is made twice and must
be the same bits.
cuDNN has 64 heads alone; it makes the loss's gradient first, from two matrices of probabilities, which is
timed with it, and takes bf16 weights. smelt gets the gradient that it made, and the same weights.

"off" is the largest error of a sampled query's dq and of a sampled key's dk, relative to its norm.
Exit status: 0; 1 when smelt is off by more than 2e-2 or a deterministic dk differs; 3 when there is no
GPU.
"""

import argparse
import itertools
import pathlib
import sys

import backward
import indexer
import indexer_scores
import smelt_library

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROWS = """h64-8192-random,h64-16384-random,h64-8192-drift,h64-16384-drift,h32-8192-random,
h32-8192-drift,h16-8192-random,h16-8192-drift"""
DIM, TOPK = indexer_scores.DIM, indexer_scores.TOPK
SAMPLE = 8  # queries, and keys
TOLERANCE = 2e-2
CUDNN_HEADS = 64

torch = None  # imported in main


class Row(indexer_scores.Row):
    """With the gradient that reaches the logits: cuDNN's own where it is there."""

    def make(self):
        super().make()
        generator = torch.Generator(device="cuda").manual_seed(4)
        if self.drift:  # of distinct keys, as a selection's are
            self.rows, self.topk = self.tokens, TOPK
            self.indices = backward.drift_lists(self, generator).contiguous()
        shape = (self.tokens, TOPK)
        self.target = torch.rand(shape, device="cuda", generator=generator).pow_(8)
        self.target /= self.target.sum(dim=1, keepdim=True)
        predicted = torch.randn(shape, device="cuda", generator=generator).softmax(dim=1)
        self.predicted = predicted
        self.grad = (predicted - self.target) / self.tokens
        self.flops *= 3

    def pairs(self, queries, keys):
        """g * weights * [x > 0] of each head, [n, heads], in double precision, and x."""
        q, k = self.q[queries].double(), self.k[keys].double()
        return (q * k[:, None]).sum(dim=2), q, k

    def dq(self, query):
        keys = self.indices[query].long()
        x, _, k = self.pairs(torch.full_like(keys, query), keys)
        factor = self.grad[query].double()[:, None] * self.weights[query].double() * (x > 0)
        return factor.T @ k

    def dk(self, key):
        queries, slots = (self.indices == key).nonzero(as_tuple=True)
        x, q, _ = self.pairs(queries, torch.full_like(queries, key))
        grad = self.grad[queries, slots].double()[:, None]
        factor = grad * self.weights[queries].double() * (x > 0)
        return (factor[:, :, None] * q).sum(dim=(0, 1))


class Smelt:
    def __init__(self, library, row, knobs, deterministic=False):
        knobs += ",deterministic=1" if deterministic else ""
        text = f"indexer_bwd:heads={row.heads},dim={DIM},topk={TOPK}{knobs}"
        self.name, self.deterministic = library.name + knobs.replace(",", " ", 1), deterministic
        self.operator = smelt_library.Operator(library, text)
        self.dq, self.dk = torch.empty_like(row.q), torch.empty_like(row.k)
        self.dweights = torch.empty_like(row.weights)
        args = smelt_library.with_size(smelt_library.IndexerBwdArgs)
        args.tokens, args.rows, args.width = row.tokens, row.tokens, TOPK
        for field, tensor in (
            ("q", row.q),
            ("k", row.k),
            ("weights", row.weights),
            ("indices", row.indices),
            ("grad", row.grad),
            ("dq", self.dq),
            ("dweights", self.dweights),
            ("dk", self.dk),
        ):
            getattr(args, field).data = tensor.data_ptr()
        args.workspace_bytes = self.operator.workspace(args, "backward")
        self.space = torch.empty(args.workspace_bytes, dtype=torch.uint8, device="cuda")
        args.workspace = self.space.data_ptr()
        self.args = args

    def run(self):
        self.operator.launch(self.args, torch.cuda.current_stream().cuda_stream, "backward")

    def differs(self):
        """Whether a second call gives other bits, of a deterministic one."""
        self.run()
        first = self.dk.clone()
        self.run()
        return self.deterministic and not torch.equal(first.view(torch.int16), self.dk.view(torch.int16))


class Cudnn:
    name = "cudnn"

    def __init__(self, row):
        import cudnn

        self.wrapper, target = cudnn.DSA.indexer_backward_wrapper, row.target.clone()[None]
        self.inputs = {
            "index_q": row.q[None],
            "weights": row.weights.bfloat16()[None],
            "index_k": row.k[None],
            "attn_score": target,
            "index_score": row.predicted[None],
            "topk_indices": row.indices[None],
            "grad_loss": torch.ones(1, device="cuda"),
        }
        self.result = self.wrapper(**self.inputs)
        torch.cuda.synchronize()
        row.grad.copy_(target[0])  # what its first kernel leaves there
        self.dq, self.dk = self.result["d_index_q"][0].clone(), self.result["d_index_k"][0].clone()

    def run(self):
        self.wrapper(**self.inputs)


def contenders_of(row, libraries, options):
    found = []
    if not options.smelt_only and row.heads == CUDNN_HEADS:
        try:
            found.append(Cudnn(row))
        except Exception as error:  # pylint: disable=broad-except
            print(f"# {row.name}: {type(error).__name__}: {str(error)[:300]}")
    modes = [False, True] if options.deterministic else [False]
    for library, knobs, mode in itertools.product(libraries, options.knobs or [""], modes):
        found.append(Smelt(library, row, knobs and "," + knobs, mode))
    return found


def off(row, contenders):
    """The largest errors of each, of dq and of dk."""
    worst = [[0.0, 0.0] for _ in contenders]
    for number in range(0, row.tokens, row.tokens // SAMPLE):
        for which, right in enumerate((row.dq(number), row.dk(number))):
            for errors, contender in zip(worst, contenders):
                got = (contender.dq, contender.dk)[which][number].double()
                errors[which] = max(errors[which], float((got - right).norm() / right.norm()))
    return worst


def main():
    global torch
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", action="append", default=[])
    parser.add_argument("--rows", default=ROWS)
    parser.add_argument("--knobs", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--smelt-only", action="store_true")
    options = parser.parse_args()
    import torch as imported

    torch = backward.torch = indexer.torch = indexer_scores.torch = imported
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
    for name in options.rows.replace("\n", "").split(","):
        row = Row(name)
        row.make()
        contenders = contenders_of(row, libraries, options)
        times = indexer.median_ms(contenders, options.rounds)
        same = [not (isinstance(c, Smelt) and c.differs()) for c in contenders]
        errors = off(row, contenders)
        print(row.name)
        for contender, ms, (dq, dk), bits in zip(contenders, times, errors, same):
            print(
                f"  {contender.name:44} {ms:8.4f} ms {row.flops / ms / 1e9:6.1f} TFLOP/s "
                f"{times[0] / ms:6.3f} x  off {dq:.1e} {dk:.1e}{'' if bits else '  OTHER BITS'}",
                flush=True,
            )
            wrong |= isinstance(contender, Smelt) and not (max(dq, dk) < TOLERANCE and bits)
        del contenders
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
