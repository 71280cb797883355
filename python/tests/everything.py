"""Every public function with all of its arguments, for tests of the whole package. test_every_argument_is_here fails if
a function or an argument is missing."""

import inspect

import smelt_kernels as smelt
import torch
from test_hostile import DIFFERENTIABLE, NOT_CALLS, arguments_of_all

# Another legal value of each argument that is not a tensor, by name.
OTHER_VALUES = {
    "activation": "none",
    "ascending": True,
    "backend": "torch",
    "block_max": 2,
    "buckets": "auto",
    "candidate_block": 4,
    "causal_limit": 4,
    "deterministic": True,
    "dk_dtype": torch.float32,
    "dkv_dtype": torch.float32,
    "dv": 64,
    "dv_dtype": torch.float32,
    "expand": 2,
    "free_multiprocessors": 1,
    "granularity": 4,
    "group_size": 16,
    "groups": 2,
    "index_offset": 5,
    "logits_dtype": torch.bfloat16,
    "lse": "base2",
    "order": "score",
    "pinned": 1,
    "publish": 2,
    "publish_block": 2,
    "publish_pinned": 1,
    "query_weight": 0.5,
    "ratio": 2,
    "return_losses": True,
    "return_lse": True,
    "return_max_logits": True,
    "rows": 3,
    "scale": 0.3,
    "tail": False,
    "tokens": 1,
    "topk": 3,
    "unite": False,
    "width": 9,
    "workspace_limit": 1 << 20,
}
# Exceptions for functions where that value is not legal.
OTHER_VALUES_OF = {
    ("sparse_attention", "topk"): 64,
    ("sparse_attention_backward", "topk"): 64,
    ("sparse_scores", "topk"): 64,
    ("quantize", "scale"): "power_of_two",
    ("fake_quantize", "scale"): "power_of_two",
}


def functions():
    return sorted(set(smelt.__all__) - NOT_CALLS)


def parameters(name):
    """{argument: whether it is a tensor}."""
    signature = inspect.signature(getattr(smelt, name))
    return {
        each.name: str(each.annotation).removeprefix("torch.").split(" |")[0] == "Tensor"
        for each in signature.parameters.values()
    }


