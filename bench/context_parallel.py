#!/usr/bin/env python3
"""Context-parallel attention over the GPUs of one host, compared with one GPU: gradients and time.

    torchrun --nproc-per-node 2 bench/context_parallel.py [--tokens N] [--heads N] [--topk N]

Queries are divided in zigzag order by examples/train.py, whose gather is used: every rank has the KV rows of its own
queries, gathers all (NCCL), runs attention forward and backward, and gets the sum of its rows' gradients (fp32,
reduce-scatter). Rank 0 also runs everything on its GPU. Lists are causal: random rows up to the query's own. Medians of
20 steps, timed by events; exit status 1 if loss or gradients differ by more than rounding.
"""

import argparse
import importlib.util
import os
import pathlib
import statistics
import sys

import smelt_kernels as smelt
import torch
import torch.distributed as dist

DQK = 576
TOLERANCE = 6e-3  # of the norm: two bf16 gradients from the same bf16 inputs
STEPS = 20


def load_example():
    path = pathlib.Path(__file__).resolve().parents[1] / "examples" / "train.py"
    spec = importlib.util.spec_from_file_location("smelt_train", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make(options):
    """q, kv and causal lists, the same on every rank."""
    made = torch.Generator("cuda").manual_seed(1)
    tokens = options.tokens

    def normal(*shape):
        return torch.randn(*shape, device="cuda", generator=made).bfloat16()

    lists = torch.rand(tokens, options.topk, device="cuda", generator=made)
    lists = (lists * (torch.arange(tokens, device="cuda")[:, None] + 1)).int()
    return normal(tokens, options.heads, DQK), normal(tokens, DQK) / 10, lists


def step(q, local_kv, lists, shard):
    """The rank's part of the loss, its dq, and the gradient of its KV rows in fp32."""
    q, local_kv = q.detach().requires_grad_(), local_kv.detach().requires_grad_()
    kv = local_kv if shard is None else shard.gather(local_kv)
    out = smelt.sparse_attention(q, kv, lists, DQK**-0.5, dkv_dtype=torch.float32, backend="smelt")
    loss = out.float().square().sum() / 2  # its terms do not cancel
    return (loss.detach(), *torch.autograd.grad(loss, (q, local_kv)))


def milliseconds(function):
    times = []
    for number in range(STEPS + 3):
        dist.barrier()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        function()
        end.record()
        end.synchronize()
        if number >= 3:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def gathered(shard, local):
    """A tensor of every rank's rows, in the batch's order, for comparison."""
    whole = local.new_empty((shard.ranks * local.shape[0], *local.shape[1:]))
    dist.all_gather_into_tensor(whole, local.contiguous())
    return whole[shard.order]


def apart(got, want):
    return float((got.double() - want.double()).norm() / want.double().norm())


def compare(parts, whole, shard):
    """The differences of loss and gradients from one GPU's; on every rank."""
    loss, dq, dkv = parts
    dist.all_reduce(loss)
    return {
        "loss": float((loss - whole[0]).abs() / whole[0].abs()),
        "dq": apart(gathered(shard, dq), whole[1]),
        "dkv": apart(gathered(shard, dkv), whole[2]),
    }


def times(inputs, local, shard):
    q, kv, lists = inputs
    mine, rows = local[1], shard.rows
    sums = torch.randn(kv.shape, device="cuda")
    own = sums.new_empty((len(rows), DQK))
    return {
        "a step, ms": milliseconds(lambda: step(*local, shard)),
        "without NCCL (KV there), ms": milliseconds(lambda: step(local[0], kv, local[2], None)),
        "all-gather of KV, ms": milliseconds(lambda: shard.gather(mine)),
        "reduce-scatter of its gradient, ms": milliseconds(
            lambda: dist.reduce_scatter_tensor(own, sums[shard.by_rank])
        ),
        "one GPU alone, ms": milliseconds(lambda: step(q, kv, lists, None)),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--heads", type=int, default=64)
    parser.add_argument("--topk", type=int, default=2048)
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    inputs = make(options)
    shard = load_example().Shard(options.tokens, device)
    local = [part[shard.rows] for part in inputs]
    differences = compare(step(*local, shard), step(*inputs, None), shard)
    figures = times(inputs, local, shard)
    right = all(each <= TOLERANCE for each in differences.values())  # false for NaN
    if shard.rank == 0:
        print(f"{torch.cuda.get_device_name()} x {shard.ranks}, {vars(options)}")
        for name, figure in (*figures.items(), *differences.items()):
            print(f"    {name:36} {figure:12.6g}")
        gathering = figures["all-gather of KV, ms"] + figures["reduce-scatter of its gradient, ms"]
        print(f"    the collectives' share of a step     {gathering / figures['a step, ms']:12.3f}")
    dist.destroy_process_group()
    return int(not right)


if __name__ == "__main__":
    sys.exit(main())
