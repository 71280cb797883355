#!/usr/bin/env python3
"""The Python package: the host's time for a call. A step's time and memory: bench/peers training_step.

    python bench/pytorch.py [--json FILE] needs the package (pip install .) and a GPU, or bench/idle_driver.c as the
    driver

The best of several loops of calls so small that the host is the bottleneck. For comparison the same run times torch.add
(the host's speed) and an autograd.Function that does nothing (PyTorch's engine). Since a training step calls the engine
once for a whole model, LAYERS consecutive calls under one backward pass are timed, too.
"""

import argparse
import json
import time

import smelt_kernels as smelt
import torch

LAYERS = 16
DEVICE = "cpu" if smelt._runtime.EMULATED else "cuda"


def synchronize():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def host_time(function, calls=60, loops=60):
    """Microseconds per call. There are few calls between waits, because a full queue of launches would make the host
    wait."""
    best = float("inf")
    for _ in range(loops):
        synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            function()
        best = min(best, (time.perf_counter() - begin) / calls)
        synchronize()
    return best * 1e6


def inputs(tokens, rows, heads, dqk, width):
    made = torch.Generator(DEVICE).manual_seed(1)
    q = torch.randn(tokens, heads, dqk, device=DEVICE, dtype=torch.bfloat16, generator=made)
    kv = torch.randn(rows, dqk, device=DEVICE, dtype=torch.bfloat16, generator=made) / 10
    indices = torch.randint(0, rows, (tokens, width), device=DEVICE, dtype=torch.int32, generator=made)
    return q.requires_grad_(), kv.requires_grad_(), indices


class Nothing(torch.autograd.Function):
    """The minimum time in autograd of an operator with sparse_attention's inputs: it saves them and an output, launches
    nothing, and returns existing gradients."""

    @staticmethod
    def forward(ctx, q, kv, sink, call):
        ctx.save_for_backward(q, kv, call)
        return q.new_empty((q.shape[0], q.shape[1], 512))

    @staticmethod
    def backward(ctx, grad_out):
        q, kv, _ = ctx.saved_tensors
        return q, kv, None, None


def chain(layers, attend):
    """Forward and backward pass of so many calls, where each result is the next call's queries (dqk = dv)."""
    q, _, indices = inputs(1, 64, 8, 512, 64)
    keys = [inputs(1, 64, 8, 512, 64)[1] for _ in range(layers)]
    grad = torch.randn(1, 8, 512, device=DEVICE, dtype=torch.bfloat16)

    def run():
        x = q
        for kv in keys:
            x = attend(x, kv, indices)
        torch.autograd.grad(x, (q, *keys), grad)

    return run


def attend(q, kv, indices):
    return smelt.sparse_attention(q, kv, indices, 0.1)


