#!/usr/bin/env python3
"""Times a training step of attention, forward and backward through autograd, beside FlashMLA's forward pass
with cuDNN Frontend's backward pass, in turn, in one process (README.md, "A training step").

    python3 bench/peers/training_step.py --flash-mla FILE [--shapes NAME,...] [--rounds N]

FILE is what build.sh makes of FlashMLA. smelt is its Python package. The pair is wired as NeMo AutoModel
wires it: heads padded to 64, lists compacted (valid slots first) and then sorted, by an argsort and gathers
each, topk padded to 512, a sink of -inf where there is none, copies of what has strides. Where it is not told
that every query has a valid slot it also looks for those that have, which waits for the device, and gathers
their rows: "pair, any rows". "pair, sorted" is given lists that are compact and sorted: what is left when a
trainer makes them so itself.

Rows are named as backward.py's are. Printed: medians in ms, memory beyond the inputs, how far the gradients
are apart. Exit status 1 when they differ by more than rounding.
"""

import argparse
import ctypes
import json
import math
import statistics
import sys

import backward
import smelt
import torch
from cudnn import DSA

HEADS_UNIT, TOPK_UNIT = 64, 512  # that the pair is padded to
MESSAGE_BYTES = 256


class Shape(ctypes.Structure):
    """contender_shape of contender.h."""

    _fields_ = [(name, ctypes.c_int) for name in ("heads", "dqk", "dv", "topk", "sink")]


class Call(ctypes.Structure):
    """contender_call of contender.h."""

    _fields_ = [
        ("queries", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        *((name, ctypes.c_int) for name in ("heads", "dqk", "dv", "topk")),
        ("scale", ctypes.c_float),
        ("q", ctypes.c_void_p),
        ("q_token_stride", ctypes.c_int64),
        ("q_head_stride", ctypes.c_int64),
        ("kv", ctypes.c_void_p),
        ("kv_row_stride", ctypes.c_int64),
        ("indices", ctypes.c_void_p),
        ("indices_token_stride", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("topk_length", "sink_", "out", "lse", "max_logits")),
    ]


_OPEN = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(Shape),
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_size_t,
)
_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.POINTER(Call),
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_size_t,
)


class Contender(ctypes.Structure):
    """contender of contender.h."""

    _fields_ = [
        *((name, ctypes.c_int) for name in ("version", "heads_unit", "topk_unit", "empty_inf")),
        ("open", _OPEN),
        ("workspace", ctypes.c_void_p),
        ("launch", _LAUNCH),
        ("close", ctypes.c_void_p),
    ]


