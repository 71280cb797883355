"""The kernels of trainers and libraries: the names that `install` replaces, and their replacements.

A reference "slime.sparse_mla_bwd" is that function of smelt_kernels.compat.slime; any other value is a flag. The modules
and names were read at the versions that python/tests/compat_cases.py lists.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Names = dict[str, object]  # name in a module: a reference or a flag


@dataclass(frozen=True)
class Namespace:
    """An object in a module that has functions with these names; created if the module has none."""

    names: Names


@dataclass(frozen=True)
class Trainer:
    kernels: dict[str, Names] = field(
        default_factory=dict
    )  # modules of kernels; their import may fail (TileLang may be missing)
    others: dict[str, Names] = field(default_factory=dict)  # modules that import the kernels or have a flag
    libraries: tuple[str, ...] = ()  # installed with it
    optional: bool = False  # a library that may be missing


def _of(ours: str, *names: str) -> Names:
    return {name: f"{ours}.{name}" for name in names}


def _below(package: str, modules: dict[str, Names]) -> dict[str, Names]:
    return {f"{package}.{module}": names for module, names in modules.items()}


# slime's GLM-5 kernels, which other trainers vendor.
_GLM5 = {
    "tilelang_sparse_mla_fwd": _of("slime", "sparse_mla_fwd_interface"),
    "tilelang_sparse_mla_bwd": _of("slime", "sparse_mla_bwd"),
    "tilelang_indexer_fwd": _of("slime", "indexer_fwd_interface"),
    "tilelang_indexer_bwd": _of("slime", "indexer_bwd_interface"),
}
# miles' DeepSeek-V4 kernels, which other trainers vendor.
_V4 = {
    "tilelang_sparse_mla_fwd": _of("miles", "sparse_mqa_fwd_interface"),
    "tilelang_sparse_mla_bwd": _of("miles", "sparse_mqa_bwd_interface"),
    "tilelang_indexer_fwd": _of("miles", "indexer_fwd_interface", "batched_indexer_fwd", "_make_causal_cu_seqlens"),
    "tilelang_indexer_bwd": _of("miles", "indexer_bwd_interface", "batched_indexer_bwd"),
}

_MEGATRON_ATTENTION = _of("megatron", "sparse_mla_fwd_interface", "sparse_mla_bwd", "sparse_mla_delta")
_MEGATRON_INDEXER = _of("megatron", "indexer_fwd_interface", "indexer_bwd_interface")
_MEGATRON_CHOICE = _of("megatron", "lighting_indexer", "lighting_indexer_indices")
_MEGATRON_LOSS = _of("megatron", "sparse_indexer_target_interface", "SparseIndexerKLLoss")
_MEGATRON = {
    "tilelang_indexer_fwd": _of("megatron", "indexer_fwd_interface"),
    "tilelang_indexer_bwd": _of("megatron", "indexer_bwd_interface"),
    "tilelang_sparse_mla_fwd": _of("megatron", "sparse_mla_fwd_interface"),
    "tilelang_sparse_mla_bwd": _of("megatron", "sparse_mla_bwd", "sparse_mla_delta"),
    "tilelang_indexer_loss": _MEGATRON_LOSS,
    "indexer": {**_MEGATRON_INDEXER, **_MEGATRON_CHOICE, "HAVE_TILELANG_INDEXER": True},
    "sparse_mla": {**_MEGATRON_ATTENTION, **_of("megatron", "SparseMLA"), "HAVE_TILELANG_SPARSE_MLA": True},
    "tilelang_dsa": {**_MEGATRON_CHOICE, **_of("megatron", "SparseMLA"), **_MEGATRON_LOSS},
}

_MEGATRON_DSA = "megatron.core.transformer.experimental_attention_variant"
_MEGATRON_HOOKS = _of(
    "_megatron_dsa", "use_fused_dsa_kernels", "run_fused_qk_topk", "run_fused_qk_topk_with_loss",
    "run_fused_absorbed_sparse_attention", "run_fused_dsa_attention",
)  # fmt: skip

_PRIME_RL = {
    "sparse_mla_fwd": _of("prime_rl", "sparse_mla_fwd_interface"),
    "sparse_mla_bwd": _of("prime_rl", "sparse_mla_bwd"),
    "fp8_indexer": _of("prime_rl", "fp8_indexer"),
    "sparse_mla_bucketed": _of(
        "prime_rl", "sparse_mla_fwd_bucketed", "sparse_mla_bwd_bucketed", "sparse_mla_bwd_bucketed_sorted"
    ),
}

_CUDNN = {
    "training": _of("cudnn", "sparse_attention", "sparse_attention_score_recompute"),
    "sparse_attention_forward": _of("cudnn", "sparse_attention_forward_wrapper"),
    "sparse_attention_backward": _of("cudnn", "sparse_attention_backward_wrapper"),
    "aligned_hca_backward": _of("cudnn", "aligned_hca_backward_wrapper"),
    "indexer_forward": _of(
        "cudnn",
        "indexer_forward_wrapper",
        "indexer_forward_top_k_wrapper",
        "compress_topk_cand_buffer_size",
        "compress_topk_cand_buffer_size_thd",
    ),
    "indexer_top_k": _of("cudnn", "indexer_top_k_wrapper", "local_to_global_wrapper", "compactify_wrapper"),
    "score_recompute": _of(
        "cudnn",
        "sparse_indexer_score_recompute_wrapper",
        "sparse_attn_score_recompute_wrapper",
        "dense_indexer_score_recompute_wrapper",
        "dense_attn_score_recompute_wrapper",
    ),
    "indexer_backward": _of("cudnn", "indexer_backward_wrapper", "dense_indexer_backward_wrapper"),
}
_DSA = {name: reference for names in _CUDNN.values() for name, reference in names.items()}

_MSA_WARMUP = _of("flash_msa", "flash_msa_func_warmup", "flash_msa_warmup_func", "sparse_attention_warmup")

_NEMO = "nemo_automodel.components.models"
_NEMO_FLAG = {"HAS_TILELANG": True}
_NEMO_CUDNN = {
    "_CUDNN_DSA": "cudnn.DSA",
    "_HAS_CUDNN_DSA": True,
    "_FLASH_MLA_SPARSE_FWD": "flash_mla.flash_mla_sparse_fwd",
    "_HAS_FLASH_MLA": True,
}

TRAINERS: dict[str, Trainer] = {
    "flash_mla": Trainer(
        kernels={
            "flash_mla": _of("flash_mla", "flash_mla_sparse_fwd"),
            "flash_mla.flash_mla_interface": _of("flash_mla", "flash_mla_sparse_fwd"),
        },
        optional=True,
    ),
    "flash_msa": Trainer(
        kernels={
            "flash_msa": {**_of("flash_msa", "flash_msa_func"), **_MSA_WARMUP},
            "flash_msa.warmup": {},
            "flash_msa.flash_msa": {"sparse_attention": "flash_msa.flash_msa_func"},
            "flash_msa.warmup.flash_msa_warmup": _of("flash_msa", "sparse_attention_warmup"),
        },
        optional=True,
    ),
    "cudnn": Trainer(
        kernels={
            "cudnn": {"DSA": Namespace(_DSA), **_of("cudnn", "aligned_hca_backward_wrapper")},
            "cudnn.deepseek_sparse_attention": {"DSA": Namespace(_DSA), **_DSA},
            **_below("cudnn.deepseek_sparse_attention", _CUDNN),
        },
        optional=True,
    ),
    "deep_gemm": Trainer(
        kernels={"deep_gemm": _of("deep_gemm", "fp8_mqa_logits", "fp8_fp4_mqa_logits")}, optional=True
    ),
    "megatron": Trainer(
        others={
            **_below(f"{_MEGATRON_DSA}.ops", _MEGATRON),
            f"{_MEGATRON_DSA}.dsa_kernels": _MEGATRON_HOOKS,
        },
        libraries=("flash_mla", "cudnn"),
    ),
    "slime": Trainer(
        kernels=_below("slime_plugins.models.glm5.ops", _GLM5),
        others={"slime_plugins.models.glm5.ops.sparse_mla": _of("slime", "SGLangSparseMLA")},
    ),
    "miles": Trainer(
        kernels={
            **_below("miles_plugins.models.glm5.ops", _GLM5),
            **_below("miles_plugins.models.deepseek_v4.ops.kernel", _V4),
        }
    ),
    "nemo": Trainer(
        others={
            **_below(f"{_NEMO}.glm_moe_dsa.kernels", _GLM5),
            **_below(f"{_NEMO}.deepseek_v4.kernels", _V4),
            f"{_NEMO}.glm_moe_dsa.kernels._tilelang": _NEMO_FLAG,
            f"{_NEMO}.glm_moe_dsa.optimized_kernels": _NEMO_FLAG,
            f"{_NEMO}.deepseek_v4.kernels._tilelang": _NEMO_FLAG,
            f"{_NEMO}.deepseek_v4.optimized_kernels": _NEMO_FLAG,
            f"{_NEMO}.glm_moe_dsa.kernels.cudnn_dsa": _NEMO_CUDNN,
            f"{_NEMO}.common.cudnn_sparse_attention": _NEMO_CUDNN,  # from 0.7 on; GLM-5.3-Flash uses it, too
        }
    ),
    "prime_rl": Trainer(
        kernels=_below("prime_rl.trainer.models.kernels", _PRIME_RL),
        others={
            "prime_rl.trainer.models.glm_moe_dsa.sparse_mla_attention": _of(
                "prime_rl", "sparse_mla_fwd_interface", "sparse_mla_bwd"
            )
        },
    ),
    "veomni": Trainer(kernels=_below("veomni.ops.kernels.deepseek_v4", _V4), libraries=("flash_mla", "cudnn")),
    "xtuner": Trainer(
        kernels=_below(
            "xtuner.v1.ops.sparse_mla", {name: _GLM5[name] for name in _GLM5 if name != "tilelang_indexer_bwd"}
        ),
        others={"xtuner.v1.ops.sparse_mla.tilelang": _of("xtuner", "ensure_tilelang_runtime_available")},
        libraries=("cudnn",),
    ),
}
