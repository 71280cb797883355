#!/usr/bin/env python3
"""Trains a small model with sparse attention and a learnt indexer.

    python examples/train.py [--model NAME] [--steps N] [--dense N] [--warm-up N]     on one GPU
    torchrun --nproc-per-node 2 examples/train.py          context parallel: each rank has some queries
    ... --backend torch [--device cpu]                     the eager reference, to compare losses
    smelt-kernels emulate -- python examples/train.py --device cpu --steps 10     without a GPU: minutes

Packed documents of random words that repeat with a fixed period: each token equals the one a period before it, which
the model learns to look up. Two layers of

    dsa              absorbed MLA as in DeepSeek-V3.2 and GLM-5: dqk is dv plus 64 rotary columns, values are projected up per
                     head; the indexer chooses single keys
    v4               as DeepSeek-V4: dqk = dv, a learnt sink; lists have the last tokens in addition to the selected ones
    glm-5.3-flash    without rotary columns; the indexer chooses pools of 4 keys, and the keys after the last complete pool are
                     always attended to
    deepseek-v4.1    as v4; the first layer publishes blocks of keys, and the second layer chooses its keys within them
    msa              grouped heads as in MiniMax-M3: an indexer head for each KV head chooses blocks of keys by their largest
                     logit, and always the query's own block
    qsa              grouped heads as in Qwen3.8-Flash-Next: one list of pools of 4 keys for all heads; the indexer has no weights

The stages are those of DeepSeek-V3.2's training. First the model is trained with dense attention, without indexers. Then the
model is frozen and the indexers alone are warmed up: trained towards dense attention's distribution over all keys, pools or
blocks (`indexer_dense_loss`). In the third stage attention is sparse: training of the model continues, and the indexers are
trained towards attention's distribution over what they chose. Neither loss needs a tokens x tokens matrix. The warm-up
needs a trained model: at first attention is nearly uniform and gives the indexers nothing to learn.

Context parallel: queries are divided in zigzag order, so that ranks have equal work; keys are gathered, and the backward pass
sums their gradients.
"""

import argparse
import os
import time

import smelt_kernels as smelt
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

WORDS, LAYERS, WIDTH, HEADS, VALUE, ROPE = 32, 2, 64, 2, 64, 64
INDEX_HEADS, INDEX_DIM, TOPK, WINDOW = 2, 64, 8, 4
DOCUMENTS, PERIOD = (24, 40), 5  # tokens of each document; multiples of POOL and of twice the ranks
POOL = 4  # keys of a pool (glm-5.3-flash, qsa) and of a published block (deepseek-v4.1)
BLOCK, BLOCKS = 16, 2  # msa: keys of a block, which begins every document, and how many blocks a query attends to
PUBLISHED = 4  # deepseek-v4.1: blocks that the first layer publishes
KV_HEADS, GROUP = 2, 3  # msa, qsa: KV heads, and the heads that read each
DENSE, WARM_UP, SPARSE = "dense", "warm-up", "sparse"  # the stages
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
    """What both kinds of attention share: an indexer, which is trained separately from the model (hence detach)."""

    def __init__(self, model, heads, weighted):
        super().__init__()
        self.model, self.heads = model, heads
        self.index_q = nn.Linear(WIDTH, heads * INDEX_DIM, bias=False)
        self.index_k = nn.Linear(WIDTH, INDEX_DIM, bias=False)
        self.index_weights = nn.Linear(WIDTH, heads, bias=False) if weighted else None
        self.index_scale = (heads * INDEX_DIM) ** -0.5

    def indexer(self, x, shard):
        """The indexer's queries, keys and weights."""
        x = x.detach()
        iq = self.index_q(x).view(-1, self.heads, INDEX_DIM).bfloat16()
        ik = shard.gather(self.index_k(x).bfloat16())
        if self.index_weights is None:
            return iq, ik, torch.full(iq.shape[:2], self.index_scale, device=iq.device)
        return iq, ik, self.index_weights(x).float() * self.index_scale


def pooled(ik):
    """A key for each pool."""
    return ik.float().unflatten(0, (-1, POOL)).mean(1).bfloat16()