def host_figures():
    q, kv, indices = inputs(1, 64, 8, 576, 64)
    grad = torch.randn(1, 8, 512, device=DEVICE, dtype=torch.bfloat16)
    one = torch.randn(16, device=DEVICE)
    leaf, ones = torch.randn(16, device=DEVICE, requires_grad=True), torch.ones(16, device=DEVICE)
    options = (0, 0.1, 512, 0, (), False, 0, None, None, "auto")

    def forward():
        return attend(q, kv, indices)

    def both():
        torch.autograd.grad(forward(), (q, kv), grad)

    def nothing():
        torch.autograd.grad(Nothing.apply(q, kv, None, indices), (q, kv), grad)

    def one_thread(function):
        with torch.autograd.set_multithreading_enabled(False):
            function()

    figures = {
        "torch.add": host_time(lambda: torch.add(one, one)),
        "torch.add, forward and backward": host_time(lambda: torch.autograd.grad(torch.add(leaf, leaf), (leaf,), ones)),
        "a Function that does nothing, both": host_time(nothing),
        "the same, the engine in the calling thread": host_time(lambda: one_thread(nothing)),
        "Tensor.new_empty": host_time(lambda: q.new_empty((1, 8, 512))),
    }
    with torch.no_grad():
        figures["forward"] = host_time(forward)
        figures["forward, custom operator"] = host_time(
            lambda: torch.ops.smelt.sparse_attn(q, kv, indices, None, None, None, None, *options)
        )
        out, lse = smelt.sparse_attention(q, kv, indices, 0.1, return_lse=True)
        figures["backward, without autograd"] = host_time(
            lambda: smelt.sparse_attention_backward(grad, q, kv, indices, out, lse, 0.1)
        )
    figures["forward, with gradients wanted"] = host_time(forward)
    figures["forward and backward"] = host_time(both)
    figures["both, the engine in the calling thread"] = host_time(lambda: one_thread(both))
    with torch.no_grad():
        listed = torch.zeros(1, device=DEVICE, dtype=torch.int32)
        figures["forward, a list of queries"] = host_time(
            lambda: smelt.sparse_attention(q, kv, indices, 0.1, queries=listed)
        )
    figures.update(indexer_figures())
    for name, each in (("", attend), ("of Functions that do nothing, ", nothing_of)):
        figures[f"{LAYERS} calls under one backward pass, {name}each"] = (
            host_time(chain(LAYERS, each), calls=4) / LAYERS
        )
    return figures


def indexer_figures():
    """Host times of the functions that select keys and train the indexer."""
    q, kv, indices = (tensor.detach() for tensor in inputs(4, 64, 8, 576, 64))
    iq, ik, weights = q[..., :128].contiguous(), kv[:, :128].contiguous(), q[..., 0].float()
    begin, lse = torch.zeros_like(indices[:, 0]), torch.ones_like(weights)
    window = begin, begin + 64
    target = smelt.sparse_scores(q, kv, indices, lse, 0.1)
    logits, one = torch.zeros_like(target), torch.ones((), device=DEVICE)
    leaves = iq, ik, weights
    lengths = torch.tensor([0, 4], device=DEVICE, dtype=torch.int32)
    matrix = smelt.indexer_logits(iq, ik, weights, *window)
    functions = {
        "indexer_windows": (lambda: smelt.indexer_windows(lengths, 4, 64), None),
        "quantize": (lambda: smelt.quantize(iq), None),
        "clean_logits_": (lambda: smelt.clean_logits_(matrix, *window), None),
        "indexer_logits": (lambda: smelt.indexer_logits(iq, ik, weights, *window), None),
        "indexer_topk": (lambda: smelt.indexer_topk(iq, ik, weights, *window, 64)[1], leaves),
        "sparse_scores": (lambda: smelt.sparse_scores(q, kv, indices, lse, 0.1), None),
        "indexer_scores": (lambda: smelt.indexer_scores(iq, ik, weights, indices), leaves),
        "indexer_loss": (lambda: smelt.indexer_loss(logits, target, indices), (logits,)),
    }
    figures = {}
    for name, (function, differentiable) in functions.items():
        figures[name] = host_time(function)
        if differentiable is None:
            continue
        for leaf in differentiable:
            leaf.requires_grad_()
        grad = one if name == "indexer_loss" else target
        figures[f"{name}, forward and backward"] = host_time(
            lambda: torch.autograd.grad(function(), differentiable, grad)
        )
        for leaf in differentiable:
            leaf.requires_grad_(False)
    return figures


def nothing_of(q, kv, indices):
    return Nothing.apply(q, kv, None, indices)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="also write the figures here")
    options = parser.parse_args()
    figures = {
        "device": torch.cuda.get_device_name() if DEVICE == "cuda" else "none",
        "torch": torch.__version__,
        "host, us a call": host_figures(),
    }
    print("{device}, torch {torch}; us a call".format(**figures))
    for name, figure in figures["host, us a call"].items():
        print(f"    {name:62} {figure:10.2f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
