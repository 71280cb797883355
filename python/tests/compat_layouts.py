"""Stand-ins for trainers and libraries: modules with the originals' paths and import statements, and functions that
return their origin. test_compat_install.py writes them to a folder and imports them. Versions: see compat_cases.py.
"""

THEIRS = "def {0}(*given, **named):\n    return __name__\n"


def kernel(*names, needs="import tilelang\nfrom tilelang import language as T\n"):
    return needs + "".join(THEIRS.format(name) for name in names)


def plain(*names):
    return kernel(*names, needs="")


GLM5 = {
    "tilelang_sparse_mla_fwd": kernel("sparse_mla_fwd_interface", "sparse_mla_fwd"),
    "tilelang_sparse_mla_bwd": kernel("sparse_mla_bwd", "preprocess"),
    "tilelang_indexer_fwd": kernel("indexer_fwd_interface", "clean_logits_"),
    "tilelang_indexer_bwd": kernel("indexer_bwd_interface"),
}
SPARSE_MLA = """
import torch

from .tilelang_sparse_mla_bwd import sparse_mla_bwd
from .tilelang_sparse_mla_fwd import sparse_mla_fwd_interface


class SparseMLA(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, kv, indices, scaling):
        out, lse = sparse_mla_fwd_interface(q, kv, indices, sm_scale=scaling)
        ctx.scaling = scaling
        ctx.save_for_backward(q, kv, indices, out, lse)
        return out, lse

    @staticmethod
    def backward(ctx, grad_output, grad_lse):
        q, kv, indices, out, lse = ctx.saved_tensors
        return *sparse_mla_bwd(q, kv, out, grad_output.contiguous(), indices, lse, sm_scale=ctx.scaling), None, None
"""
INDEXER = """
from .tilelang_indexer_bwd import indexer_bwd_interface
from .tilelang_indexer_fwd import indexer_fwd_interface
""" + plain("lighting_indexer", "generate_varlen_mask_params")
V4 = {
    "tilelang_sparse_mla_fwd": kernel("sparse_mqa_fwd_interface"),
    "tilelang_sparse_mla_bwd": kernel("sparse_mqa_bwd_interface"),
    "tilelang_indexer_fwd": kernel("indexer_fwd_interface", "batched_indexer_fwd", "_make_causal_cu_seqlens"),
    "tilelang_indexer_bwd": kernel("indexer_bwd_interface", "batched_indexer_bwd"),
}
V4_ATTENTION = """
from {0} import tilelang_sparse_mla_bwd as sparse_mla_bwd
from {0} import tilelang_sparse_mla_fwd as sparse_mla_fwd


def sparse_attn_tilelang(*given):
    return sparse_mla_fwd.sparse_mqa_fwd_interface, sparse_mla_bwd.sparse_mqa_bwd_interface
"""
V4_INDEXER = """
from .tilelang_indexer_bwd import batched_indexer_bwd
from .tilelang_indexer_fwd import _make_causal_cu_seqlens, batched_indexer_fwd
""" + plain("v4_lighting_indexer")


def below(package, modules):
    return {f"{package}.{name}": source for name, source in modules.items()}


def nemo_shim():
    return 'import importlib.util\n\nHAS_TILELANG = importlib.util.find_spec("tilelang") is not None\n'


def by_nemo_shim(modules):
    shim = ("import tilelang\nfrom tilelang", "from ._tilelang"), ("language as T", "HAS_TILELANG")
    return {name: source.replace(*shim[0]).replace(*shim[1]) for name, source in modules.items()}


NEMO = "nemo_automodel.components.models"
NEMO_CUDNN = """
try:
    from cudnn import DSA as _CUDNN_DSA
    _HAS_CUDNN_DSA = True
except ImportError:
    _HAS_CUDNN_DSA, _CUDNN_DSA = False, None
try:
    from flash_mla import flash_mla_sparse_fwd as _FLASH_MLA_SPARSE_FWD
    _HAS_FLASH_MLA = True
except ImportError:
    _HAS_FLASH_MLA, _FLASH_MLA_SPARSE_FWD = False, None
"""
MEGATRON_DSA = "megatron.core.transformer.experimental_attention_variant"
MEGATRON = f"{MEGATRON_DSA}.ops"
MEGATRON_NEEDS = "from .tilelang_utils import HAVE_TILELANG\n"
XTUNER = "xtuner.v1.ops.sparse_mla"
PRIME_RL = "prime_rl.trainer.models"
CUDNN = "cudnn.deepseek_sparse_attention"

