"""A training step of MiniMax Sparse Attention in PyTorch: choice of blocks, attention, the proxy heads' loss and all
gradients. smelt.compat.flash_msa compared with the package flash-msa.

"attention" is smelt.sparse_gqa alone, forward and backward, with smelt's choice. Names of rows: h64-8192-k16, 64 heads
(a KV head and a proxy head for each 16) of 128 columns, 8192 tokens, 16 blocks of 128 keys for each query; flash-msa
takes multiples of 128 tokens. Checks: the difference of the results from smelt's. flash-msa's loss is 0, and where fewer
than k blocks are before a query it reads some twice. Shown: peak memory in addition to the inputs."""

import re

import attention
import harness
from harness import Contender, torch
from smelt_kernels import sparse_gqa
from smelt_kernels.compat import flash_msa

NAMES = "out", "dq_proxy", "dk_proxy", "dq", "dk", "dv"
WIDTH, PER_KEY = 128, 16


class Row(harness.Row):
    SETS = {"quick": "h64-8192-k16", "long": "h64-32768-k16"}

    def __init__(self, name):
        found = re.fullmatch(r"h(\d+)-(\d+)-k(\d+)", name)
        if not found:
            raise ValueError(f"row {name}: write it as h64-8192-k16")
        self.name, (self.heads, self.tokens, self.blocks) = name, map(int, found.groups())

    def operators(self, options):
        return {}  # the package makes its own operators

    def make(self, options):
        kv_heads = -(-self.heads // PER_KEY)
        shapes = ((heads, self.tokens, WIDTH) for heads in (kv_heads, 1, self.heads, kv_heads, kv_heads))
        self.inputs = [torch.randn(1, *shape, device=harness.DEVICE).bfloat16().requires_grad_() for shape in shapes]
        self.grad_out = torch.randn(1, self.tokens, self.heads * WIDTH, device=harness.DEVICE).bfloat16()

    def contenders(self, options):
        scale, topk = WIDTH**-0.5, self.blocks * flash_msa.BLOCK
        functions = {"smelt": flash_msa.flash_msa_func}
        if not options.smelt_only:
            import flash_msa as theirs

            functions["flash-msa"] = theirs.flash_msa_func
        found = {}
        for name, function in functions.items():
            results = {}

            def forward(function=function):
                with torch.no_grad():
                    function(*self.inputs, topk, scale)

            def step(function=function, results=results):
                results.clear()
                out, loss = function(*self.inputs, topk, scale)
                grads = torch.autograd.grad((out, loss), self.inputs, (self.grad_out, torch.ones_like(loss)))
                results.update(zip(NAMES, (out.detach(), *grads)))

            found[name] = lambda name=name, step=step, results=results: Contender(name, step, results)
            found[f"{name}, forward"] = lambda name=f"{name}, forward", run=forward: Contender(name, run, {})
        found["smelt, attention"] = lambda: Contender("smelt, attention", self.attention(scale), {})
        return found

    def attention(self, scale):
        q_proxy, k_proxy, *attended = self.inputs
        documents = flash_msa._Documents(q_proxy, None, None)
        lists = flash_msa._choose(q_proxy, k_proxy, documents, self.blocks).unsqueeze(0)
        leaves = [each.detach().transpose(1, 2).contiguous().requires_grad_() for each in attended]
        grad_out = self.grad_out.unflatten(2, (self.heads, WIDTH))
        named = {"granularity": flash_msa.BLOCK, "limit": documents.end.unsqueeze(0), "backend": "smelt"}
        return lambda: torch.autograd.grad(sparse_gqa(*leaves, lists, scale, **named), leaves, grad_out)

    def check(self, contenders, options):
        return attention.beside_smelts(contenders)
