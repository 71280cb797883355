#!/usr/bin/env python3
"""Trains a small model with sparse attention and a learnt indexer.

    python examples/train.py [--model NAME] [--steps N]           on one GPU
    torchrun --nproc-per-node 2 examples/train.py                 context parallel: each rank has a part of
                                                                  every document's queries
    ... --backend torch                                           the eager reference, to compare losses

Packed documents of random words that repeat with a fixed period: each token equals the one a period before it, which
the model learns to look up. Two layers of

    glm   absorbed MLA as in GLM-5: dqk is dv plus 64 rotary columns, values are projected up per head
    v4    as DeepSeek-V4: dqk = dv, a learnt sink; lists have the last tokens in addition to the selected ones
    glm-5.3-flash   as glm, but the indexer has a key for each pool of 4 tokens: it selects pools, and the tokens behind the
                    last complete one are always in the list
    deepseek-v4.1   dqk = dv and a sink; the first layer publishes the best blocks of 4 keys beside its own choice, and the
                    next one chooses within them

The indexer selects TOPK keys for each query; it is trained towards attention's distribution over them, without a tokens
x tokens matrix. Context parallel: queries are divided in zigzag order, so that ranks have equal work; keys are
gathered, and the backward pass sums their gradients.
"""

import argparse
import os

import smelt_kernels as smelt
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

WORDS, LAYERS, WIDTH, HEADS, VALUE, ROPE = 32, 2, 64, 2, 64, 64
INDEX_HEADS, INDEX_DIM, TOPK, WINDOW = 2, 64, 8, 4
POOL, BLOCK, PUBLISHED = 4, 4, 3  # tokens of a pool; keys of a published block, and how many blocks
DOCUMENTS, PERIOD = (24, 40), 5  # tokens of each document; multiples of twice the ranks and of POOL
MODELS = ("glm", "v4", "glm-5.3-flash", "deepseek-v4.1")


class Shard:
    """The rows of the packed batch that this rank has, and a gather of all rows."""

    def __init__(self, tokens, device):
        self.ranks = dist.get_world_size() if dist.is_initialized() else 1
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        chunks = torch.arange(tokens, device=device).chunk(2 * self.ranks)
        owned = [torch.cat([chunks[rank], chunks[2 * self.ranks - 1 - rank]]) for rank in range(self.ranks)]
        self.rows = owned[self.rank]
        self.by_rank = torch.cat(owned)  # numbers of the batch's rows, in the ranks' order
        self.order = torch.argsort(self.by_rank)  # the inverse

    def gather(self, local):
        """Rows of all ranks, in the batch's order; differentiable."""
        return local if self.ranks == 1 else _Gather.apply(local, self)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, local, shard):
        ctx.shard = shard
        if hasattr(ctx, "set_output_grad_dtype"):  # older versions round the gradient to bf16 first
            ctx.set_output_grad_dtype(torch.float32)
        whole = local.new_empty((shard.ranks * local.shape[0], *local.shape[1:]))
        dist.all_gather_into_tensor(whole, local.contiguous())
        return whole[shard.order]

    @staticmethod
    def backward(ctx, grad):
        grad = grad.float()[ctx.shard.by_rank]  # ranks' sums are in fp32
        local = grad.new_empty((len(ctx.shard.rows), *grad.shape[1:]))
        dist.reduce_scatter_tensor(local, grad)
        return local, None


