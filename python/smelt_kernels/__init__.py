"""smelt for PyTorch: kernels for DeepSeek-style sparse attention, compiled for each configuration.

``smelt.sparse_attention`` is differentiable and works under torch.compile, CUDA graphs, autocast and checkpointing; so do
the functions of the lightning indexer. ``smelt.compat`` replaces FlashMLA's, cuDNN's, TileLang's and DeepGEMM's functions,
``smelt.integrations`` serves Hugging Face Transformers.
"""

from . import _native, compat, integrations
from ._dense import dense_lse, indexer_dense_loss
from ._grouped_attention import sparse_gqa, sparse_gqa_scores
from ._indexed_attention import indexed_attention, selection_difference
from ._indexer import clean_logits_, indexer_logits, indexer_windows
from ._indexer_gradients import indexer_backward
from ._indexer_training import indexer_loss, indexer_scores, sparse_scores
from ._project import project_values
from ._quantize import fake_quantize, quantize
from ._runtime import SmeltWarning, get_backend, kernels, set_backend, stats
from ._selection import indexer_topk, topk_select
from ._sparse_attention import sparse_attention, sparse_attention_backward
from ._warm import presets, warm

__version__: str = _native.version()

__all__ = [
    "SmeltWarning", "clean_logits_", "dense_lse", "fake_quantize", "get_backend", "indexed_attention",
    "indexer_backward", "indexer_dense_loss", "indexer_logits", "indexer_loss", "indexer_scores", "indexer_topk",
    "indexer_windows", "kernels", "presets", "project_values", "quantize", "selection_difference", "set_backend",
    "sparse_attention", "sparse_attention_backward", "sparse_gqa", "sparse_gqa_scores", "sparse_scores", "stats",
    "topk_select", "warm",
]  # fmt: skip