def bases(device):
    """{label: (function, its arguments)}: with required tensors only, and with all."""
    plain = arguments_of_all(device)
    found = {
        name: (name, {each: value for each, value in given.items() if value is not None})
        for name, given in plain.items()
    }

    def numbers(*values):
        return torch.tensor(values, dtype=torch.int32, device=device)

    def add(label, name, **more):
        found[label] = name, {**found[name][1], **more}

    attention = {
        "topk_length": numbers(7, 4),
        "sink": torch.tensor([0.5, -1.0, 2.0], device=device),
        "queries": numbers(1, 0, 1),
        "query_count": numbers(2),
    }
    add("sparse_attention, all", "sparse_attention", **attention, return_lse=True, return_max_logits=True)
    add("sparse_attention, buckets", "sparse_attention", buckets=(4,), return_lse=True)
    kv = plain["sparse_attention"]["kv"]
    total = torch.ones(kv.shape, device=device)
    add("sparse_attention_backward, all", "sparse_attention_backward", **attention)
    add("sparse_attention_backward, sum", "sparse_attention_backward", dkv_sum=total)
    add("sparse_scores, all", "sparse_scores", **attention)
    bounds = plain["indexer_windows"]["cu_seqlens"]
    add(
        "indexer_windows, all",
        "indexer_windows",
        cu_seqlens_padded=bounds + 0,
        cu_seqlens_keys=bounds * 2,
        causal_offset=numbers(1, 0),
        query_indices=numbers(1, 0),
    )
    add("quantize, all", "quantize", factor=torch.tensor([0.5, 1.0, 2.0, 3.0], device=device))
    add("fake_quantize, all", "fake_quantize", group_size=32)
    pools = {"expand": 2, "limit": numbers(5, 9), "tail": True}
    for name in ("indexer_logits", "indexer_topk"):
        given = plain[name]
        eight = {each: given[each].to(torch.float8_e4m3fn) for each in ("q", "k")}
        scales = torch.tensor([0.5, 1.0, 2.0, 3.0], device=device)
        more = {"offset": numbers(3, 8)} if name == "indexer_topk" else {}
        add(f"{name}, all", name, **eight, k_scale=scales, **more)
        if more:
            add(f"{name}, offset", name, **more, index_offset=2)
            add(f"{name}, pools", name, **pools, **more, pinned=1, publish=2, publish_block=2, publish_pinned=1)
        add(f"{name}, candidates", name, candidates=numbers([0, -1], [0, 1]), candidate_block=2)
        blocks = {"activation": "none", "scale": 0.5, "groups": 2, "block_max": 2}
        add(f"{name}, blocks", name, **{**blocks, "weights": None})
    window = plain["indexer_logits"]
    add(
        "topk_select, all",
        "topk_select",
        window_begin=window["window_begin"],
        window_end=window["window_end"],
        offset=numbers(3, 8),
    )
    logits = plain["topk_select"]["logits"].unsqueeze(1).expand(-1, 2, -1).bfloat16()
    add("topk_select, pools", "topk_select", **{**pools, "groups": 2, "logits": logits})
    grouped = {**attention, "sink": torch.tensor([0.5, -1.0, 2.0, 0.0], device=device), "limit": numbers(3, 4)}
    grouped["topk_length"] = numbers([2], [3])
    add("sparse_gqa, all", "sparse_gqa", **grouped, unite=True, return_lse=True)
    add("sparse_gqa_scores, all", "sparse_gqa_scores", **grouped)
    weight = torch.tensor([0.5, 2.0], device=device)
    more = {"sink": attention["sink"], "weight": weight}
    add("indexed_attention, all", "indexed_attention", **more, **pools, offset=numbers(0, 0))
    add("indexed_attention, candidates", "indexed_attention", candidates=numbers([0, -1], [0, 1]), candidate_block=2)
    lengths = numbers(2, 3)
    add("indexer_scores, all", "indexer_scores", topk_length=lengths, limit=numbers(3, 4))
    add("indexer_backward, all", "indexer_backward", topk_length=lengths, limit=numbers(3, 4))
    add("indexer_loss, all", "indexer_loss", topk_length=lengths, weight=weight, return_losses=True)
    add("indexer_dense_loss, all", "indexer_dense_loss", weight=weight, return_losses=True, groups=2, block_max=2)
    return found


def fullest(found, name):
    """(label, arguments) of the function's set with the most tensors."""

    def tensors(item):
        return sum(isinstance(value, torch.Tensor) for value in item[1].values())

    return max(((label, given) for label, (of, given) in found.items() if of == name), key=tensors)


def other_value(name, parameter):
    return OTHER_VALUES_OF.get((name, parameter), OTHER_VALUES[parameter])


def gradient_of(given, result):
    """Gradients by autograd with respect to the differentiable arguments that require one."""
    out = next(each for each in (result if isinstance(result, tuple) else (result,)) if each.requires_grad)
    leaves = [value for value in given.values() if isinstance(value, torch.Tensor) and value.requires_grad]
    made = torch.Generator().manual_seed(5)
    grad = torch.randn(out.shape, generator=made).to(out.device, out.dtype)
    return torch.autograd.grad(out, leaves, grad)


def differentiable(name, arguments):
    """The arguments that may have gradients."""
    if any(isinstance(value, torch.Tensor) and value.dtype is torch.float8_e4m3fn for value in arguments.values()):
        return ()
    if "block_max" in arguments:
        return ()  # the values of such a choice have no gradients
    return tuple(
        each for each in (*DIFFERENTIABLE.get(name, ()), "sink") if each in arguments and name in DIFFERENTIABLE
    )
