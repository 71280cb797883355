"""sparse_attn's forward pass, compared with FlashMLA's (flash_mla.py), which gets 64 random heads if a row has fewer.
Before a row is timed, 32 queries are compared with double precision: "error" is relative to the norm."""

import functools

import attention
import flash_mla
from flash_mla import HEADS_UNIT
from harness import DEVICE, torch

COMPARED = 32  # queries
RANDOM = [
    f"h{heads}-4096-s{rows}-k{topk}"
    for rows in (8192, 32768, 131072)
    for heads in (64, 128)
    for topk in (256, 512, 1024, 2048)
]
SINKS = [f"h{heads}-4096-s8192-k{topk}-d512-sink" for heads in (64, 128) for topk in (640, 1152)]
FEW = [f"h{heads}-4096-s8192-k{topk}" for topk in (512, 2048) for heads in (8, 16, 32)]
MASKED = [f"h{heads}-8192-{lists}" for heads in (64, 128) for lists in ("causal-padded", "causal")]
HALF = [f"h{heads}-4096-s8192-half" for heads in (8, 64)]


class Row(attention.Row):
    SETS = {"all": ",".join([*RANDOM, *SINKS, *FEW, "h8-4096-s131072", *MASKED, *HALF]), "random": ",".join(RANDOM)}
    BOUNDS = {"error": 5e-3}

    def __init__(self, name):
        super().__init__(name)
        self.group = "random lists, 64 and 128 heads" if name in RANDOM + SINKS else None

    add_options = staticmethod(flash_mla.add_option)

    def make(self, options):
        self.make_inputs(options, heads=-(-self.heads // HEADS_UNIT) * HEADS_UNIT)
        self.flops = 2 * self.pairs * self.heads * (self.dqk + self.dv)

    def outputs(self):
        return attention.forward_outputs(self.tokens, self.heads, self.dv)

    def peers(self, options):
        q = self.padded_q
        padded = functools.partial(attention.forward_outputs, self.tokens, q.shape[1], self.dv)
        return flash_mla.peers(options, self, q, self.padded_sinks, padded)

    def check(self, contenders, options):
        queries = torch.linspace(0, self.tokens - 1, COMPARED, device=DEVICE).long()
        right = attention.forward(self, queries, torch.float64)["out"]
        return {
            each.name: {"error": attention.apart(each.results["out"][queries, : self.heads], right)}
            for each in contenders
        }