class Latent(Indexed):
    """All heads read one latent row for each token, whose first VALUE columns are the value."""

    def __init__(self, model):
        super().__init__(model, INDEX_HEADS, True)
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
        heads = f"heads={INDEX_HEADS}"
        indexer = f"{heads},dim={INDEX_DIM}"
        sink = "" if self.sink is None else ",sink=1"
        options = {
            "dsa": [f"topk={TOPK}"],
            "v4": [f"topk={TOPK}"],
            "glm-5.3-flash": [f"topk={TOPK // POOL},expand={POOL},tail=1"],
            "deepseek-v4.1": [
                f"topk={TOPK},publish={PUBLISHED},publish_block={POOL},publish_pinned=1",
                f"topk={TOPK},candidate_block={POOL}",
            ],
        }[self.model]
        return [
            "indexer_windows",
            f"sparse_attn:{attention}{sink},passes=both",
            f"sparse_scores:{attention}",
            *(f"indexer_topk:{indexer},dtype=bf16,{each}" for each in options),
            f"indexer_scores:{indexer},topk=128",
            f"indexer_bwd:{indexer},topk=128",
            "indexer_loss:topk=128",
            f"indexer_dense_loss:heads={HEADS},dqk={self.dqk},index_{heads},index_dim={INDEX_DIM},granularity={self.pool}",
        ]

    def dense(self, q, kv, begin, end, options):
        """Attention to every key of a query's window."""
        every = begin[:, None] + torch.arange(max(documents_of(self.model)), device=end.device, dtype=torch.int32)
        every = every.masked_fill(every >= end[:, None], -1)
        return smelt.sparse_attention(q, kv, every, self.scale, sink=self.sink, return_lse=True, **options)

    def warm_up(self, q, kv, lse, iq, ik, weights, begin, end, backend):
        """The indexer's loss against dense attention, over all keys from which it may choose."""
        keys = pooled(ik) if self.pool > 1 else ik
        last = end if self.sink is None else end - WINDOW
        given = q.detach(), kv.detach(), lse, iq, keys, weights, begin, last, self.scale
        return smelt.indexer_dense_loss(*given, granularity=self.pool, backend=backend)

    def sparse(self, q, kv, iq, ik, weights, begin, end, options):
        """Attention to the keys that the indexer chooses, and the indexer's loss over them, in one call."""
        if self.model == "glm-5.3-flash":
            choice = pooled(ik), weights, begin // POOL, end // POOL, TOPK // POOL
            options = {"expand": POOL, "limit": end, "tail": True, **options}
        else:
            choice = ik, weights, begin, end, TOPK
        out, loss, _ = smelt.indexed_attention(q, kv, iq, *choice, self.scale, **options)
        return out, loss

    def chain(self, q, kv, iq, ik, weights, begin, end, published, options):
        """The same in separate calls, since lists have the last tokens in addition to the chosen ones, which alone count in
        the indexer's loss. Also returns the blocks that the layer publishes."""
        backend, named = options["backend"], {}
        if self.model == "deepseek-v4.1" and published is None:
            named = {"publish": PUBLISHED, "publish_block": POOL, "publish_pinned": 1}
        elif self.model == "deepseek-v4.1":
            named = {"candidates": published, "candidate_block": POOL}
        with torch.no_grad():
            choice = iq, ik, weights, begin, end - WINDOW, TOPK
            chosen, _, _, *publishes = smelt.indexer_topk(*choice, **named, backend=backend)
            last = end[:, None] - torch.arange(1, WINDOW + 1, device=end.device, dtype=torch.int32)
            rows = torch.cat([chosen, last.masked_fill(last < begin[:, None], -1)], 1)
        logits = smelt.indexer_scores(iq, ik, weights, chosen, backend=backend)
        out, lse = smelt.sparse_attention(q, kv, rows, self.scale, sink=self.sink, return_lse=True, **options)
        target = smelt.sparse_scores(q, kv, rows, lse, self.scale, dv=VALUE, backend=backend)
        loss = smelt.indexer_loss(logits, target[:, :TOPK], chosen, rows=len(ik), backend=backend)
        return out, loss, publishes[0] if publishes else None

    def forward(self, x, begin, end, shard, backend, stage, published):
        q = self.q(x).view(-1, HEADS, self.dqk)
        kv = shard.gather(self.kv(x))
        options = {"dv": VALUE, "dkv_dtype": torch.float32, "backend": backend}
        loss, publishes = 0.0, None
        if stage == SPARSE and self.sink is None:
            out, loss = self.sparse(q, kv, *self.indexer(x, shard), begin, end, options)
        elif stage == SPARSE:
            out, loss, publishes = self.chain(q, kv, *self.indexer(x, shard), begin, end, published, options)
        else:
            out, lse = self.dense(q, kv, begin, end, options)
            if stage == WARM_UP:
                loss = self.warm_up(q, kv, lse, *self.indexer(x, shard), begin, end, backend)
        return self.out(smelt.project_values(out, self.values).flatten(1)), loss, publishes


