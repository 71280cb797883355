"""What type checkers must find of the package: test_typing.py checks this file, and nothing runs it. A line with
`type: ignore` must be an error, else the checkers complain of the comment."""

import torch
from smelt_kernels.compat import Report
from torch import Tensor
from typing_extensions import assert_type

import smelt_kernels as smelt


def attention(q: Tensor, kv: Tensor, indices: Tensor, flag: bool) -> None:
    call = smelt.sparse_attention
    assert_type(call(q, kv, indices, 0.1), Tensor)
    assert_type(call(q, kv, indices, 0.1, return_lse=False, dv=64, topk=128, buckets="auto"), Tensor)
    assert_type(call(q, kv, indices, 0.1, return_lse=True, lse="base2"), tuple[Tensor, Tensor])
    assert_type(call(q, kv, indices, 0.1, return_max_logits=True, buckets=[128, 512]), tuple[Tensor, Tensor])
    three = call(q, kv, indices, 0.1, return_lse=True, return_max_logits=True, backend="smelt")
    assert_type(three, tuple[Tensor, Tensor, Tensor])
    assert_type(call(q, kv, indices, 0.1, return_lse=flag), Tensor | tuple[Tensor, ...])
    every = call(
        q,
        kv,
        indices,
        scale=1,
        dv=None,
        topk=None,
        topk_length=None,
        sink=q,
        buckets=None,
        deterministic=True,
        dkv_dtype=torch.float32,
        queries=indices,
        query_count=indices,
        free_multiprocessors=1,
        workspace_limit=1 << 30,
        lse="natural",
        backend=None,
    )
    assert_type(every, Tensor)
    call(q, kv, indices)  # type: ignore
    call(q, kv, indices, 0.1, lse="base10")  # type: ignore
    call(q, kv, indices, 0.1, buckets="all")  # type: ignore
    call(q, kv, indices, 0.1, backend="cuda")  # type: ignore
    call(q, kv, indices, 0.1, top_k=128)  # type: ignore
    out, lse = call(q, kv, indices, 0.1)[0], call(q, kv, indices, 0.1, return_lse=True)[1]
    gradients = smelt.sparse_attention_backward(q, q, kv, indices, out, lse, 0.1, buckets="auto")
    assert_type(gradients, tuple[Tensor, Tensor, Tensor | None])
    smelt.sparse_attention_backward(q, q, kv, indices, out, lse, 0.1, buckets="all")  # type: ignore


def indexer(q: Tensor, k: Tensor, weights: Tensor, indices: Tensor, flag: bool) -> None:
    begin, end = smelt.indexer_windows(indices, 4, 4)
    windows = begin, end
    assert_type(windows, tuple[Tensor, Tensor])
    assert_type(smelt.quantize(q, scale="power_of_two"), tuple[Tensor, Tensor])
    assert_type(smelt.fake_quantize(q, group_size=64), Tensor)
    assert_type(smelt.indexer_logits(q, k, weights, begin, end), Tensor)
    assert_type(smelt.clean_logits_(q, begin, end), Tensor)
    assert_type(smelt.topk_select(q, 2, order="score"), tuple[Tensor, Tensor, Tensor])
    assert_type(smelt.indexer_topk(q, k, weights, begin, end, 2, order="index"), tuple[Tensor, Tensor, Tensor])
    published = smelt.indexer_topk(q, k, None, begin, end, 2, scale=0.5, activation="none", groups=2, publish=4, publish_block=8)
    assert_type(published, tuple[Tensor, Tensor, Tensor, Tensor])
    within = smelt.indexer_topk(q, k, weights, begin, end, 2, candidates=published[3], candidate_block=8, publish=None)
    smelt.indexer_topk(q, k, weights, begin, end, 2, logits_dtype=torch.bfloat16)
    assert_type(within, tuple[Tensor, Tensor, Tensor])
    either = smelt.indexer_topk(q, k, weights, begin, end, 2, publish=4 if flag else None)
    assert_type(either, tuple[Tensor, Tensor, Tensor] | tuple[Tensor, Tensor, Tensor, Tensor])
    assert_type(smelt.indexer_logits(q, k, None, begin, end, scale=1, block_max=4), Tensor)
    rows = smelt.topk_select(q, 2, pinned=1, expand=4, limit=end, tail=True, width=16)
    assert_type(rows, tuple[Tensor, Tensor, Tensor])
    smelt.indexer_logits(q, k, weights, begin, end, activation="gelu")  # type: ignore
    assert_type(smelt.project_values(q, k), Tensor)
    smelt.quantize(q, scale="half")  # type: ignore
    smelt.topk_select(q, 2, order="value")  # type: ignore
    smelt.indexer_topk(q, k, weights, begin, end, 2, order="value")  # type: ignore