TRAINERS = {
    "slime": {
        **below("slime_plugins.models.glm5.ops", GLM5),
        "slime_plugins.models.glm5.ops.sparse_mla": SPARSE_MLA
        + "\n\nclass SGLangSparseMLA(torch.autograd.Function):\n    pass\n",
        "slime_plugins.models.glm5.ops.indexer": INDEXER,
        "slime_plugins.models.glm5.glm5": "from .ops.indexer import generate_varlen_mask_params, lighting_indexer\n"
        "from .ops.sparse_mla import SGLangSparseMLA, SparseMLA\n",
    },
    "miles": {
        **below("miles_plugins.models.glm5.ops", GLM5),
        "miles_plugins.models.glm5.ops.sparse_mla": SPARSE_MLA,
        "miles_plugins.models.glm5.ops.indexer": INDEXER,
        "miles_plugins.models.glm5.glm5": "from .ops.indexer import generate_varlen_mask_params, lighting_indexer\n"
        "from .ops.sparse_mla import SparseMLA\n",
        **below("miles_plugins.models.deepseek_v4.ops.kernel", V4),
        "miles_plugins.models.deepseek_v4.ops.kernel.tilelang_sparse_mla": V4_ATTENTION.format(
            "miles_plugins.models.deepseek_v4.ops.kernel"
        ),
        "miles_plugins.models.deepseek_v4.ops.kernel.tilelang_indexer": V4_INDEXER,
        "miles_plugins.models.deepseek_v4.ops.v4_indexer": "from miles_plugins.models.deepseek_v4.ops.kernel"
        ".tilelang_indexer_fwd import (\n    _make_causal_cu_seqlens,\n    batched_indexer_fwd,\n)\n",
    },
    "veomni": {
        **below("veomni.ops.kernels.deepseek_v4", V4),
        "veomni.ops.kernels.deepseek_v4.tilelang_sparse_mla": V4_ATTENTION.format("."),
        "veomni.ops.kernels.deepseek_v4.tilelang_indexer": V4_INDEXER,
        "veomni.ops.kernels.deepseek_sparse_attention.flashmla_cudnn": "from cudnn import DSA\n"
        "from flash_mla import flash_mla_sparse_fwd\n",
    },
    "nemo": {
        **below(f"{NEMO}.glm_moe_dsa.kernels", by_nemo_shim(GLM5)),
        f"{NEMO}.glm_moe_dsa.kernels._tilelang": nemo_shim(),
        f"{NEMO}.glm_moe_dsa.kernels.sparse_mla": SPARSE_MLA,
        f"{NEMO}.glm_moe_dsa.kernels.indexer": INDEXER,
        f"{NEMO}.common.cudnn_sparse_attention": NEMO_CUDNN
        + """

def is_cudnn_sparse_attention_available():
    return bool(_HAS_CUDNN_DSA and _HAS_FLASH_MLA)


def cudnn_sparse_attention(*given):
    return _FLASH_MLA_SPARSE_FWD, _CUDNN_DSA.sparse_attention_backward_wrapper
""",
        f"{NEMO}.glm_moe_dsa.kernels.cudnn_dsa": f"from {NEMO}.common.cudnn_sparse_attention import cudnn_sparse_attention\n"
        + NEMO_CUDNN
        + """

def is_cudnn_dsa_available():
    return bool(_HAS_CUDNN_DSA and _HAS_FLASH_MLA)


def cudnn_indexer_topk(*given):
    return _CUDNN_DSA.indexer_forward_wrapper, _CUDNN_DSA.indexer_top_k_wrapper
""",
        f"{NEMO}.glm_moe_dsa.optimized_kernels": f"""
from {NEMO}.glm_moe_dsa.kernels._tilelang import HAS_TILELANG
from {NEMO}.glm_moe_dsa.kernels.cudnn_dsa import cudnn_indexer_topk, cudnn_sparse_attention, is_cudnn_dsa_available
from {NEMO}.glm_moe_dsa.kernels.indexer import lighting_indexer
from {NEMO}.glm_moe_dsa.kernels.sparse_mla import SparseMLA


def is_dsa_kernel_available(name):
    return HAS_TILELANG
""",
        **below(f"{NEMO}.deepseek_v4.kernels", by_nemo_shim(V4)),
        f"{NEMO}.deepseek_v4.kernels._tilelang": nemo_shim(),
        f"{NEMO}.deepseek_v4.kernels.sparse_attention": V4_ATTENTION.format(f"{NEMO}.deepseek_v4.kernels"),
        f"{NEMO}.deepseek_v4.kernels.tilelang_indexer": V4_INDEXER,
        f"{NEMO}.deepseek_v4.optimized_kernels": f"""
from {NEMO}.deepseek_v4.kernels._tilelang import HAS_TILELANG
from {NEMO}.deepseek_v4.kernels.tilelang_indexer_fwd import batched_indexer_fwd as _miles_batched_indexer_fwd
""",
    },
    "megatron": {
        f"{MEGATRON}.tilelang_utils": """
try:
    import tilelang

    HAVE_TILELANG = True
except (ImportError, OSError):
    HAVE_TILELANG = False
""",
        f"{MEGATRON}.tilelang_indexer_fwd": kernel("indexer_fwd_interface", needs=MEGATRON_NEEDS),
        f"{MEGATRON}.tilelang_indexer_bwd": kernel("indexer_bwd_interface", needs=MEGATRON_NEEDS),
        f"{MEGATRON}.tilelang_sparse_mla_fwd": kernel("sparse_mla_fwd_interface", needs=MEGATRON_NEEDS),
        f"{MEGATRON}.tilelang_sparse_mla_bwd": kernel("sparse_mla_bwd", "sparse_mla_delta", needs=MEGATRON_NEEDS),
        f"{MEGATRON}.tilelang_indexer_loss": kernel("sparse_indexer_target_interface", needs=MEGATRON_NEEDS)
        + "\n\nclass SparseIndexerKLLoss:\n    pass\n\n\nif not HAVE_TILELANG:\n    SparseIndexerKLLoss = None\n",
        f"{MEGATRON}.indexer": "from .tilelang_indexer_bwd import HAVE_TILELANG as HAVE_TILELANG_INDEXER\n"
        "from .tilelang_indexer_bwd import indexer_bwd_interface\n"
        "from .tilelang_indexer_fwd import indexer_fwd_interface\n"
        + plain("lighting_indexer", "lighting_indexer_indices", "_select_topk_from_logits")
        + "\n\nif not HAVE_TILELANG_INDEXER:\n    lighting_indexer = None\n    lighting_indexer_indices = None\n",
        f"{MEGATRON}.sparse_mla": "from .tilelang_sparse_mla_bwd import HAVE_TILELANG as HAVE_TILELANG_SPARSE_MLA\n"
        "from .tilelang_sparse_mla_bwd import sparse_mla_bwd, sparse_mla_delta\n"
        "from .tilelang_sparse_mla_fwd import sparse_mla_fwd_interface\n"
        "\n\nclass SparseMLA:\n    pass\n\n\nif not HAVE_TILELANG_SPARSE_MLA:\n    SparseMLA = None\n",
        f"{MEGATRON}.tilelang_dsa": f"from {MEGATRON}.indexer import (\n    lighting_indexer,\n    lighting_indexer_indices,\n)\n"
        f"from {MEGATRON}.sparse_mla import SparseMLA\n"
        f"from {MEGATRON}.tilelang_indexer_loss import (\n    SparseIndexerKLLoss,\n    sparse_indexer_target_interface,\n)\n"
        + plain("run_fused_qk_topk"),
        f"{MEGATRON_DSA}.dsa_kernels": plain("_load_backend", "use_fused_dsa_kernels", "run_fused_dsa_attention"),
        f"{MEGATRON_DSA}.dsa": f"from {MEGATRON_DSA} import dsa_kernels\n",
    },
    "prime_rl": {
        f"{PRIME_RL}.kernels.sparse_mla_fwd": kernel("sparse_mla_fwd_interface"),
        f"{PRIME_RL}.kernels.sparse_mla_bwd": kernel("sparse_mla_bwd"),
        f"{PRIME_RL}.kernels.fp8_indexer": plain("fp8_indexer", "per_token_group_quant_fp8"),
        f"{PRIME_RL}.glm_moe_dsa.sparse_mla_attention": f"""
from {PRIME_RL}.kernels.fp8_indexer import fp8_indexer

try:
    from {PRIME_RL}.kernels.sparse_mla_bwd import sparse_mla_bwd
    from {PRIME_RL}.kernels.sparse_mla_fwd import sparse_mla_fwd_interface
except ImportError:
    sparse_mla_fwd_interface = None
    sparse_mla_bwd = None
""",
    },
    "xtuner": {
        **below(XTUNER, {name: source for name, source in GLM5.items() if name != "tilelang_indexer_bwd"}),
        f"{XTUNER}.tilelang": """
import subprocess
import sys


def ensure_tilelang_runtime_available():
    if subprocess.run([sys.executable, "-c", "import tilelang"], check=False, capture_output=True).returncode:
        raise RuntimeError("TileLang SparseMLA runtime is unavailable")


def forward():
    from .tilelang_sparse_mla_fwd import sparse_mla_fwd_interface

    return sparse_mla_fwd_interface
""",
        f"{XTUNER}.cudnn_dsa": """
def backward():
    from cudnn.deepseek_sparse_attention.sparse_attention_backward import sparse_attention_backward_wrapper

    return sparse_attention_backward_wrapper
""",
    },
}

