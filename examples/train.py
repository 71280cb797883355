#!/usr/bin/env python3
"""Trains a small model with sparse attention and a learnt indexer.

    python examples/train.py [--model NAME] [--steps N] [--dense N] [--warm-up N]     on one GPU
    torchrun --nproc-per-node 2 examples/train.py          context parallel: each rank has a part of every document's queries
    ... --backend torch [--device cpu]                     the eager reference, to compare losses

Packed documents of random words that repeat with a fixed period: each token equals the one a period before it, which
the model learns to look up. Two layers of

    dsa              absorbed MLA as in DeepSeek-V3.2 and GLM-5: dqk is dv plus 64 rotary columns, values are projected up per
                     head; the indexer chooses single keys
    v4               as DeepSeek-V4: dqk = dv, a learnt sink; lists have the last tokens in addition to the selected ones
    glm-5.3-flash    without rotary columns; the indexer chooses pools of 4 keys, and the keys after the last complete pool are
                     always attended to
    deepseek-v4.1    as v4, but the last tokens count among the selected ones; the first layer publishes blocks of keys, and the
                     second layer chooses its keys within them
    msa              grouped heads as in MiniMax-M3: an indexer head for each KV head chooses blocks of keys by their largest
                     logit, and always the query's own block
    qsa              grouped heads as in Qwen3.8-Flash-Next: one list of pools of 4 keys for all heads; the indexer has no weights

The order is that of the models' papers. First the model is trained with dense attention, without indexers. Then the model is
frozen, and the indexers alone are warmed up: trained towards dense attention's distribution over all keys, pools or blocks
(`indexer_dense_loss`). Then attention is sparse, the model is trained on, and the indexers are trained towards attention's
distribution over what they chose. Neither loss needs a
tokens x tokens matrix. Context parallel: queries are divided in zigzag order, so that ranks have equal work; keys are
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
DOCUMENTS, PERIOD = (24, 40), 5  # tokens of each document; multiples of POOL and of twice the ranks
POOL = 4  # keys of a pool (glm-5.3-flash, qsa) and of a published block (deepseek-v4.1)
BLOCK, BLOCKS = 128, 2  # msa: keys of a block, which begins every document, and how many blocks a query attends to
PUBLISHED = 4  # deepseek-v4.1: blocks that the first layer publishes
KV_HEADS, GROUP = 2, 3  # msa, qsa: KV heads, and the heads that read each
DENSE, WARM_UP, SPARSE = "dense", "warm-up", "sparse"  # phases
MODELS = ("dsa", "v4", "glm-5.3-flash", "deepseek-v4.1", "msa", "qsa")


def documents_of(model):
    return (2 * BLOCK, 3 * BLOCK) if model == "msa" else DOCUMENTS


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


class Indexed(nn.Module):
    """Shared by the kinds of attention: an indexer, which is trained separately from the model (hence detach)."""

    heads, dim, weighted = INDEX_HEADS, INDEX_DIM, True

    def __init__(self):
        super().__init__()
        self.index_q = nn.Linear(WIDTH, self.heads * self.dim, bias=False)
        self.index_k = nn.Linear(WIDTH, self.dim, bias=False)
        self.index_weights = nn.Linear(WIDTH, self.heads, bias=False) if self.weighted else None
        self.index_scale = (self.heads * self.dim) ** -0.5

    def indexer(self, x, shard):
        """The indexer's queries, keys and weights."""
        x = x.detach()
        iq = self.index_q(x).view(-1, self.heads, self.dim).bfloat16()
        ik = shard.gather(self.index_k(x).bfloat16())
        if self.index_weights is None:
            return iq, ik, torch.full(iq.shape[:2], self.index_scale, device=iq.device)
        return iq, ik, self.index_weights(x).float() * self.index_scale


def pooled(ik):
    """A key for each pool."""
    return ik.float().unflatten(0, (-1, POOL)).mean(1).bfloat16()


