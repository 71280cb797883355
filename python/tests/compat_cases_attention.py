"""Attention's drop-ins: see compat_cases.py."""

import functools
import math
from unittest import mock

import compat_definitions as defined
import torch
from compat_cases import Case, cotangent, ints, normal, stacked
from compat_definitions import LOG2E, NEVER
from smelt_kernels.compat import _cudnn_hca, cudnn, flash_mla, megatron, miles, nemo, prime_rl, slime, tilelang

T, S, H, D, DV, W, B = 4, 9, 2, 192, 128, 6, 2
Q, KV, SINK, DO = normal(T, H, D), normal(S, D), torch.tensor([0.7, -1.3]), normal(T, H, DV)
LISTS = ints([3, -1, 7, 0, 8, 5], [-1, 2, 2, -1, 6, 1], [-1] * 6, [0, 1, 2, 3, 4, -1])
BEYOND = LISTS.clone()
BEYOND[0, 2] = S  # beyond the rows: masked
LENGTHS = ints([6, 5, 4, 3])[0]
Q4, KV4, DO4 = normal(B, T, H, D), normal(B, S, D), normal(B, T, H, DV)
LISTS4 = torch.stack([LISTS, LISTS.flip(0).flip(1)])
SCALE = 0.1


def headed(*tensors):
    """Adds a dimension of KV heads."""
    return [tensor.unsqueeze(-2) for tensor in tensors]


def in_batches(q, kv, lists, *options):
    """defined.attention with batches or without."""
    if q.dim() == 3:
        return defined.attention(q, kv, lists, *options)
    return stacked(lambda *each: defined.attention(*each, *options), q, kv, lists)


def flash_mla_lse(lse):
    return lse.masked_fill(lse == NEVER, math.inf)


def by_flash_mla(q, kv, lists, scale, dv, sink, length, first):
    out, lse, largest = defined.attention(q, kv, lists, scale, dv, sink, length)
    results = {"out": out, "max_logits": largest, "lse": flash_mla_lse(lse)}
    if first:
        _, lse, _ = defined.attention(q, kv, lists[:, :first], scale, dv, None, length)
        results["lse_indexer"] = flash_mla_lse(lse)
    return results


def attended(q, kv, lists, scale, dv, sink=None, leaves=(), empty=NEVER, sinks_in_lse=False):
    """out and lse in base 2 of a TileLang port, and optionally gradients; `empty`: the lse of an empty row."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    doubles = defined.doubles(*[each for each in (q, kv, sink) if each is not None])
    out, lse, _ = in_batches(*doubles[:2], lists, scale, dv, *doubles[2:])
    whole = torch.logaddexp(lse, sink.double().expand_as(lse)) if sinks_in_lse else lse
    results = {"out": out, "lse": (LOG2E * whole).masked_fill(whole == NEVER, empty)}
    if leaves:
        grads = defined.gradients(out, doubles, cotangent(out))
        results |= {f"grad_{name}": grad for name, grad in zip(leaves, grads)}
    return {name: value.detach() for name, value in results.items()}


def backward(q, kv, lists, do, scale, sink=None):
    """dq, dkv and, with a sink, dsink."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    doubles = defined.doubles(*[each for each in (q, kv, sink) if each is not None])
    out, _, _ = in_batches(*doubles[:2], lists, scale, do.shape[-1], *doubles[2:])
    grads = defined.gradients(out, doubles, do)
    return dict(zip(("dq", "dkv", "d_sink"), grads))


def forward_of(q, kv, lists, scale, dv, sink=None, sinks_in_lse=False):
    """The forward pass's results for a backward pass: out in bf16, lse in fp32 and base 2."""
    found = attended(q, kv, lists, scale, dv, sink, sinks_in_lse=sinks_in_lse)
    return found["out"].bfloat16(), found["lse"].float()


def natural(out, lse):
    return out, lse / LOG2E


def cut(lists, length):
    return lists.masked_fill(torch.arange(lists.shape[1]) >= length[:, None], -1)


