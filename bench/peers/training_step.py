"""A training step of attention in PyTorch, forward and backward through autograd: smelt's package compared with
FlashMLA's forward pass (flash_mla.py) and cuDNN Frontend's backward pass, combined as in NeMo AutoModel: heads padded
to 64, lists compacted (valid slots first) and sorted, topk padded to 512, a sink of -inf if there is none, copies of
strided tensors.

"pair" may assume that each query has a valid slot. "pair, any rows" may not: it finds the queries with one, waits for
the device and gathers their rows. "pair, sorted" gets compact, sorted lists, which a trainer may provide. Checks: the
difference of the gradients from smelt's. Shown: peak memory of a step in addition to the inputs."""

import math

import attention
import backward
import flash_mla
import harness
import smelt_kernels as smelt
from backward import padded_heads
from flash_mla import HEADS_UNIT, FlashMla
from harness import Contender, torch

TOPK_UNIT = 512  # the pair pads to multiples of this


def take(order_by, lists, kept):
    """Lists and flags in the order of `order_by`, with -1 where the flag is not set."""
    order = order_by.argsort(dim=-1)
    lists, kept = lists.gather(-1, order), kept.gather(-1, order)
    return lists.masked_fill(~kept, -1), kept


def compact_and_sort(lists, rows):
    """Lists whose valid slots come first, ascending, and their number."""
    valid = (lists >= 0) & (lists < rows)
    length = valid.sum(-1, dtype=torch.int32)
    width = lists.shape[1]
    slot = torch.arange(width, device=lists.device).expand_as(lists)
    lists, valid = take(slot.masked_fill(~valid, width), lists, valid)
    lists, _ = take(lists.masked_fill(~valid, rows), lists, valid)
    return lists.to(torch.int32).contiguous(), length.contiguous()


class Pair(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, kv, lists, length, sink, scale, dv, flash_mla, any_rows):
        kv = kv.contiguous()
        if length is None:
            lists, length = compact_and_sort(lists, kv.shape[0])
        lists = torch.nn.functional.pad(lists, (0, -lists.shape[1] % TOPK_UNIT), value=-1)
        ctx.has_sink, tokens, heads = sink is not None, *q.shape[:2]
        if sink is None:
            sink = torch.full((heads,), -math.inf, device=q.device)
        ctx.heads = -(-heads // HEADS_UNIT) * HEADS_UNIT
        wide_q = padded_heads(q.contiguous(), ctx.heads)
        wide_sink = padded_heads(sink.detach(), ctx.heads, -math.inf)
        out = q.new_empty((tokens, ctx.heads, dv))
        lse, most = (q.new_empty((tokens, ctx.heads), dtype=torch.float32) for _ in range(2))
        flash_mla.forward(wide_q, kv, lists, length, wide_sink, scale, out, lse, most)
        out, lse = (tensor[:, :heads].contiguous() for tensor in (out, lse))
        if any_rows:
            out.masked_fill_((length == 0)[:, None, None], 0)
        ctx.save_for_backward(q, kv, out, lse, wide_sink, lists.clamp(min=0), length)
        ctx.scale, ctx.any_rows = scale, any_rows
        return out

    @staticmethod
    def backward(ctx, grad_out):
        from cudnn import DSA

        q, kv, out, lse, sink, lists, length = ctx.saved_tensors
        taken = (q, out, grad_out, lse, lists, length)
        rows = None
        if ctx.any_rows:  # queries with a valid slot; the host waits
            rows = (length > 0).nonzero().flatten()
            taken = tuple(tensor.index_select(0, rows) for tensor in taken)
        *wide, lists, length = taken
        wide_q, out, grad_out, lse = (padded_heads(tensor, ctx.heads) for tensor in wide)
        result = DSA.sparse_attention_backward_wrapper(
            wide_q.contiguous(), kv, out, grad_out.contiguous(), lse, sink, lists, softmax_scale=ctx.scale,
            topk_length=length,
        )  # fmt: skip
        heads = q.shape[1]
        dq = result["dq"][:, :heads].contiguous()
        if rows is not None:
            dq = torch.zeros_like(q).index_copy_(0, rows, dq)
        dsink = result["d_sink"][:heads] if ctx.has_sink else None
        return dq, result["dkv"], None, None, dsink, None, None, None, None


class Row(attention.Row):
    SETS = {"quick": "h64-8192"}
    BOUNDS = backward.Row.BOUNDS

    add_options = staticmethod(flash_mla.add_option)

    def operators(self, options):
        return {}  # the package makes its own operators

    def make(self, options):
        self.make_inputs(options)
        self.grad_out = torch.randn(self.tokens, self.heads, self.dv, device=harness.DEVICE, dtype=torch.bfloat16)
        self.leaves = [each for each in (self.q, self.kv, self.sinks) if each is not None]
        for leaf in self.leaves:
            leaf.requires_grad_()

    def step(self, name, attend):
        """A contender with forward and backward pass."""
        results = {}

        def run():
            results.clear()
            found = torch.autograd.grad(attend(), self.leaves, self.grad_out)
            results.update(zip(backward.NAMES, found))

        return Contender(name, run, results)

    def by_smelt(self):
        return smelt.sparse_attention(
            self.q, self.kv, self.indices, self.scale, dv=self.dv, topk_length=self.length, sink=self.sinks,
            buckets="auto" if self.buckets else None, backend="smelt",
        )  # fmt: skip

    def forward(self):
        with torch.no_grad():
            self.by_smelt()

    def contenders(self, options):
        found = {"smelt": lambda: self.step("smelt", self.by_smelt)}
        found["smelt, forward alone"] = lambda: Contender("smelt, forward alone", self.forward, {})
        if options.smelt_only or not options.flash_mla:
            return found
        kernel, lists = FlashMla(options.flash_mla), self.indices
        if self.length is not None:
            slot = torch.arange(lists.shape[1], device=lists.device)
            lists = lists.masked_fill(slot >= self.length[:, None], -1)
        sorted_lists = compact_and_sort(lists, self.kv.shape[0])

        def pair(name, given, any_rows):
            rest = self.sinks, self.scale, self.dv, kernel, any_rows
            found[name] = lambda: self.step(name, lambda: Pair.apply(self.q, self.kv, *given, *rest))

        pair("pair", (lists, None), False)
        pair("pair, any rows", (lists, None), True)
        pair("pair, sorted", sorted_lists, False)
        return found

    def check(self, contenders, options):
        return attention.beside_smelts(contenders)
