"""sparse_attn's backward pass with all its kernels, compared with cuDNN Frontend's and all launches of its wrapper.

cuDNN gets 16 heads if a row has 8, and a sink of -inf if it has none. out and lse are computed in fp32. Checks: the
difference of the gradients from cuDNN's (two correct ones differ by 3e-3 to 6e-3) or, with --reference or --smelt-only,
from fp32's; "row": of the worst row."""

import math

import attention
from harness import DEVICE, reference, torch

CUDNN_HEADS = (16, 32, 64, 128)  # supported by its training wrapper; others are padded
BARS = """h64-4096,h64-8192,h64-16384,h64-32768,h64-8192-s131072,h64-8192-drift,h64-32768-drift,
h64-8192-s131072-drift,h128-8192,h8-8192,h16-8192,h32-8192,h8-8192-drift,h16-8192-drift,h32-8192-drift,
h64-4096-k640-d512-sink,h128-4096-k1152-d512-sink,h64-8192-causal,h64-8192-half"""
NAMES = ("dq", "dkv", "dsink")


def padded_heads(tensor, heads, value=0.0):
    """Pads dimension 1, or the only one, to so many heads."""
    at = min(1, tensor.dim() - 1)
    missing = [0, 0] * (tensor.dim() - 1 - at) + [0, heads - tensor.shape[at]]
    return torch.nn.functional.pad(tensor, missing, value=value) if missing[-1] else tensor


class Row(attention.Row):
    SETS = {"quick": "h64-8192,h64-8192-drift,h16-8192", "bars": BARS}
    BOUNDS = dict.fromkeys(NAMES, 1e-2)
    which, deterministic = "backward", True

    @staticmethod
    def add_options(parser):
        parser.add_argument("--reference", action="store_true", help="compare with fp32 (some seconds a row)")

    def spec(self):
        return super().spec() + ",passes=backward"

    def make(self, options):
        self.make_inputs(options)
        self.flops = 2 * self.pairs * self.heads * (3 * self.dqk + 2 * self.dv)
        queries = torch.arange(self.tokens, device=DEVICE)
        made = attention.forward(self, queries, torch.float32)
        self.out, self.lse = made["out"].bfloat16(), made["lse"]
        self.grad_out = torch.randn_like(self.out)

    def arguments(self):
        return {**super().arguments(), "out": self.out, "lse": self.lse, "grad_out": self.grad_out}

    def outputs(self):
        shapes = {"dq": (*self.q.shape, "bf16"), "dkv": (*self.kv.shape, "bf16")}
        return attention.uninitialised(**shapes, **({"dsink": (self.heads,)} if self.sink else {}))

    def peers(self, options):
        return {"cudnn": self.cudnn}

    def cudnn(self):
        """It accepts smelt's lse and skips slots outside the table."""
        from cudnn import DSA

        heads = next(count for count in CUDNN_HEADS if count >= self.heads)
        sinks = torch.full((self.heads,), -math.inf, device=DEVICE) if self.sinks is None else self.sinks
        arguments = {
            "q": padded_heads(self.q, heads), "kv": self.kv, "out": padded_heads(self.out, heads),
            "dout": padded_heads(self.grad_out, heads), "lse": padded_heads(self.lse, heads),
            "attn_sink": padded_heads(sinks, heads, -math.inf), "topk_idxs": self.indices, "softmax_scale": self.scale,
            "topk_length": self.length,
        }  # fmt: skip
        results = attention.uninitialised(dq=(*arguments["q"].shape, "bf16"), dkv=(*self.kv.shape, "bf16"))

        def run():
            found = DSA.sparse_attention_backward_wrapper(**arguments, **results)
            if self.sink:
                run.results["dsink"] = found["d_sink"][: self.heads]

        run.results = {"dq": results["dq"][:, : self.heads], "dkv": results["dkv"]}
        return run, run.results

    def exact(self):
        tensors = self.grad_out, self.q.float(), self.kv.float(), self.indices
        masks = {"topk_length": self.length, "sink": self.sinks}
        found = reference().sparse_attention_backward(*tensors, self.scale, **masks)
        return dict(zip(NAMES, found))

    def check(self, contenders, options):
        right = contenders[-1].results
        if options.reference or contenders[-1].name != "cudnn":
            right = self.exact()
        found = {}
        for each in contenders:
            if each.results is right:
                continue
            found[each.name] = {
                **{name: attention.apart(got, right[name]) for name, got in each.results.items()},
                **{f"{name} row": attention.worst_row(each.results[name], right[name])
                   for name in NAMES[:2]},
            }  # fmt: skip
        return found