class Attention(nn.Module):
    def __init__(self, model, layer):
        super().__init__()
        self.model, self.dqk = model, VALUE + (ROPE if model.startswith("glm") else 0)
        self.choice = {"topk": TOPK}
        if model == "glm-5.3-flash":
            self.choice = {"topk": TOPK // POOL, "expand": POOL, "tail": True}
        elif model == "deepseek-v4.1" and layer == 0:
            self.choice.update(publish=PUBLISHED, publish_block=BLOCK, publish_pinned=1)
        elif model == "deepseek-v4.1":
            self.choice.update(candidate_block=BLOCK)
        self.scale = self.dqk**-0.5
        self.q = nn.Linear(WIDTH, HEADS * self.dqk, bias=False)
        self.kv = nn.Linear(WIDTH, self.dqk, bias=False)
        self.values = nn.Parameter(torch.randn(HEADS, WIDTH // HEADS, VALUE) * VALUE**-0.5)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.sink = nn.Parameter(torch.zeros(HEADS)) if "v4" in model else None
        self.index_q = nn.Linear(WIDTH, INDEX_HEADS * INDEX_DIM, bias=False)
        self.index_k = nn.Linear(WIDTH, INDEX_DIM, bias=False)
        self.index_weights = nn.Linear(WIDTH, INDEX_HEADS, bias=False)

    def smelt_specs(self):
        """For smelt.warm(model)."""
        attention = f"heads={HEADS},dqk={self.dqk},dv={VALUE},topk=128"
        indexer = f"heads={INDEX_HEADS},dim={INDEX_DIM}"
        sink = "" if self.sink is None else ",sink=1"
        return [
            f"sparse_attn:{attention}{sink},passes=both",
            f"sparse_scores:{attention}",
            f"indexer_topk:{indexer},dtype=bf16," + ",".join(f"{key}={value:d}" for key, value in self.choice.items()),
            *([] if self.model != "v4" else [f"indexer_scores:{indexer},topk=128"]),
            f"indexer_bwd:{indexer},topk=128",
            "indexer_loss:topk=128",
        ]

    def indexer(self, x, shard):
        """The indexer's queries, keys and weights. It is trained separately from the model: hence detach."""
        x = x.detach()
        iq = self.index_q(x).view(-1, INDEX_HEADS, INDEX_DIM).bfloat16()
        ik = shard.gather(self.index_k(x).bfloat16())
        ik = ik.unflatten(0, (-1, POOL)).mean(1) if "expand" in self.choice else ik
        weights = self.index_weights(x).float() * (INDEX_HEADS * INDEX_DIM) ** -0.5
        return iq, ik, weights

    def chain(self, q, kv, iq, ik, weights, begin, end, options):
        """Lists of what the indexer chooses and the last WINDOW tokens, attention and the indexer's loss, call by call."""
        backend = options["backend"]
        with torch.no_grad():
            chosen, _, _ = smelt.indexer_topk(iq, ik, weights, begin, end - WINDOW, TOPK, backend=backend)
            last = end[:, None] - torch.arange(1, WINDOW + 1, device=end.device, dtype=torch.int32)
            indices = torch.cat([chosen, last.masked_fill(last < begin[:, None], -1)], 1)
        logits = smelt.indexer_scores(iq, ik, weights, indices, backend=backend)
        out, lse = smelt.sparse_attention(q, kv, indices, self.scale, sink=self.sink, return_lse=True, **options)
        target = smelt.sparse_scores(q, kv, indices, lse, self.scale, dv=VALUE, backend=backend)
        return out, smelt.indexer_loss(logits, target, indices, rows=len(kv), backend=backend)

    def forward(self, x, begin, end, pools, shard, published, backend):
        """The result, the indexer's loss, and the blocks that later layers choose within or None."""
        q = self.q(x).view(-1, HEADS, self.dqk)
        kv = shard.gather(self.kv(x))
        given = q, kv, *self.indexer(x, shard)
        options = {"dv": VALUE, "dkv_dtype": torch.float32, "backend": backend}
        if self.model == "v4":
            out, loss = self.chain(*given, begin, end, options)
        else:
            choice = dict(self.choice, sink=self.sink)
            if "expand" in choice:
                begin, end, choice["limit"] = *pools, end  # documents begin at multiples of POOL: no offset
            if "candidate_block" in choice:
                choice["candidates"] = published
            out, loss, _, *made = smelt.indexed_attention(*given, begin, end, scale=self.scale, **choice, **options)
            published = made[0] if made else published
        return self.out(smelt.project_values(out, self.values).flatten(1)), loss, published


class Model(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.positions = nn.Embedding(max(DOCUMENTS), WIDTH)
        self.layers = nn.ModuleList(
            nn.ModuleList(
                [
                    nn.LayerNorm(WIDTH),
                    Attention(model, layer),
                    nn.LayerNorm(WIDTH),
                    nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)),
                ]
            )
            for layer in range(LAYERS)
        )
        self.last = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens, positions, begin, end, pools, shard, backend):
        x, indexer, published = self.words(tokens) + self.positions(positions), 0.0, None
        for before, attention, between, feed in self.layers:
            attended, loss, published = attention(before(x), begin, end, pools, shard, published, backend)
            x, indexer = x + attended, indexer + loss
            x = x + feed(between(x))
        return self.last(x), indexer


def batch(step, device):
    """tokens, the token after each (-100: none), positions in the documents."""
    made = torch.Generator().manual_seed(step)
    tokens = [
        torch.randint(WORDS, (PERIOD,), generator=made).repeat(-(-length // PERIOD) + 1)[: length + 1]
        for length in DOCUMENTS
    ]
    follow = [document[1:].masked_fill(torch.arange(len(document) - 1) < PERIOD, -100) for document in tokens]
    positions = [torch.arange(length) for length in DOCUMENTS]
    return (
        torch.cat([document[:-1] for document in tokens]).to(device),
        torch.cat(follow).to(device),
        torch.cat(positions).to(device),
    )


def train(model_name="glm", steps=20, backend="smelt", device="cuda", rate=3e-3):
    """The losses of the steps (of the model, of the indexer), and the model."""
    torch.manual_seed(0)
    model = Model(model_name).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    total = sum(DOCUMENTS)
    seqlens = torch.tensor([0, *DOCUMENTS], dtype=torch.int32).cumsum(0).int().to(device)
    shard = Shard(total, device)
    own = {"query_indices": shard.rows.int(), "backend": backend}
    begin, end = smelt.indexer_windows(seqlens, len(shard.rows), total, **own)
    pools = {"ratio": POOL, "cu_seqlens_keys": seqlens // POOL, **own}
    pools = smelt.indexer_windows(seqlens, len(shard.rows), total // POOL, **pools)
    losses = []
    for step in range(steps):
        tokens, follow, positions = (part[shard.rows] for part in batch(step, device))
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            logits, indexer = model(tokens, positions, begin, end, pools, shard, backend)
        words = F.cross_entropy(logits.float(), follow, reduction="sum")
        counted = sum(length - PERIOD for length in DOCUMENTS)
        optimizer.zero_grad()
        (words / counted + indexer / total).backward()
        both = torch.stack([words.detach() / counted, indexer.detach() / total])
        if shard.ranks > 1:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            dist.all_reduce(both)
        optimizer.step()
        losses.append(both.tolist())
    return losses, model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="glm")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--backend", choices=("smelt", "torch"), default="smelt")
    parser.add_argument("--device", default="cuda", help="cpu: on smelt's emulator, or with --backend torch")
    options = parser.parse_args()
    device = options.device
    if "RANK" in os.environ:
        dist.init_process_group("nccl" if device == "cuda" else "gloo")
        if device == "cuda":
            device = f"cuda:{os.environ['LOCAL_RANK']}"
            torch.cuda.set_device(device)
    losses, _ = train(options.model, options.steps, options.backend, device)
    if not dist.is_initialized() or dist.get_rank() == 0:
        for step in sorted({*range(0, len(losses), max(1, len(losses) // 10)), len(losses) - 1}):
            print(f"step {step:4}   words {losses[step][0]:.4f}   indexer {losses[step][1]:.4f}")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
