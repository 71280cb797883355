#!/usr/bin/env python3
"""The Python package on a GPU: the host's time for a call, and a training step of attention.

    python bench/pytorch.py [--cudnn] [--json FILE]     needs the package (pip install .) and a GPU

Host time: the best of several loops of calls so small that the GPU is done before the host is; torch.add
in the same run says how fast the host is. The step: forward and backward through autograd, H 64,
T = S = 8192, topk 2048, dqk 576, random lists; the median of 10, by events; peak memory beyond what the
inputs take.
"""

import argparse
import json
import statistics
import time

import smelt
import torch


def host_time(function, calls=60, loops=60):
    """Microseconds. Few calls between waits: a full queue of launches would make the host wait."""
    best = float("inf")
    for _ in range(loops):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            function()
        best = min(best, (time.perf_counter() - begin) / calls)
        torch.cuda.synchronize()
    return best * 1e6


def gpu_time(function, runs=10):
    """Milliseconds."""
    for _ in range(3):
        function()
    times = []
    for _ in range(runs):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        function()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def inputs(tokens, rows, heads, dqk, width):
    made = torch.Generator("cuda").manual_seed(1)
    q = torch.randn(tokens, heads, dqk, device="cuda", dtype=torch.bfloat16, generator=made)
    kv = torch.randn(rows, dqk, device="cuda", dtype=torch.bfloat16, generator=made) / 10
    indices = torch.randint(
        0, rows, (tokens, width), device="cuda", dtype=torch.int32, generator=made
    )
    return q.requires_grad_(), kv.requires_grad_(), indices


def host_figures():
    q, kv, indices = inputs(1, 64, 8, 576, 64)
    grad = torch.randn(1, 8, 512, device="cuda", dtype=torch.bfloat16)
    one = torch.randn(16, device="cuda")

    def forward():
        return smelt.sparse_attention(q, kv, indices, 0.1)

    def both():
        torch.autograd.grad(forward(), (q, kv), grad)

    leaf, ones = torch.randn(16, device="cuda", requires_grad=True), torch.ones(16, device="cuda")
    figures = {
        "torch.add": host_time(lambda: torch.add(one, one)),
        "torch.add, forward and backward": host_time(
            lambda: torch.autograd.grad(torch.add(leaf, leaf), (leaf,), ones)
        ),
    }
    with torch.no_grad():
        figures["forward"] = host_time(forward)
    figures["forward, with gradients wanted"] = host_time(forward)
    figures["forward and backward"] = host_time(both)
    figures["forward, custom operator"] = host_time(
        lambda: torch.ops.smelt.sparse_attn(
            q.detach(),
            kv.detach(),
            indices,
            None,
            None,
            None,
            None,
            0.1,
            512,
            0,
            [],
            None,
            None,
            0,
            0,
            "auto",
        )
    )
    return figures


def step_figures():
    q, kv, indices = inputs(8192, 8192, 64, 576, 2048)
    grad = torch.randn(8192, 64, 512, device="cuda", dtype=torch.bfloat16)
    held = torch.cuda.memory_allocated()

    def forward():
        return smelt.sparse_attention(q, kv, indices, 576**-0.5)

    def step():
        torch.autograd.grad(forward(), (q, kv), grad)

    with torch.no_grad():
        figures = {"forward, ms": gpu_time(forward)}
    torch.cuda.reset_peak_memory_stats()
    figures["forward and backward, ms"] = gpu_time(step)
    figures["peak memory beyond the inputs, MB"] = (torch.cuda.max_memory_allocated() - held) / 1e6
    return figures


def cudnn_figures():
    """What a trainer that pairs FlashMLA with cuDNN's backward pass runs beside FlashMLA's kernel: lists
    compacted and sorted first (one sort and a count, the least it takes), then cuDNN's backward pass."""
    from cudnn import DSA

    q, kv, indices = inputs(8192, 8192, 64, 576, 2048)
    scale = 576**-0.5
    grad = torch.randn(8192, 64, 512, device="cuda", dtype=torch.bfloat16)
    none = torch.full((64,), float("-inf"), device="cuda")
    with torch.no_grad():
        out, lse = smelt.sparse_attention(q, kv, indices, scale, return_lse=True)

    def compact():
        valid = (indices >= 0) & (indices < kv.shape[0])
        ordered = indices.masked_fill(~valid, kv.shape[0]).sort(-1).values
        return ordered.masked_fill(ordered == kv.shape[0], -1), valid.sum(-1, dtype=torch.int32)

    lists, lengths = compact()

    def backward():
        DSA.sparse_attention_backward_wrapper(
            q.detach(),
            kv.detach(),
            out,
            grad,
            lse,
            none,
            lists,
            softmax_scale=scale,
            topk_length=lengths,
        )

    def ours():
        smelt.sparse_attention_backward(grad, q.detach(), kv.detach(), indices, out, lse, scale)

    return {
        "lists compacted and sorted, ms": gpu_time(compact),
        "cuDNN backward, ms": gpu_time(backward),
        "smelt backward, ms": gpu_time(ours),
        "cuDNN backward again, ms": gpu_time(backward),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="also write the figures here")
    parser.add_argument(
        "--cudnn", action="store_true", help="also time what cuDNN takes for the backward pass"
    )
    options = parser.parse_args()
    figures = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "host, us a call": host_figures(),
        "training step": step_figures(),
    }
    if options.cudnn:
        figures["beside it"] = cudnn_figures()
    for name, value in figures.items():
        if isinstance(value, dict):
            print(name)
            for what, figure in value.items():
                print(f"    {what:36} {figure:10.2f}")
        else:
            print(f"{name}: {value}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