class Grouped(Indexed):
    """Keys and values apart, KV_HEADS of them."""

    def __init__(self, model):
        super().__init__(model, KV_HEADS if model == "msa" else INDEX_HEADS, False)
        self.scale = VALUE**-0.5
        self.q = nn.Linear(WIDTH, KV_HEADS * GROUP * VALUE, bias=False)
        self.kv = nn.Linear(WIDTH, 2 * KV_HEADS * VALUE, bias=False)
        self.out = nn.Linear(KV_HEADS * GROUP * VALUE, WIDTH, bias=False)

    def smelt_specs(self):
        """For smelt.warm(model)."""
        attention = f"heads={KV_HEADS * GROUP},kv_heads={KV_HEADS},dqk={VALUE}"
        if self.model == "msa":
            lists, choice = f"granularity={BLOCK},lists=kv", f"groups={KV_HEADS},block_max={BLOCK},topk={BLOCKS},pinned=1"
            scored, slots, warm_up = 1, f"granularity={BLOCK},block_max={BLOCK}", f"groups={KV_HEADS},block_max={BLOCK}"
            activation = "activation=none"
        else:
            lists, choice = f"granularity={POOL}", f"topk={TOPK // POOL}"
            scored, slots, warm_up, activation = self.heads, "granularity=1", f"granularity={POOL}", "activation=relu"
        return [
            "indexer_windows",
            f"sparse_gqa:{attention},dv={VALUE},topk=128,{lists},passes=both",
            f"sparse_gqa_scores:{attention},topk=128,{lists}",
            f"indexer_topk:heads={self.heads},dim={INDEX_DIM},dtype=bf16,weights=0,{activation},{choice}",
            f"indexer_scores:heads={scored},dim={INDEX_DIM},topk=128,{activation},{slots}",
            f"indexer_bwd:heads={scored},dim={INDEX_DIM},topk=128,{activation}",
            "indexer_loss:topk=128",
            f"indexer_dense_loss:{attention},index_heads={self.heads},index_dim={INDEX_DIM},{activation},{warm_up}",
        ]

    def dense(self, q, k, v, begin, end, options):
        """Attention to every key of a query's window."""
        granularity, lists = (BLOCK, KV_HEADS) if self.model == "msa" else (POOL, 1)  # documents begin at multiples of it
        longest = -(-max(documents_of(self.model)) // granularity)
        every = begin[:, None] // granularity + torch.arange(longest, device=end.device, dtype=torch.int32)
        named = {"granularity": granularity, "limit": end, **options}
        every = every.unsqueeze(1).expand(-1, lists, -1)
        return smelt.sparse_gqa(q, k, v, every, self.scale, return_lse=True, **named)

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

    def forward(self, x, begin, end, shard, backend, stage, _):
        q = self.q(x).view(-1, KV_HEADS * GROUP, VALUE)
        k, v = shard.gather(self.kv(x)).view(-1, 2, KV_HEADS, VALUE).unbind(1)
        options = {"dk_dtype": torch.float32, "dv_dtype": torch.float32, "backend": backend}
        loss = 0.0
        if stage == SPARSE:
            iq, ik, weights = self.indexer(x, shard)
            if self.model == "msa":
                out, loss = self.blocks(q, k, v, iq, ik, begin, end, options)
            else:
                out, loss = self.pools(q, k, v, iq, ik, weights, begin, end, options)
        else:
            out, lse = self.dense(q, k, v, begin, end, options)
            if stage == WARM_UP:
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

    def forward(self, tokens, positions, begin, end, shard, backend, stage):
        x, indexer, published = self.words(tokens) + self.positions(positions), 0.0, None
        for before, attention, between, feed in self.layers:
            attended, loss, published = attention(before(x), begin, end, shard, backend, stage, published)
            x, indexer = x + attended, indexer + loss
            x = x + feed(between(x))
        return self.last(x), indexer

    def train_stage(self, stage):
        """Which parameters a stage trains."""
        for name, parameter in self.named_parameters():
            parameter.requires_grad_((stage != WARM_UP) if ".index_" not in name else (stage != DENSE))


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


def stage_of(step, dense, warm_up):
    return DENSE if step < dense else WARM_UP if step < dense + warm_up else SPARSE


def train(model_name="dsa", steps=20, backend="smelt", device="cuda", rate=3e-3, dense=0, warm_up=0, progress=None):
    """The losses of the steps (of the model, of the indexer), and the model. The first `dense` steps train the model with
    dense attention, the next `warm_up` the indexer alone. After each step `progress` is called with the losses so far."""
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
        stage = stage_of(step, dense, warm_up)
        model.train_stage(stage)
        tokens, follow, positions = (part[shard.rows] for part in batch(step, documents, device))
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            logits, indexer = model(tokens, positions, begin, end, shard, backend, stage)
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
        if progress:
            progress(losses)
    return losses, model


class Progress:
    """Prints the mean losses of the steps since its last line (a single step's depend on the step's words): at the end of
    each fifth of a stage, and after the first step that ends ten seconds or more after the last line."""

    def __init__(self, steps, dense, warm_up):
        self.stages = (DENSE, 0, dense), (WARM_UP, dense, dense + warm_up), (SPARSE, dense + warm_up, steps)
        self.first, self.time = 0, time.monotonic()

    def __call__(self, losses):
        done, now = len(losses), time.monotonic()
        stage, begin, end = next(each for each in self.stages if done <= each[2])
        if (done - begin) % max(1, (end - begin) // 5) and done < end and now < self.time + 10:
            return
        words, indexer = (sum(each) / (done - self.first) for each in zip(*losses[self.first :]))
        of_indexer = "" if stage == DENSE else f"   indexer {indexer:.4f}"
        print(f"steps {self.first:4} to {done - 1:4}   {stage:7}   words {words:.4f}{of_indexer}", flush=True)
        self.first, self.time = done, now


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="dsa")
    parser.add_argument("--steps", type=int, default=400)
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
    first_rank = not dist.is_initialized() or dist.get_rank() == 0
    progress = Progress(options.steps, dense, warm_up) if first_rank else None
    train(options.model, options.steps, options.backend, device, dense=dense, warm_up=warm_up, progress=progress)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