def ported_backward(q, kv, lists, do, scale, seen=None, delta=False):
    """Arguments of sparse_mla_bwd, with delta and an o that must have no effect."""
    o, lse = forward_of(q, kv, lists if seen is None else seen, scale, DV)
    keys, slots = headed(kv, lists)
    given = {"q": q, "kv": keys, "o": o, "do": do, "indices": slots, "lse": lse, "sm_scale": scale}
    if delta:
        given |= {"delta": (o.float() * do.float()).sum(-1), "o": o.flip(0)}
    return given


def without_heads(g, seen):
    """kv and lists from a port's arguments."""
    return g.kv.squeeze(-2), seen(g)


def ported_gradients(seen):
    def want(g):
        kv, lists = without_heads(g, seen)
        found = backward(g.q, kv, lists, g.do, g.sm_scale)
        return {"dq": found["dq"], "dkv": found["dkv"].unsqueeze(-2)}

    return want


def ported_attention(seen, empty=NEVER):
    def want(g):
        kv, lists = without_heads(g, seen)
        return attended(g.q, kv, lists, g.sm_scale, g.d_v, empty=empty)

    return want


def own_slots(g):
    return g.indices.squeeze(-2)


def causal_slots(g):
    """TileLang's examples: slots up to the query's number are valid."""
    lists = g.indices.squeeze(-2)
    return lists.masked_fill(lists > torch.arange(lists.shape[1])[:, None], -1)


def pipelined(g):
    """TileLang's examples for a rank of context parallelism: tokens from (k + 1) * stride - 1 on see key k."""
    kv, lists = without_heads(g, own_slots)
    token = g.q_start_index_s + torch.arange(lists.shape[1])
    seen = (lists + 1) * g.kv_stride - 1 <= token[:, None]
    return attended(g.q, kv, lists.masked_fill(~seen, -1), g.sm_scale, DV)


def function_of(empty=NEVER):
    """SparseMLA.apply, out differentiable in q and kv."""

    def want(g):
        kv, lists = without_heads(g, own_slots)
        found = attended(g.q, kv, lists, g.scaling, DV, leaves=("q", "kv"), empty=empty)
        return found | {"grad_kv": found["grad_kv"].unsqueeze(-2)}

    return want


PORT = dict(zip(("q", "kv", "indices"), (Q, *headed(KV, LISTS)))) | {"d_v": DV}
PORT_TUNING = {"block_I": 128, "num_stages": 1, "threads": 128}
PORT_CHANGES = {"sm_scale": 0.05, "d_v": 0}
CAUSAL = LISTS4.remainder(T + 1)  # T: masked
CAUSAL_PORT = dict(zip(("q", "kv", "indices"), (Q4, *headed(KV4[:, :T], CAUSAL)))) | {"d_v": DV}
SEEN = CAUSAL.masked_fill(CAUSAL > torch.arange(T)[:, None], -1)
NOT_THERE = {"is_casual": False, "return_kernel": True}

SENTINEL_KV = torch.cat([KV4[:1], torch.full((1, 1, D), 3.0).bfloat16()], 1)  # without effect
SENTINEL_LISTS = LISTS4[:1].masked_fill(LISTS4[:1] < 0, S)
SENTINELS = dict(zip(("q", "kv", "indices"), (Q4[:1], *headed(SENTINEL_KV, SENTINEL_LISTS))))


def sentinel_slots(g):
    """prime-rl: slots that name the last row of kv or beyond are masked."""
    lists = g.indices.squeeze(-2)
    return lists.masked_fill(lists > g.kv.shape[1] - 2, -1)


def sentinel_backward():
    o, lse = forward_of(Q4[:1], KV4[:1], LISTS4[:1], SCALE, DV)
    return SENTINELS | {"o": o, "do": DO4[:1], "lse": lse, "sm_scale": SCALE}


QS, KVS, DOS = normal(B, T, H, 128), normal(B, S, 128), normal(B, T, H, 128)  # miles: values as wide as keys
MILES = {"q": QS, "kv": KVS, "attn_sink": SINK, "topk_idxs": LISTS4}


def miles_out(g, with_lse=None):
    leaves = ("q", "kv", "attn_sink")
    found = attended(g.q, g.kv, g.topk_idxs, g.sm_scale, 128, g.attn_sink, leaves, sinks_in_lse=True)
    if not (getattr(g, "return_lse", False) if with_lse is None else with_lse):
        del found["lse"]
    return found