class Latent(Indexed):
    """Queries' heads read one latent row for each token, whose first VALUE columns are the value."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.dqk = VALUE + (ROPE if model == "dsa" else 0)
        self.pool = POOL if model == "glm-5.3-flash" else 1
        self.scale = self.dqk**-0.5
        self.q = nn.Linear(WIDTH, HEADS * self.dqk, bias=False)
        self.kv = nn.Linear(WIDTH, self.dqk, bias=False)
        self.values = nn.Parameter(torch.randn(HEADS, WIDTH // HEADS, VALUE) * VALUE**-0.5)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.sink = nn.Parameter(torch.zeros(HEADS)) if model in ("v4", "deepseek-v4.1") else None

    def smelt_specs(self):
        """For smelt.warm(model)."""
        attention = f"heads={HEADS},dqk={self.dqk},dv={VALUE},topk=128"
        indexer = f"heads={INDEX_HEADS},dim={INDEX_DIM}"
        sink = "" if self.sink is None else ",sink=1"
        dense = f"heads={HEADS},dqk={self.dqk},kv_heads=1"
        options = {
            "dsa": [f"topk={TOPK}"],
            "v4": [f"topk={TOPK}"],
            "glm-5.3-flash": [f"topk={TOPK // POOL},expand={POOL},tail=1"],
            "deepseek-v4.1": [
                f"topk={TOPK + WINDOW},pinned={WINDOW},publish={PUBLISHED},publish_block={POOL},publish_pinned=1",
                f"topk={TOPK + WINDOW},candidate_block={POOL}",
            ],
        }[self.model]
        return [
            f"sparse_attn:{attention}{sink},passes=both",
            f"sparse_scores:{attention}",
            *(f"indexer_topk:{indexer},dtype=bf16,{each}" for each in options),
            *([f"indexer_scores:{indexer},topk=128"] if self.model == "v4" else []),
            f"indexer_bwd:{indexer},topk=128",
            "indexer_loss:topk=128",
            f"dense_lse:{dense}",
            f"indexer_dense_loss:{dense},index_heads={INDEX_HEADS},index_dim={INDEX_DIM},granularity={self.pool}",
        ]

    def dense(self, q, kv, begin, end, options):
        """Attention to every key of a query's window."""
        every = begin[:, None] + torch.arange(max(DOCUMENTS), device=end.device, dtype=torch.int32)
        every = every.masked_fill(every >= end[:, None], -1)
        return smelt.sparse_attention(q, kv, every, self.scale, sink=self.sink, return_lse=True, **options)

    def warm_up(self, q, kv, lse, iq, ik, weights, begin, end, backend):
        """The indexer's loss against dense attention."""
        keys = pooled(ik) if self.pool > 1 else ik
        given = q.detach(), kv.detach(), lse, iq, keys, weights, begin, end, self.scale
        return smelt.indexer_dense_loss(*given, granularity=self.pool, backend=backend)

    def sparse(self, q, kv, iq, ik, weights, begin, end, published, options):
        """Attention to what the indexer chooses, and the indexer's loss there, in one call; and what the layer publishes."""
        options = {"sink": self.sink, **options}
        if self.model == "glm-5.3-flash":
            keys, topk, begin, limit, end = pooled(ik), TOPK // POOL, begin // POOL, end, end // POOL
            options |= {"expand": POOL, "limit": limit, "tail": True}
        elif self.model == "deepseek-v4.1":
            keys, topk = ik, TOPK + WINDOW
            within = {"candidates": published, "candidate_block": POOL}
            between = {"pinned": WINDOW, "publish": PUBLISHED, "publish_block": POOL, "publish_pinned": 1}
            options |= between if published is None else within
        else:
            keys, topk = ik, TOPK
        out, loss, _, *publishes = smelt.indexed_attention(q, kv, iq, keys, weights, begin, end, topk, self.scale, **options)
        return out, loss, publishes[0] if publishes else None

    def chain(self, q, kv, iq, ik, weights, begin, end, options):
        """The same call by call, for lists that have the last tokens beside the chosen ones."""
        backend = options["backend"]
        with torch.no_grad():
            chosen, _, _ = smelt.indexer_topk(iq, ik, weights, begin, end - WINDOW, TOPK, backend=backend)
            last = end[:, None] - torch.arange(1, WINDOW + 1, device=end.device, dtype=torch.int32)
            rows = torch.cat([chosen, last.masked_fill(last < begin[:, None], -1)], 1)
        logits = smelt.indexer_scores(iq, ik, weights, rows, backend=backend)
        out, lse = smelt.sparse_attention(q, kv, rows, self.scale, sink=self.sink, return_lse=True, **options)
        target = smelt.sparse_scores(q, kv, rows, lse, self.scale, dv=VALUE, backend=backend)
        return out, smelt.indexer_loss(logits, target, rows, rows=len(ik), backend=backend), None

    def forward(self, x, begin, end, shard, backend, phase, published):
        q = self.q(x).view(-1, HEADS, self.dqk)
        kv = shard.gather(self.kv(x))
        options = {"dv": VALUE, "dkv_dtype": torch.float32, "backend": backend}
        loss, publishes = 0.0, None
        if phase == SPARSE and self.model == "v4":
            out, loss, _ = self.chain(q, kv, *self.indexer(x, shard), begin, end, options)
        elif phase == SPARSE:
            out, loss, publishes = self.sparse(q, kv, *self.indexer(x, shard), begin, end, published, options)
        else:
            out, lse = self.dense(q, kv, begin, end, options)
            if phase == WARM_UP:
                loss = self.warm_up(q, kv, lse, *self.indexer(x, shard), begin, end, backend)
        return self.out(smelt.project_values(out, self.values).flatten(1)), loss, publishes