# cuDNN Frontend 1.32: everything is imported at its first use; {0} is an import that its kernels need.
LIBRARIES = {
    "cudnn": """
import importlib


def __getattr__(name):
    if name not in ("DSA", "aligned_hca_backward_wrapper"):
        raise AttributeError(name)
    value = getattr(importlib.import_module(".deepseek_sparse_attention", __name__), name)
    globals()[name] = value
    return value


def graph():
    return __name__
""",
    CUDNN: """
from importlib import import_module

_SYMBOLS = {
    "sparse_attention_backward_wrapper": ".sparse_attention_backward",
    "SparseAttentionBackward": ".sparse_attention_backward",
    "indexer_forward_wrapper": ".indexer_forward",
    "aligned_hca_backward_wrapper": ".aligned_hca_backward",
}


def _load_symbol(name):
    symbol = getattr(import_module(_SYMBOLS[name], package=__name__), name)
    globals()[name] = symbol
    return symbol


def __getattr__(name):
    if name in _SYMBOLS:
        return _load_symbol(name)
    raise AttributeError(name)


class DSANamespace:
    def __getattr__(self, name):
        if name in _SYMBOLS:
            return _load_symbol(name)
        raise AttributeError(name)


DSA = DSANamespace()
""",
    f"{CUDNN}.sparse_attention_backward": "from .api import SparseAttentionBackward, sparse_attention_backward_wrapper\n",
    f"{CUDNN}.sparse_attention_backward.api": "{0}"
    + plain("sparse_attention_backward_wrapper")
    + "\n\nclass SparseAttentionBackward:\n    pass\n",
    f"{CUDNN}.indexer_forward": "{0}" + plain("indexer_forward_wrapper"),
    f"{CUDNN}.aligned_hca_backward": "{0}" + plain("aligned_hca_backward_wrapper"),
    "flash_mla": "from flash_mla.flash_mla_interface import (\n    get_mla_metadata,\n    flash_mla_sparse_fwd\n)\n",
    "flash_mla.flash_mla_interface": "{0}" + plain("get_mla_metadata", "flash_mla_sparse_fwd"),
    "deep_gemm": "{0}" + plain("fp8_mqa_logits", "fp8_fp4_mqa_logits", "fp8_gemm_nt"),
}