def miles_forward(g):
    found = miles_out(g, with_lse=True)
    return {name: found[name] for name in ("out", "lse")}


def miles_backward(sink=SINK):
    o, lse = forward_of(QS, KVS, LISTS4, SCALE, 128, sink, sinks_in_lse=True)
    return MILES | {"attn_sink": sink, "o": o, "do": DOS, "lse": lse, "sm_scale": SCALE}


Q5, KV5 = normal(B, T, H, 64), torch.cat([normal(B, S, 64), torch.ones(B, 1, 64).bfloat16()], 1)
DSV4_LISTS = LISTS4.masked_fill(LISTS4 < 0, S)


def dsv4(g):
    kv, lists = without_heads(g, sentinel_slots)
    leaves = ("q", "kv", "sinks")
    found = attended(g.q, kv, lists, g.sm_scale, 64, g.sinks, leaves, sinks_in_lse=True)
    return found | {"grad_kv": found["grad_kv"].unsqueeze(-2)}


def hca_lists(rank, own):
    """cuDNN's aligned HCA: the rows of kv that each query of a rank of one group sees, from its documentation."""
    lists = []
    for token in range(rank * own, rank * own + own):
        window = [each - rank * own + own for each in range(max(0, token - own + 1), token + 1)]
        rows = window + [own + own + owner * 2 + (owner > 0) for owner in range((token + 1) // own)]
        lists.append(rows + [-1] * (own + 130 - len(rows)))
    return ints(*lists)


def hca(rank, own=128):
    q, kv, do = normal(own, H, 64), normal(own + own + 4, 64), normal(own, H, 64)
    lists = hca_lists(rank, own)
    kv[sorted({*range(kv.shape[0])} - {*lists.flatten().tolist()})] = math.inf  # rows that no query sees
    out, lse = natural(*forward_of(q, seen(kv), lists, SCALE, 64, SINK))
    given = {"q": q, "kv": kv, "out": out, "dout": do, "lse": lse, "attn_sink": SINK, "cp_rank": rank, "cp_size": 2}
    return given | {"softmax_scale": SCALE}


def seen(kv):
    return kv.nan_to_num(posinf=0.0, neginf=0.0)


def hca_gradients(g):
    return backward(g.q, seen(g.kv), hca_lists(g.cp_rank, len(g.q)), g.dout, g.softmax_scale, g.attn_sink)


@functools.wraps(cudnn.aligned_hca_backward_wrapper)
def hca_of_16(*args, **options):
    """With groups and windows of 16 tokens, since the emulator takes seconds for 128."""
    with mock.patch.multiple(_cudnn_hca, WINDOW=16, GROUP=16):
        return cudnn.aligned_hca_backward_wrapper(*args, **options)


OF_MILES = {"lists": ("topk_idxs",), "leaves": ("q", "kv", "attn_sink"), "changes": {"sm_scale": 0.05}}
PORTED = {"lists": ("indices",), "tuning": PORT_TUNING, "changes": PORT_CHANGES}

ATTENTION = {
    "flash_mla.flash_mla_sparse_fwd": Case(
        flash_mla.flash_mla_sparse_fwd,
        dict(zip(("q", "kv", "indices"), (Q, *headed(KV, BEYOND))))
        | {"sm_scale": SCALE, "d_v": DV, "attn_sink": SINK, "topk_length": LENGTHS},
        lambda g: by_flash_mla(
            g.q, g.kv[:, 0], g.indices[:, 0], g.sm_scale, g.d_v, g.attn_sink, g.topk_length, g.indexer_topk
        ),
        lists=("indices",),
        bounds=("topk_length",),
        changes={"indexer_topk": 2, "sm_scale": 0.05, "d_v": 0, "attn_sink": torch.tensor([math.inf, NEVER])},
    ),
    "cudnn.sparse_attention_forward_wrapper": Case(
        cudnn.sparse_attention_forward_wrapper,
        {"q": Q, "kv": KV, "topk_idxs": BEYOND, "attn_sink": SINK, "topk_length": LENGTHS},
        lambda g: by_flash_mla(
            g.q, g.kv, g.topk_idxs, g.softmax_scale or D**-0.5, DV, g.attn_sink, g.topk_length, g.indexer_topk
        ),
        lists=("topk_idxs",),
        bounds=("topk_length",),
        changes={"indexer_topk": 2, "softmax_scale": 0.05, "attn_sink": None},
    ),
    "cudnn.sparse_attention": Case(
        cudnn.sparse_attention, {"q": Q, "kv": KV, "indices": BEYOND, "attn_sink": SINK, "topk_length": LENGTHS},
        lambda g: composition(g), lists=("indices",), bounds=("topk_length",), changes={"softmax_scale": 0.05},
        tuning={"trusted_compact_metadata": True}, leaves=("q", "kv", "attn_sink"),
    ),
    "cudnn.sparse_attention_backward_wrapper": Case(
        cudnn.sparse_attention_backward_wrapper,
        dict(zip(("out", "lse"), natural(*forward_of(Q, KV, cut(LISTS, LENGTHS), SCALE, DV, SINK))))
        | {"q": Q, "kv": KV, "dout": DO, "attn_sink": SINK, "topk_idxs": LISTS, "topk_length": LENGTHS}
        | {"softmax_scale": SCALE},
        lambda g: backward(g.q, g.kv, cut(g.topk_idxs, g.topk_length), g.dout, g.softmax_scale, g.attn_sink),
        lists=("topk_idxs",),
        bounds=("topk_length",),
        outputs={"dq": ("dq",), "dkv": ("dkv", torch.float32)},
        changes={"q_cluster_mode": "both"},
        tuning={"block_tile": 128, "deterministic": True, "workspace": torch.empty(1, dtype=torch.uint8)},
    ),
    "cudnn.sparse_attention_backward_wrapper, no sink": Case(
        cudnn.sparse_attention_backward_wrapper,
        dict(zip(("out", "lse"), natural(*forward_of(Q, KV, LISTS, SCALE, DV))))
        | {"q": Q, "kv": KV, "dout": DO, "attn_sink": torch.full((H,), NEVER), "topk_idxs": LISTS}
        | {"softmax_scale": SCALE},
        lambda g: backward(g.q, g.kv, g.topk_idxs, g.dout, g.softmax_scale) | {"d_sink": torch.zeros(H).double()},
        lists=("topk_idxs",),
    ),
    "cudnn.aligned_hca_backward_wrapper": Case(
        hca_of_16, hca(1, 16), hca_gradients, outputs={"dq": ("dq",), "dkv": ("dkv",), "d_sink": ("d_sink",)},
        changes={"cp_rank": 2, "cp_size": 3},
        tuning={"workspace": torch.empty(1, dtype=torch.uint8), "current_stream": None},
    ),
    "cudnn.aligned_hca_backward_wrapper, first rank": Case(
        cudnn.aligned_hca_backward_wrapper, hca(0), hca_gradients, changes={"cp_rank": -1}
    ),
    "tilelang.sparse_mla_fwd_interface": Case(
        tilelang.sparse_mla_fwd_interface, CAUSAL_PORT, ported_attention(causal_slots), lists=("indices",), rows=T,
        changes=PORT_CHANGES | {"return_p_sum": True}, tuning=PORT_TUNING,
    ),
    "tilelang.sparse_mla_fwd_pipelined": Case(
        tilelang.sparse_mla_fwd_pipelined,
        dict(zip(("q", "kv", "indices"), (Q4, *headed(KV4, LISTS4)))) | {"q_start_index_s": 5, "kv_stride": 2},
        pipelined, lists=("indices",),
        changes=NOT_THERE | {"print_kernel": True, "q_start_index_s": 0, "kv_stride": 1, "sm_scale": 0.05},
    ),
    "tilelang.sparse_mla_bwd": Case(
        tilelang.sparse_mla_bwd, ported_backward(Q4, KV4[:, :T], CAUSAL, DO4, SCALE, SEEN),
        ported_gradients(causal_slots), lists=("indices",), rows=T, changes=NOT_THERE,
    ),
    "tilelang.sparse_mla_bwd, delta": Case(
        tilelang.sparse_mla_bwd, ported_backward(Q4, KV4[:, :T], CAUSAL, DO4, SCALE, SEEN, delta=True),
        ported_gradients(causal_slots), unread=("o",),
    ),
    "slime.sparse_mla_fwd_interface": Case(
        slime.sparse_mla_fwd_interface, PORT, ported_attention(own_slots), lists=("indices",),
        changes=PORT_CHANGES | {"return_p_sum": True}, tuning=PORT_TUNING,
    ),
    "slime.sparse_mla_bwd": Case(
        slime.sparse_mla_bwd, ported_backward(Q, KV, LISTS, DO, SCALE), ported_gradients(own_slots), lists=("indices",),
        changes=NOT_THERE,
    ),
    "slime.sparse_mla_bwd, delta": Case(
        slime.sparse_mla_bwd, ported_backward(Q, KV, LISTS, DO, SCALE, delta=True), ported_gradients(own_slots),
        unread=("o",),
    ),
    "slime.SparseMLA.apply": Case(
        slime.SparseMLA.apply, dict(zip(("q", "kv", "indices"), (Q, *headed(KV, LISTS)))) | {"scaling": SCALE},
        function_of(), lists=("indices",), leaves=("q", "kv"), changes={"scaling": 0.05},
    ),
    "slime.SGLangSparseMLA.apply": Case(
        slime.SGLangSparseMLA.apply,
        dict(zip(("q", "kv", "indices"), (Q, *headed(KV, LISTS)))) | {"scaling": SCALE, "d_v": DV}, function_of(),
        lists=("indices",), leaves=("q", "kv"), changes={"scaling": 0.05, "d_v": 0},
    ),
    "megatron.sparse_mla_fwd_interface": Case(
        megatron.sparse_mla_fwd_interface, PORT, ported_attention(own_slots, empty=0.0), **PORTED
    ),
    "megatron.sparse_mla_bwd": Case(
        megatron.sparse_mla_bwd, ported_backward(Q4, KV4, LISTS4, DO4, SCALE), ported_gradients(own_slots),
        lists=("indices",), changes={"delta": torch.zeros(2)},
    ),
    "megatron.sparse_mla_bwd, delta": Case(
        megatron.sparse_mla_bwd,
        ported_backward(Q4, KV4, LISTS4, DO4, SCALE, delta=True) | {"o": None},
        ported_gradients(own_slots),
    ),
    "megatron.sparse_mla_delta": Case(
        megatron.sparse_mla_delta,
        {"o": DO4, "do": DO4.flip(0)},
        lambda g: {"delta": (g.o.double() * g.do.double()).sum(-1)},
    ),
    "megatron.SparseMLA.apply": Case(
        megatron.SparseMLA.apply, dict(zip(("q", "kv", "indices"), (Q4, *headed(KV4, LISTS4)))) | {"scaling": SCALE},
        function_of(empty=0.0), lists=("indices",), leaves=("q", "kv"), changes={"scaling": 0.05},
    ),
    "miles.sparse_mqa_fwd_interface": Case(
        miles.sparse_mqa_fwd_interface, MILES, miles_forward, lists=("topk_idxs",), changes={"sm_scale": 0.05},
        tuning=PORT_TUNING | {"reference_rounding": True},
    ),
    "miles.sparse_mqa_bwd_interface": Case(
        miles.sparse_mqa_bwd_interface, miles_backward(),
        lambda g: backward(g.q, g.kv, g.topk_idxs, g.do, g.sm_scale, g.attn_sink), lists=("topk_idxs",),
        changes={"return_dkv_accum_dtype": True},
    ),
    # The backward pass stays accurate if the sink is nearly all of the sum.
    "miles.sparse_mqa_bwd_interface, by the sink": Case(
        miles.sparse_mqa_bwd_interface, miles_backward(SINK + 30.0),
        lambda g: backward(g.q, g.kv, g.topk_idxs, g.do, g.sm_scale, g.attn_sink), lists=("topk_idxs",),
    ),
    "miles.sparse_attn_tilelang": Case(
        miles.sparse_attn_tilelang, MILES, miles_out, **OF_MILES | {"changes": {"sm_scale": 0.05, "return_lse": True}},
        tuning={"reference_rounding": True},
    ),
    "miles.sparse_attn_tilelang_head_chunked": Case(
        miles.sparse_attn_tilelang_head_chunked, MILES | {"max_heads_per_kernel": 1}, miles_out,
        **OF_MILES | {"changes": {"sm_scale": 0.05, "max_heads_per_kernel": 0}}, tuning={"reference_rounding": True},
    ),
    "miles.DeepSeekV4SparseAttention.apply": Case(
        miles.DeepSeekV4SparseAttention.apply, MILES, miles_out, **OF_MILES, tuning={"reference_rounding": True}
    ),
    "miles.DeepSeekV4SparseAttentionHeadChunked.apply": Case(
        miles.DeepSeekV4SparseAttentionHeadChunked.apply, MILES | {"max_heads_per_kernel": 1}, miles_out,
        **OF_MILES | {"changes": {"sm_scale": 0.05, "max_heads_per_kernel": 0}}, tuning={"reference_rounding": True},
    ),
    "prime_rl.sparse_mla_fwd_interface": Case(
        prime_rl.sparse_mla_fwd_interface, SENTINELS | {"d_v": DV}, ported_attention(sentinel_slots), **PORTED
    ),
    "prime_rl.sparse_mla_fwd_bucketed": Case(
        prime_rl.sparse_mla_fwd_bucketed, SENTINELS | {"d_v": DV, "bucket_sizes": (4, 16)},
        ported_attention(sentinel_slots), lists=("indices",), changes=PORT_CHANGES | {"bucket_sizes": (0,)},
    ),
    "prime_rl.sparse_mla_bwd": Case(
        prime_rl.sparse_mla_bwd, sentinel_backward(), ported_gradients(sentinel_slots), lists=("indices",)
    ),
    "prime_rl.sparse_mla_bwd_bucketed": Case(
        prime_rl.sparse_mla_bwd_bucketed, sentinel_backward() | {"bucket_sizes": (4, 16)},
        ported_gradients(sentinel_slots), lists=("indices",), changes={"bucket_sizes": (0,)},
        tuning={"sort_bwd_indices": True},
    ),
    "prime_rl.sparse_mla_bwd_bucketed_sorted": Case(
        prime_rl.sparse_mla_bwd_bucketed_sorted, sentinel_backward() | {"bucket_sizes": (4, 16)},
        ported_gradients(sentinel_slots), lists=("indices",), changes={"bucket_sizes": (0,)},
    ),
    "prime_rl.dsv4_sparse_attn": Case(
        prime_rl.dsv4_sparse_attn,
        dict(zip(("q", "kv", "indices"), (Q5, *headed(KV5, DSV4_LISTS)))) | {"sinks": SINK, "sm_scale": SCALE}, dsv4,
        lists=("indices",), leaves=("q", "kv", "sinks"), changes={"sm_scale": 0.05}, tuning=PORT_TUNING,
    ),
    "nemo.tilelang_sparse_attention": Case(
        nemo.tilelang_sparse_attention,
        dict(zip(("q", "kv_latent", "topk_indices"), (Q, *headed(KV, LISTS))))
        | {"w_vc": normal(H, 32, DV) / 8, "softmax_scale": SCALE},
        lambda g: {
            "out": torch.einsum(
                "thc,hdc->thd",
                defined.attention(g.q, g.kv_latent[:, 0], g.topk_indices[:, 0], g.softmax_scale, DV)[0],
                g.w_vc.double(),
            )
        },
        lists=("topk_indices",),
        changes={"softmax_scale": 0.05},
    ),
}  # fmt: skip


def composition(g):
    scale = g.q.shape[-1] ** -0.5 if g.softmax_scale is None else g.softmax_scale
    doubles = defined.doubles(g.q, g.kv, g.attn_sink)
    out, lse, largest = defined.attention(*doubles[:2], g.indices, scale, DV, doubles[2], g.topk_length)
    grads = defined.gradients(out, doubles, cotangent(out))
    results = {"out": out.detach(), "max_logits": largest, "lse": flash_mla_lse(lse)}
    return results | {f"grad_{name}": grad for name, grad in zip(("q", "kv", "attn_sink"), grads)}