def training(q: Tensor, k: Tensor, weights: Tensor, indices: Tensor, flag: bool) -> None:
    assert_type(smelt.sparse_gqa(q, k, k, indices, 0.1, granularity=4), Tensor)
    assert_type(smelt.sparse_gqa_scores(q, k, indices, weights, 0.1, granularity=4), Tensor)
    assert_type(smelt.sparse_gqa(q, k, k, indices, 0.1, granularity=4, return_lse=True), tuple[Tensor, Tensor])
    target = smelt.sparse_scores(q, k, indices, weights, 0.1)
    logits = smelt.indexer_scores(q, k, weights, indices, dk_dtype=torch.float32)
    assert_type(target, Tensor)
    assert_type(logits, Tensor)
    assert_type(smelt.indexer_backward(logits, q, k, weights, indices), tuple[Tensor, Tensor, Tensor])
    made = smelt.indexed_attention(q, k, q, k, weights, indices, indices, 8, 0.1, query_weight=target, buckets="auto")
    assert_type(made, tuple[Tensor, Tensor, Tensor])
    assert_type(smelt.selection_difference(indices, made[2], ascending=True), tuple[Tensor, Tensor])
    smelt.indexed_attention(q, k, q, k, weights, indices, indices, 8, 0.1, buckets="all")  # type: ignore
    assert_type(smelt.indexer_loss(logits, target, indices), Tensor)
    assert_type(smelt.indexer_loss(logits, target, indices, return_losses=False, query_weight=target), Tensor)
    assert_type(smelt.indexer_loss(logits, target, indices, return_losses=True), tuple[Tensor, Tensor])
    either = smelt.indexer_loss(logits, target, indices, return_losses=flag)
    assert_type(either, Tensor | tuple[Tensor, Tensor])
    smelt.indexer_loss(logits, target, indices, backend="cpu")  # type: ignore
    lse = smelt.dense_lse(q, k, indices, indices, 0.1)
    assert_type(lse, Tensor)
    assert_type(smelt.indexer_dense_loss(q, k, lse, q, k, weights, indices, indices, 0.1), Tensor)
    more = smelt.indexer_dense_loss(q, k, None, q, k, weights, indices, indices, 0.1, return_losses=flag)
    assert_type(more, Tensor | tuple[Tensor, Tensor])


def package(module: torch.nn.Module) -> None:
    assert_type(smelt.__version__, str)
    assert_type(smelt.presets(), list[str])
    assert_type(smelt.stats(), dict[str, int])
    smelt.warm("glm-5.2", passes="both", progress=lambda done, total, kernel: print(kernel, done / total))
    smelt.warm([module, "glm-5.2"])[0]["spec"].upper()
    smelt.kernels()[0]["spec"].upper()
    smelt.set_backend(smelt.get_backend())
    smelt.set_backend("cuda")  # type: ignore
    smelt.warm("glm-5.2", passes="all")  # type: ignore
    smelt.warm(8)  # type: ignore
    assert_type(smelt.compat.install("slime"), Report)