# For each trainer: names that are smelt's after `install`, with the function, and names that do not change.
SLIME, MILES, VEOMNI = "slime_plugins.models.glm5", "miles_plugins.models", "veomni.ops.kernels"
MLA, MLA_INDEXER = "sparse_mla_fwd_interface sparse_mla_bwd", "indexer_fwd_interface indexer_bwd_interface"
MQA, BATCHED = "sparse_mqa_fwd_interface sparse_mqa_bwd_interface", "batched_indexer_fwd batched_indexer_bwd"


def of(ours, modules):
    """The functions of the module `ours`, by the same names, in these modules."""
    return {f"{path}.{name}": f"{ours}.{name}" for path, names in modules.items() for name in names.split()}


def kernels(prefix, names):
    """In the kernel modules tilelang_..._fwd and tilelang_..._bwd."""
    return {f"{prefix}_fwd": names.split()[0], f"{prefix}_bwd": names.split()[1]}


OURS = {
    "slime": of("slime", {**kernels(f"{SLIME}.ops.tilelang_sparse_mla", MLA), f"{SLIME}.ops.sparse_mla": MLA})
    | of("slime", {f"{SLIME}.ops.indexer": MLA_INDEXER, f"{SLIME}.glm5": "SGLangSparseMLA"}),
    "miles": of("slime", {f"{MILES}.glm5.ops.sparse_mla": MLA, f"{MILES}.glm5.ops.indexer": MLA_INDEXER})
    | of("miles", kernels(f"{MILES}.deepseek_v4.ops.kernel.tilelang_sparse_mla", MQA))
    | of("miles", {f"{MILES}.deepseek_v4.ops.kernel.tilelang_indexer": BATCHED})
    | of("miles", {f"{MILES}.deepseek_v4.ops.v4_indexer": "batched_indexer_fwd _make_causal_cu_seqlens"}),
    "veomni": of("miles", kernels(f"{VEOMNI}.deepseek_v4.tilelang_sparse_mla", MQA))
    | of("miles", {f"{VEOMNI}.deepseek_v4.tilelang_indexer": BATCHED})
    | of("flash_mla", {f"{VEOMNI}.deepseek_sparse_attention.flashmla_cudnn": "flash_mla_sparse_fwd"})
    | of("cudnn", {f"{VEOMNI}.deepseek_sparse_attention.flashmla_cudnn.DSA": "indexer_forward_wrapper"}),
    "nemo": of("slime", {f"{NEMO}.glm_moe_dsa.kernels.sparse_mla": MLA, f"{NEMO}.glm_moe_dsa.kernels.indexer": MLA_INDEXER})
    | {f"{NEMO}.glm_moe_dsa.kernels.cudnn_dsa._FLASH_MLA_SPARSE_FWD": "flash_mla.flash_mla_sparse_fwd"}
    | of("miles", kernels(f"{NEMO}.deepseek_v4.kernels.tilelang_sparse_mla", MQA))
    | of("miles", {f"{NEMO}.deepseek_v4.kernels.tilelang_indexer": "batched_indexer_bwd"})
    | {f"{NEMO}.deepseek_v4.optimized_kernels._miles_batched_indexer_fwd": "miles.batched_indexer_fwd"},
    "megatron": of("megatron", {f"{MEGATRON}.indexer": MLA_INDEXER, f"{MEGATRON}.sparse_mla": f"{MLA} sparse_mla_delta"})
    | of("megatron", {f"{MEGATRON}.tilelang_dsa": "lighting_indexer lighting_indexer_indices SparseMLA SparseIndexerKLLoss"})
    | of("megatron", {f"{MEGATRON}.tilelang_dsa": "sparse_indexer_target_interface"})
    | of("_megatron_dsa", {f"{MEGATRON_DSA}.dsa.dsa_kernels": "use_fused_dsa_kernels"})
    | of("_megatron_dsa", {f"{MEGATRON_DSA}.dsa_kernels": "run_fused_dsa_attention"}),
    "prime_rl": of("prime_rl", {f"{PRIME_RL}.glm_moe_dsa.sparse_mla_attention": f"fp8_indexer {MLA}"}),
    "xtuner": of("xtuner", {f"{XTUNER}.tilelang": "ensure_tilelang_runtime_available"})
    | of("slime", {**kernels(f"{XTUNER}.tilelang_sparse_mla", MLA), f"{XTUNER}.tilelang_indexer_fwd": "indexer_fwd_interface"})
    | of("cudnn", {f"{CUDNN}.sparse_attention_backward": "sparse_attention_backward_wrapper"}),
}
THEIRS_STILL = {
    "slime": [f"{SLIME}.glm5.SparseMLA", f"{SLIME}.glm5.lighting_indexer"],
    "miles": [f"{MILES}.glm5.glm5.SparseMLA", f"{MILES}.deepseek_v4.ops.kernel.tilelang_indexer.v4_lighting_indexer"],
    "veomni": [f"{VEOMNI}.deepseek_v4.tilelang_sparse_mla.sparse_attn_tilelang"],
    "nemo": [f"{NEMO}.glm_moe_dsa.optimized_kernels.cudnn_sparse_attention"],
    "megatron": [
        f"{MEGATRON}.tilelang_dsa.run_fused_qk_topk",
        f"{MEGATRON}.indexer._select_topk_from_logits",
        f"{MEGATRON_DSA}.dsa_kernels._load_backend",
    ],
    "prime_rl": [f"{PRIME_RL}.kernels.fp8_indexer.per_token_group_quant_fp8"],
    "xtuner": [f"{XTUNER}.tilelang.forward"],
}