class FlashMla:
    """Its sparse prefill, by the contender that build.sh makes."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.calls = Contender.in_dll(self.library, "peers_contender")
        self.message = ctypes.create_string_buffer(MESSAGE_BYTES)
        self.operations = {}

    def _check(self, status):
        if status:
            raise RuntimeError(self.message.value.decode())

    def _operation(self, shape):
        if shape not in self.operations:
            made = ctypes.c_void_p()
            self._check(
                self.calls.open(
                    ctypes.byref(made),
                    ctypes.byref(Shape(*shape)),
                    b"",
                    self.message,
                    MESSAGE_BYTES,
                )
            )
            self.operations[shape] = made
        return self.operations[shape]

    def forward(self, q, kv, indices, length, sink, scale, dv):
        """out and lse (+inf for an empty row)."""
        tokens, heads, dqk = q.shape
        out = q.new_empty((tokens, heads, dv))
        lse, max_logits = (q.new_empty((tokens, heads), dtype=torch.float32) for _ in range(2))
        call = Call(
            tokens,
            kv.shape[0],
            heads,
            dqk,
            dv,
            indices.shape[1],
            scale,
            q.data_ptr(),
            q.stride(0),
            q.stride(1),
            kv.data_ptr(),
            kv.stride(0),
            indices.data_ptr(),
            indices.stride(0),
            length.data_ptr(),
            sink.data_ptr(),
            out.data_ptr(),
            lse.data_ptr(),
            max_logits.data_ptr(),
        )
        operation = self._operation((heads, dqk, dv, indices.shape[1], 1))
        stream = torch.cuda.current_stream().cuda_stream
        self._check(
            self.calls.launch(
                operation, ctypes.byref(call), None, 0, stream, self.message, MESSAGE_BYTES
            )
        )
        return out, lse


# ---- the pair -----------------------------------------------------------------------------------


def take(order_by, lists, kept):
    """Lists and flags in the order of `order_by`, with -1 where the flag is not set."""
    order = order_by.argsort(dim=-1)
    lists, kept = lists.gather(-1, order), kept.gather(-1, order)
    return lists.masked_fill(~kept, -1), kept


def compact_and_sort(lists, rows):
    """Lists whose valid slots come first, ascending, and how many they are."""
    valid = (lists >= 0) & (lists < rows)
    length = valid.sum(-1, dtype=torch.int32)
    width = lists.shape[1]
    place = torch.arange(width, device=lists.device).expand_as(lists)
    lists, valid = take(place.masked_fill(~valid, width), lists, valid)
    lists, _ = take(lists.masked_fill(~valid, rows), lists, valid)
    return lists.to(torch.int32).contiguous(), length.contiguous()


def padded_heads(tensor, heads, value=0.0):
    """On dimension 1, or the only one."""
    if tensor.dim() == 1:
        return torch.nn.functional.pad(tensor, (0, heads - tensor.shape[0]), value=value)
    missing = heads - tensor.shape[1]
    return torch.nn.functional.pad(tensor, [0, 0] * (tensor.dim() - 2) + [0, missing], value=value)


class Pair(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, kv, lists, length, sink, scale, dv, flash_mla, any_rows):
        kv = kv.contiguous()
        if length is None:
            lists, length = compact_and_sort(lists, kv.shape[0])
        lists = torch.nn.functional.pad(lists, (0, -lists.shape[1] % TOPK_UNIT), value=-1)
        ctx.has_sink = sink is not None
        if sink is None:
            sink = torch.full((q.shape[1],), -math.inf, device=q.device)
        ctx.heads = -(-q.shape[1] // HEADS_UNIT) * HEADS_UNIT
        wide_q, wide_sink = q.contiguous(), sink.detach()
        if ctx.heads != q.shape[1]:
            wide_q = padded_heads(wide_q, ctx.heads)
            wide_sink = padded_heads(wide_sink, ctx.heads, -math.inf)
        out, lse = flash_mla.forward(wide_q, kv, lists, length, wide_sink, scale, dv)
        out, lse = (tensor[:, : q.shape[1]].contiguous() for tensor in (out, lse))
        if any_rows:
            out.masked_fill_((length == 0)[:, None, None], 0)
        ctx.save_for_backward(q, kv, out, lse, wide_sink, lists.clamp(min=0), length)
        ctx.scale, ctx.any_rows = scale, any_rows
        return out

    @staticmethod
    def backward(ctx, grad_out):
        q, kv, out, lse, sink, lists, length = ctx.saved_tensors
        taken = (q, out, grad_out, lse, lists, length)
        rows = None
        if ctx.any_rows:  # those that have a slot; the host waits
            rows = (length > 0).nonzero().flatten()
            taken = tuple(tensor.index_select(0, rows) for tensor in taken)
        wide_q, out, grad_out, lse, lists, length = taken
        heads = q.shape[1]
        if ctx.heads != heads:
            wide_q, out, grad_out, lse = (
                padded_heads(tensor, ctx.heads) for tensor in (wide_q, out, grad_out, lse)
            )
        result = DSA.sparse_attention_backward_wrapper(
            wide_q.contiguous(),
            kv,
            out,
            grad_out.contiguous(),
            lse,
            sink,
            lists,
            softmax_scale=ctx.scale,
            topk_length=length,
        )
        dq = result["dq"][:, :heads].contiguous()
        if rows is not None:
            dq = torch.zeros_like(q).index_copy_(0, rows, dq)
        dsink = result["d_sink"][:heads] if ctx.has_sink else None
        return dq, result["dkv"], None, None, dsink, None, None, None, None


# ---- contenders ---------------------------------------------------------------------------------


class Step:
    """Forward and backward of a row by one way; `launch` is a step."""

    def __init__(self, name, data, attend):
        self.name, self.data, self.attend = name, data, attend
        self.leaves = [data.q, data.kv] + ([] if data.sink is None else [data.sink])

    def launch(self):
        out = self.attend(self.data)
        self.grads = torch.autograd.grad(out, self.leaves, self.data.grad_out)

    def memory(self):
        """Bytes beyond what is there, at the peak of a step."""
        self.grads = None
        torch.cuda.synchronize()
        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        self.launch()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - held


def make_steps(data, flash_mla):
    def by_smelt(buckets):
        return lambda data: smelt.sparse_attention(
            data.q,
            data.kv,
            data.indices,
            data.scale,
            dv=data.row.dv,
            topk_length=data.length,
            sink=data.sink,
            buckets=buckets,
            backend="smelt",
        )

    lists = data.indices
    if data.length is not None:
        place = torch.arange(lists.shape[1], device=lists.device)
        lists = lists.masked_fill(place >= data.length[:, None], -1)
    ready = compact_and_sort(lists, data.kv.shape[0])

    def by_pair(given, any_rows):
        return lambda data: Pair.apply(
            data.q, data.kv, *given, data.sink, data.scale, data.row.dv, flash_mla, any_rows
        )

    return [
        Step("smelt", data, by_smelt("auto" if data.row.buckets else None)),
        Step("pair", data, by_pair((lists, None), False)),
        Step("pair, any rows", data, by_pair((lists, None), True)),
        Step("pair, sorted", data, by_pair(ready, False)),
    ]


def measure(row, flash_mla, options):
    data = backward.Data(row, options.seed)
    for leaf in (data.q, data.kv, data.sink):
        if leaf is not None:
            leaf.requires_grad_()
    steps = make_steps(data, flash_mla)
    for step in steps:
        step.launch()
    names = ("dq", "dkv", "dsink")
    apart = {
        f"{step.name}: {name}": backward.difference(got, want)[0]
        for step in steps[1:]
        for name, got, want in zip(names, steps[0].grads, step.grads)
    }
    times = {
        name: statistics.median(each)
        for name, each in backward.time_contenders(steps, options.rounds).items()
    }
    return {
        "shape": row.name,
        "ms": {name: round(time, 4) for name, time in times.items()},
        "ratio to smelt": {name: round(time / times["smelt"], 3) for name, time in times.items()},
        "memory, MB": {step.name: round(step.memory() / 1e6, 1) for step in steps},
        "gradients apart": apart,
        "wrong": not all(each <= backward.DIFFERENT for each in apart.values()),
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--flash-mla", required=True, metavar="FILE")
    parser.add_argument("--shapes", type=backward.rows_named, default="h64-8192")
    parser.add_argument("--rounds", type=int, default=24, help="steps of each (24)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    backward.torch = torch
    print(f"# {torch.cuda.get_device_name()}, torch {torch.__version__}, smelt {smelt.__version__}")
    flash_mla = FlashMla(options.flash_mla)
    wrong = False
    for row in options.shapes:
        result = measure(row, flash_mla, options)
        wrong |= result["wrong"]
        print(json.dumps(result, indent=1), flush=True)
        torch.cuda.empty_cache()
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