class Grouped(Indexed):
    """Keys and values apart, KV_HEADS of them."""

    heads, weighted = KV_HEADS, False

    def __init__(self, model):
        super().__init__()
        self.model, self.scale = model, VALUE**-0.5
        self.q = nn.Linear(WIDTH, KV_HEADS * GROUP * VALUE, bias=False)
        self.kv = nn.Linear(WIDTH, 2 * KV_HEADS * VALUE, bias=False)
        self.out = nn.Linear(KV_HEADS * GROUP * VALUE, WIDTH, bias=False)

    def smelt_specs(self):
        """For smelt.warm(model)."""
        heads = KV_HEADS * GROUP
        attention = f"heads={heads},kv_heads={KV_HEADS},dqk={VALUE},dv={VALUE},topk=128"
        lists = f"granularity={BLOCK},lists=kv" if self.model == "msa" else f"granularity={POOL}"
        indexer = f"heads={self.heads},dim={self.dim},dtype=bf16,weights=0"
        of_msa = f"topk={BLOCKS},activation=none,groups={KV_HEADS},block_max={BLOCK},pinned=1"
        return [
            f"sparse_gqa:{attention},{lists},passes=both",
            f"sparse_gqa_scores:{attention},{lists}",
            f"indexer_topk:{indexer},{of_msa if self.model == 'msa' else f'topk={TOPK // POOL}'}",
            "indexer_loss:topk=128",
        ]

    def dense(self, q, k, v, begin, end, options):
        """Attention to every key of a query's window."""
        granularity = BLOCK if self.model == "msa" else POOL  # of which every document begins at a multiple
        longest = max(documents_of(self.model)) // granularity
        every = begin[:, None] // granularity + torch.arange(longest, device=end.device, dtype=torch.int32)
        named = {"granularity": granularity, "limit": end, **options}
        return smelt.sparse_gqa(q, k, v, every.unsqueeze(1), self.scale, return_lse=True, **named)

    def warm_up(self, q, k, lse, iq, ik, weights, begin, end, backend):
        """The indexer's loss against dense attention."""
        slots = {"groups": KV_HEADS, "activation": "none", "block_max": BLOCK}  # of each KV head's indexer
        if self.model == "qsa":
            ik, slots = pooled(ik), {"granularity": POOL}
        given = q.detach(), k.detach(), lse, iq, ik, weights, begin, end, self.scale
        return smelt.indexer_dense_loss(*given, **slots, backend=backend)

    def blocks(self, q, k, v, iq, ik, begin, end, options):
        """MiniMax-M3's: blocks for each KV head."""
        backend = options["backend"]
        scoring = {"activation": "none", "scale": self.index_scale, "block_max": BLOCK, "backend": backend}
        with torch.no_grad():
            choice = iq, ik, None, begin, end, BLOCKS
            lists, _, _ = smelt.indexer_topk(*choice, groups=KV_HEADS, pinned=1, **scoring)
        named = {"granularity": BLOCK, "limit": end, **options}
        out, lse = smelt.sparse_gqa(q, k, v, lists, self.scale, return_lse=True, **named)
        target = smelt.sparse_gqa_scores(q, k, lists, lse, self.scale, granularity=BLOCK, limit=end, backend=backend)
        logits = smelt.indexer_scores(iq, ik, None, lists, limit=end, **scoring)
        return out, smelt.indexer_loss(logits, target, lists, backend=backend)

    def pools(self, q, k, v, iq, ik, weights, begin, end, options):
        """Qwen3.8-Flash-Next's: pools for all heads, and the keys after the last complete one."""
        backend, keys = options["backend"], pooled(ik)
        with torch.no_grad():
            choice = iq, keys, None, begin // POOL, end // POOL, TOPK // POOL
            entries, _, _ = smelt.indexer_topk(*choice, scale=self.index_scale, backend=backend)
            tail = end[:, None] // POOL  # its keys up to the limit count
            lists = torch.cat([entries, tail], 1).unsqueeze(1)
        named = {"granularity": POOL, "limit": end, **options}
        out, lse = smelt.sparse_gqa(q, k, v, lists, self.scale, return_lse=True, **named)
        given = entries.unsqueeze(1), lse, self.scale
        target = smelt.sparse_gqa_scores(q, k, *given, granularity=POOL, limit=end, backend=backend)
        logits = smelt.indexer_scores(iq, keys, weights, entries, backend=backend)
        return out, smelt.indexer_loss(logits, target[:, 0], entries, rows=len(keys), backend=backend)

    def forward(self, x, begin, end, shard, backend, phase, _):
        q = self.q(x).view(-1, KV_HEADS * GROUP, VALUE)
        k, v = shard.gather(self.kv(x)).view(-1, 2, KV_HEADS, VALUE).unbind(1)
        options = {"dk_dtype": torch.float32, "dv_dtype": torch.float32, "backend": backend}
        loss = 0.0
        if phase == SPARSE:
            iq, ik, weights = self.indexer(x, shard)
            if self.model == "msa":
                out, loss = self.blocks(q, k, v, iq, ik, begin, end, options)
            else:
                out, loss = self.pools(q, k, v, iq, ik, weights, begin, end, options)
        else:
            out, lse = self.dense(q, k, v, begin, end, options)
            if phase == WARM_UP:
                loss = self.warm_up(q, k, lse, *self.indexer(x, shard), begin, end, backend)
        return self.out(out.flatten(1)), loss, None


class Model(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.positions = nn.Embedding(max(documents_of(model)), WIDTH)
        self.layers = nn.ModuleList(
            nn.ModuleList(
                [
                    nn.LayerNorm(WIDTH),
                    (Grouped if model in ("msa", "qsa") else Latent)(model),
                    nn.LayerNorm(WIDTH),
                    nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)),
                ]
            )
            for _ in range(LAYERS)
        )
        self.last = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens, positions, begin, end, shard, backend, phase):
        x, indexer, published = self.words(tokens) + self.positions(positions), 0.0, None
        for before, attention, between, feed in self.layers:
            attended, loss, published = attention(before(x), begin, end, shard, backend, phase, published)
            x, indexer = x + attended, indexer + loss
            x = x + feed(between(x))
        return self.last(x), indexer

    def train_phase(self, phase):
        """Which parameters a phase trains."""
        for name, parameter in self.named_parameters():
            parameter.requires_grad_((phase != WARM_UP) if ".index_" not in name else (phase != DENSE))


def batch(step, documents, device):
    """tokens, the token after each (-100: none), positions in the documents."""
    made = torch.Generator().manual_seed(step)
    tokens = [
        torch.randint(WORDS, (PERIOD,), generator=made).repeat(-(-length // PERIOD) + 1)[: length + 1]
        for length in documents
    ]
    follow = [document[1:].masked_fill(torch.arange(len(document) - 1) < PERIOD, -100) for document in tokens]
    positions = [torch.arange(length) for length in documents]
    return (
        torch.cat([document[:-1] for document in tokens]).to(device),
        torch.cat(follow).to(device),
        torch.cat(positions).to(device),
    )


def phase_of(step, dense, warm_up):
    return DENSE if step < dense else WARM_UP if step < dense + warm_up else SPARSE


def train(model_name="dsa", steps=20, backend="smelt", device="cuda", rate=3e-3, dense=0, warm_up=0):
    """The losses of the steps (of the model, of the indexer), and the model. The first `dense` steps train the model with
    dense attention, the next `warm_up` the indexer alone."""
    torch.manual_seed(0)
    model = Model(model_name).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    documents = documents_of(model_name)
    total = sum(documents)
    seqlens = torch.tensor([0, *documents], dtype=torch.int32).cumsum(0).int().to(device)
    shard = Shard(total, device)
    begin, end = smelt.indexer_windows(seqlens, len(shard.rows), total, query_indices=shard.rows.int(), backend=backend)
    counted = sum(length - PERIOD for length in documents)
    losses = []
    for step in range(steps):
        phase = phase_of(step, dense, warm_up)
        model.train_phase(phase)
        tokens, follow, positions = (part[shard.rows] for part in batch(step, documents, device))
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            logits, indexer = model(tokens, positions, begin, end, shard, backend, phase)
        words = F.cross_entropy(logits.float(), follow, reduction="sum")
        optimizer.zero_grad()  # parameters without a gradient stay as they are
        (words / counted + indexer / total).backward()
        both = torch.stack([words.detach() / counted, torch.as_tensor(indexer, device=device).detach() / total])
        if shard.ranks > 1:
            for parameter in model.parameters():
                if parameter.grad is not None:
                    dist.all_reduce(parameter.grad)
            dist.all_reduce(both)
        optimizer.step()
        losses.append(both.tolist())
    return losses, model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="dsa")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--dense", type=int, help="the first steps, with dense attention (two fifths of them)")
    parser.add_argument("--warm-up", type=int, help="the next steps, of the indexer alone (a fifth of them)")
    parser.add_argument("--backend", choices=("smelt", "torch"), default="smelt")
    parser.add_argument("--device", default="cuda", help="cpu: on smelt's emulator, or with --backend torch")
    options = parser.parse_args()
    device = options.device
    if "RANK" in os.environ:
        dist.init_process_group("nccl" if device == "cuda" else "gloo")
        if device == "cuda":
            device = f"cuda:{os.environ['LOCAL_RANK']}"
            torch.cuda.set_device(device)
    dense = options.steps * 2 // 5 if options.dense is None else options.dense
    warm_up = options.steps // 5 if options.warm_up is None else options.warm_up
    losses, _ = train(options.model, options.steps, options.backend, device, dense=dense, warm_up=warm_up)
    if not dist.is_initialized() or dist.get_rank() == 0:
        ends = {dense - 1, dense, dense + warm_up - 1, dense + warm_up, len(losses) - 1} & {*range(len(losses))}
        for step in sorted({*range(0, len(losses), max(1, len(losses) // 10)), *ends}):
            phase = phase_of(step, dense, warm_up)
            indexer = "" if phase == DENSE else f"   indexer {losses[step][1]:.4f}"
            print(f"step {step:4}   {phase:7}   words {losses[step][0]:.4f}{indexer}")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
