"""The drop-ins: signatures, and cases that test_compat_table.py does not cover."""

import inspect
import re
import weakref
from itertools import chain

import pytest
import smelt_kernels as smelt
import smelt_kernels.compat
import torch
from compat_cases_attention import ATTENTION, KV
from compat_cases_indexer import E4M3_Q, INDEXER, IW
from compat_definitions import NEVER
from smelt_kernels.compat import _megatron_dsa, cudnn, deep_gemm, megatron, nemo
from test_compat_table import moved
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def test_nemo(device):
    assert nemo.is_dsa_kernel_available("sparse_attn") is True
    with pytest.raises(ValueError):
        nemo.is_dsa_kernel_available("nope")
    tensors = (torch.ones(2, device=device).bfloat16(), torch.ones(2, device=device).bfloat16())
    use = nemo.should_use_tilelang
    assert use("torch", available=True, kernel_name="x", tensors=tensors) is False
    assert use("auto", available=True, kernel_name="x", tensors=tensors, require_bf16=True) is True
    assert use("auto", available=True, kernel_name="x", tensors=(tensors[0].float(),), require_bf16=True) is False
    with pytest.raises(RuntimeError, match="TileLang backend was requested"):
        use("tilelang", available=False, kernel_name="indexer", tensors=tensors)


def test_what_compat_does_not_have():
    with pytest.raises(AttributeError, match="nothing"):
        smelt.compat.nothing  # noqa: B018


def test_infinite_values_are_chosen(device):
    """A masked value within the length is ignored."""
    values = torch.randn(3, 20, device=device)
    values[:, 3:] = NEVER
    lengths = torch.tensor([9, 20, 2], dtype=torch.int32, device=device)
    result = cudnn.indexer_top_k_wrapper(values, lengths, 4, deterministic=True)
    assert result["indices"].tolist() == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, -1, -1]]
    assert bool((result["values"][:2, 3] == NEVER).all())


def test_windows_beyond_the_keys(device):
    """Columns counted from each window's first key."""
    q, k = torch.randn(8, 3, 64, device=device).bfloat16(), torch.randn(8, 64, device=device).bfloat16()
    (q8, q_scale), (k8, k_scale) = smelt.quantize(q), smelt.quantize(k)
    begin = torch.tensor([0, 2, 7, 5, -3, 3, 8, 0], dtype=torch.int32, device=device)
    end = torch.tensor([3, 8, 8, 5, 2, 12, 9, 8], dtype=torch.int32, device=device)
    given = q8, (k8, k_scale), q_scale, begin, end
    logits = deep_gemm.fp8_mqa_logits(*given)
    compressed = deep_gemm.fp8_mqa_logits(*given, max_seqlen_k=9)
    for row in range(8):
        first, last = max(0, int(begin[row])), min(8, int(end[row]))
        assert torch.equal(compressed[row, : max(0, last - first)], logits[row, first:last])
        assert bool((compressed[row, max(0, last - first) :] == NEVER).all())
    none = deep_gemm.fp8_mqa_logits(q8, (k8[:0], k_scale[:0]), q_scale, begin, end, max_seqlen_k=2)
    assert none.shape == (8, 2) and bool((none == NEVER).all())


def test_nothing_to_choose_from(device):
    q, k = torch.randn(2, 4, 2, 64, device=device).bfloat16(), torch.randn(2, 6, 64, device=device).bfloat16()
    weights = torch.ones(2, 4, 2, device=device)
    for nothing in ((q[:0], k[:0], weights[:0]), (q[:, :0], k, weights[:, :0]), (q, k[:, :0], weights)):
        result = cudnn.indexer_forward_top_k_wrapper(*nothing, 2, return_lse=True)
        assert result["indices"].shape == (*nothing[0].shape[:2], 2)
        assert bool((result["indices"] == -1).all()) and bool((result["softmax"] == 0).all())
        assert bool((result["lse"] == NEVER).all())
    begin = torch.zeros(4, dtype=torch.int32, device=device)
    for use_relu in (True, False):
        scores, indices = megatron.lighting_indexer(q[0], k[0, :0], weights[0], begin, begin, 8, use_relu=use_relu)
        assert scores.shape == indices.shape == (4, 0)


# ---- arguments --------------------------------------------------------------------------------------

CUDNN_PACKED = "cu_seqlens_q=None cu_seqlens_k=None max_seqlen_q=None max_seqlen_k=None q_causal_offsets=None"
CUDNN_SCALED = (
    "precision='bf16' q_scale=None k_scale=None cu_seqlens_q_scale_padded=None "
    "cu_seqlens_k_scale_padded=None sf_vec_size=32"
)
CUDNN_MADE = "d_index_q=None d_weights=None d_index_k=None stream=None"
TUNING = "block_I=64 num_stages=2 threads=256"
# As the originals declare them: FlashMLA b7643bd (nv_dev), cuDNN Frontend 1.32, DeepGEMM 54e2261, TileLang a35008a42,
# slime 624b824a8, Megatron-LM d98e8a64dd, miles 31f1ca961, prime-rl 559b44772. A default that the original lacks is in
# brackets.
SIGNATURES = {
    "flash_mla.flash_mla_sparse_fwd": "q kv indices sm_scale d_v=512 attn_sink=None topk_length=None indexer_topk=0",
    "deep_gemm.fp8_mqa_logits": "q kv weights cu_seq_len_k_start cu_seq_len_k_end clean_logits=True max_seqlen_k=0 "
    "logits_dtype=torch.float32",
    "cudnn.sparse_attention_backward_wrapper": "q kv out dout lse attn_sink topk_idxs softmax_scale=None "
    "topk_length=None dq=None dkv=None block_tile=64 deterministic=False stream=None workspace=None "
    "q_cluster_mode='off'",
    "cudnn.indexer_forward_wrapper": "q k w ratio=4 qhead_per_kv_head=None m_block_size=128 n_block_size=128 q_stage=2 "
    f"kv_stage=4 sm_scale=1.0 out=None stream=None {CUDNN_PACKED} {CUDNN_SCALED} return_lse=False lse_out=None",
    "cudnn.sparse_attention": "q kv indices attn_sink=None softmax_scale=None topk_length=None "
    "trusted_compact_metadata=False",
    "cudnn.sparse_attention_score_recompute": "q kv lse indices softmax_scale=None topk_length=None",
    "cudnn.sparse_attention_forward_wrapper": "q kv topk_idxs attn_sink=None topk_length=None softmax_scale=None "
    "indexer_topk=0 stream=None",
    "cudnn.indexer_forward_top_k_wrapper": "q k w top_k ratio=4 qhead_per_kv_head=None m_block_size=128 "
    f"n_block_size=128 q_stage=2 kv_stage=4 sm_scale=1.0 stream=None {CUDNN_PACKED} {CUDNN_SCALED} "
    "return_lse=False lse_out=None return_softmax=None softmax_out=None microbatch_rows=-1 "
    "topk_indices_global=True cand_buffer=None out_indices=None out_logits=None cand_batch_offsets=None deterministic=False",
    "cudnn.compress_topk_cand_buffer_size": "bs seqlen_q seqlen_k ratio microbatch_rows=-1 return_lse=False "
    "q_causal_offsets=None precision='bf16'",
    "cudnn.compress_topk_cand_buffer_size_thd": "cu_seqlens_q cu_seqlens_k ratio q_causal_offsets=None",
    "cudnn.indexer_top_k_wrapper": "input_values seq_lens top_k next_n=1 return_val=True num_copy_bits=256 stream=None "
    "tie_break=0 deterministic=False",
    "cudnn.sparse_indexer_score_recompute_wrapper": "q_indexer k_indexer weights topk_indices qhead_per_kv_head=None "
    "topk_length=None topk_indices_global=False out=None stream=None",
    "cudnn.sparse_attn_score_recompute_wrapper": "q_attn k_attn lse topk_indices softmax_scale qhead_per_kv_head=None "
    "topk_length=None topk_indices_global=False out=None stream=None",
    "cudnn.indexer_backward_wrapper": "index_q weights index_k attn_score index_score topk_indices grad_loss[1.0] "
    f"sm_scale=1.0 loss_coeff=1.0 block_I=128 topk_indices_global=False {CUDNN_MADE} backend='default' "
    "workspace=None deterministic=False deterministic_dk_planes[None]",
    "cudnn.dense_attn_score_recompute_wrapper": "q k lse softmax_scale qhead_per_kv_head=None out=None denom_out=None "
    f"ratio=1 {CUDNN_PACKED} {CUDNN_SCALED} stream=None",
    "cudnn.dense_indexer_score_recompute_wrapper": "q k weights qhead_per_kv_head=None out=None denom_out=None "
    f"sm_scale=1.0 ratio=1 {CUDNN_PACKED} {CUDNN_SCALED} stream=None",
    "cudnn.dense_indexer_backward_wrapper": "index_q weights index_k attn_score attn_l1norm index_score index_lse "
    f"grad_loss[1.0] sm_scale=1.0 loss_coeff=1.0 block_I=128 ratio=1 {CUDNN_PACKED} {CUDNN_MADE} workspace=None",
    "cudnn.compactify_wrapper": "indices stream=None",
    "cudnn.local_to_global_wrapper": "local_indices seqlen_k cu_seqlens_q=None cu_seqlens_k=None stream=None",
    "tilelang.sparse_mla_fwd_interface": f"q kv indices sm_scale=None return_p_sum=False d_v=512 {TUNING}",
    "tilelang.sparse_mla_bwd": "q kv o do indices lse sm_scale=None is_casual=True return_kernel=False delta=None",
    "slime.sparse_mla_fwd_interface": f"q kv indices sm_scale=None return_p_sum=False d_v=512 {TUNING}",
    "slime.sparse_mla_bwd": "q kv o do indices lse sm_scale=None is_casual=True return_kernel=False delta=None",
    "slime.indexer_fwd_interface": "q kv weights cu_seqlen_ks cu_seqlen_ke clean_logits=True",
    "slime.indexer_bwd_interface": "index_q weights index_k topk_indices grad_scores",
    "slime.lighting_indexer": "index_q index_k weights cu_seqlen_ks cu_seqlen_ke topk topk_indices=None",
    "megatron.sparse_mla_fwd_interface": f"q kv indices sm_scale=None d_v=512 {TUNING}",
    "megatron.sparse_mla_bwd": "q kv o do indices lse sm_scale=None delta=None",
    "miles.sparse_mqa_fwd_interface": f"q kv attn_sink topk_idxs sm_scale=None {TUNING}",
    "miles.sparse_mqa_bwd_interface": "q kv attn_sink o do topk_idxs lse sm_scale=None",
    "miles.batched_indexer_fwd": "q k weights cu_seqlen_ks cu_seqlen_ke",
    "miles.batched_indexer_bwd": "index_q weights index_k topk_indices grad_scores",
    "prime_rl.sparse_mla_fwd_interface": f"q kv indices sm_scale=None d_v=512 {TUNING}",
    "prime_rl.sparse_mla_bwd": "q kv o do indices lse sm_scale=None",
    "prime_rl.fp8_indexer": "q k w ks ke topk weight_scale=1.0",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name):
    """Every legal call of the original, by position or by name, is legal here with the same meaning; others are
    errors."""
    module, function = name.split(".")
    parameters = inspect.signature(getattr(getattr(smelt.compat, module), function)).parameters
    kinds = inspect.Parameter
    assert all(each.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY) for each in parameters.values()), (
        "what is misspelt would be swallowed"
    )
    shown = []
    for each in parameters.values():
        default = f"={each.default}" if isinstance(each.default, torch.dtype) else f"={each.default!r}"
        shown.append(each.name + ("" if each.default is kinds.empty else default))
    theirs = re.sub(r"\[(.*?)\]", r"=\1", SIGNATURES[name]).split()
    assert shown[: len(theirs)] == theirs
    beyond = list(parameters.values())[len(theirs) :]
    assert all(each.default is not kinds.empty for each in beyond)


# The tensors with a number for each query and head, which these read a batch or a document at a time.
PER_HEAD = [
    ("indexer_forward_wrapper", "w"),
    ("dense_indexer_score_recompute_wrapper", "weights"),
    ("dense_attn_score_recompute_wrapper", "lse"),
    ("dense_indexer_backward_wrapper", "weights"),
]
# A case of the table, changed arguments, and the error's text. The table's `changes` have other refusals.
REFUSED = [
    ("flash_mla.flash_mla_sparse_fwd", {"kv": KV.unsqueeze(1).expand(-1, 2, -1)}, "one KV head"),
    ("flash_mla.flash_mla_sparse_fwd", {"indexer_topk": -1}, "indexer_topk"),
    ("flash_mla.flash_mla_sparse_fwd", {"indexer_topk": 1.5}, "indexer_topk"),
    ("cudnn.sparse_attention_forward_wrapper", {"indexer_topk": -1}, "indexer_topk"),
    ("cudnn.sparse_attention_forward_wrapper", {"indexer_topk": 1.5}, "indexer_topk"),
    ("cudnn.sparse_attention_forward_wrapper", {"indexer_topk": 8}, "0 to 6"),
    ("cudnn.sparse_attention", {"trusted_compact_metadata": 1}, "trusted_compact_metadata"),
    ("cudnn.indexer_forward_top_k_wrapper", {"ratio": 0}, "ratio"),
    ("cudnn.indexer_forward_top_k_wrapper", {"top_k": 0}, "top_k"),
    ("cudnn.indexer_forward_top_k_wrapper", {"precision": "fp8"}, "smelt.indexer_topk also read e4m3"),
    ("cudnn.indexer_forward_wrapper, fp8", {"w": IW.half()}, "torch.float32 with q_scale and sm_scale in it"),
    ("cudnn.indexer_top_k_wrapper", {"tie_break": 2}, "tie_break"),
    ("cudnn.indexer_top_k_wrapper", {"next_n": 3}, "sequences of 3"),
    ("deep_gemm.fp8_mqa_logits", {"logits_dtype": torch.float16}, "logits_dtype"),
    ("deep_gemm.fp8_fp4_mqa_logits", {"q": (E4M3_Q, IW[0])}, "fp4"),
    ("deep_gemm.fp8_mqa_logits", {"max_seqlen_k": -1}, "max_seqlen_k must not be negative"),
    ("deep_gemm.fp8_mqa_logits", {"weights": None}, "weights must be a torch.Tensor"),
    ("deep_gemm.fp8_mqa_logits", {"weights": IW[0].repeat(2, 1)}, "of weights .T. is 8, but must be 4"),
    *[("cudnn." + name, {argument: IW.repeat(2, 1, 1)}, f"{argument} must be ") for name, argument in PER_HEAD],
    ("cudnn.indexer_forward_wrapper", {"ratio": 1.5}, "ratio must be an int"),
    ("cudnn.indexer_forward_wrapper", {"precision": None}, "bf16 only"),
    ("cudnn.indexer_forward_wrapper, packed", {"max_seqlen_k": 7.5}, "max_seqlen_k must be an int"),
    ("cudnn.indexer_forward_top_k_wrapper, packed", {"ratio": 0}, "ratio must be positive"),
    ("cudnn.indexer_top_k_wrapper", {"input_values": torch.zeros(6, 9, dtype=torch.float64)}, "input_values' type"),
    ("cudnn.aligned_hca_backward_wrapper", {"attn_sink": [0.0]}, "attn_sink must be a torch.Tensor"),
    *[
        (f"cudnn.{name}", {"sm_scale": value}, "sm_scale must be a number|sm_scale = nan is not legal")
        for name in ("indexer_forward_wrapper", "indexer_forward_wrapper, fp8", "indexer_forward_top_k_wrapper")
        for value in (None, "x", float("nan"))
    ],
    ("cudnn.indexer_backward_wrapper", {"loss_coeff": None}, "loss_coeff must be a number"),
    ("cudnn.dense_indexer_backward_wrapper", {"sm_scale": float("inf")}, "sm_scale = inf is not legal"),
    ("cudnn.local_to_global_wrapper", {"seqlen_k": -1}, "seqlen_k must not be negative"),
    ("cudnn.local_to_global_wrapper", {"seqlen_k": None}, "seqlen_k must be an int"),
    ("cudnn.sparse_attention_backward_wrapper", {"lse": torch.zeros(4, 2).int()}, "lse must be a tensor of a floating"),
    ("slime.sparse_mla_bwd", {"lse": torch.zeros(4, 2).int()}, "lse must be a tensor of a floating type"),
    ("miles.sparse_mqa_bwd_interface", {"attn_sink": torch.zeros(1)}, "attn_sink .H. is 1, but must be 2"),
    ("miles.sparse_mqa_bwd_interface", {"attn_sink": torch.zeros(2).int()}, "attn_sink must be a tensor of a floating"),
    ("miles.sparse_attn_tilelang_head_chunked", {"max_heads_per_kernel": 1.5}, "max_heads_per_kernel"),
    ("megatron.sparse_mla_delta", {"o": torch.zeros(2, 4, 2, 128).int()}, "o must be a tensor of a floating type"),
    ("megatron.sparse_mla_bwd", {"o": None}, "o or delta"),
    ("slime.sparse_mla_bwd", {"is_casual": False}, "sparse_mla_bwd supports only is_casual=True"),
    *[("slime.sparse_mla_bwd", {name: [0.0]}, f"{name} must be a torch.Tensor") for name in ("do", "lse", "delta")],
    ("slime.sparse_mla_bwd", {"indices": [0]}, "indices must be a torch.Tensor"),
    ("slime.indexer_fwd_interface", {"cu_seqlen_ks": [0]}, "cu_seqlen_ks must be a torch.Tensor"),
]


@pytest.mark.parametrize(("name", "arguments", "says"), REFUSED)
def test_refused(name, arguments, says, device):
    case = (ATTENTION | INDEXER)[name]
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=says):
        case.call(**{key: moved(value, device) for key, value in {**case.given, **arguments}.items()})


class Allocations(TorchDispatchMode):
    """Counts the bytes of the storages that calls under it make, those alive and the most at any time."""

    def __init__(self):
        super().__init__()
        self.alive = self.peak = 0
        self.known = weakref.WeakSet()

    def free(self, size):
        self.alive -= size

    def new(self, tree):
        for each in tree_leaves(tree):
            if isinstance(each, torch.Tensor) and each.untyped_storage() not in self.known:
                self.known.add(each.untyped_storage())
                yield each.untyped_storage()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        list(self.new((args, kwargs)))
        made = function(*args, **(kwargs or {}))
        for storage in self.new(made):
            self.alive += storage.nbytes()
            weakref.finalize(storage, self.free, storage.nbytes())
        self.peak = max(self.peak, self.alive)
        return made


def peak(function, *given, **named):
    """Of a call on meta tensors: the bytes beyond its arguments at most, and those of its results."""
    with Allocations() as seen:
        results = function(*given, **named)
    return seen.peak, sum(each.nbytes for each in tuple(results))


def test_memory_of_the_warm_up():
    """At 4096 x 4096, of which a matrix has 64 MB: the wrappers hold what they return and some rows of temporaries; the
    trainer's loss with its gradients holds no matrix."""
    tokens, mb = 4096, 1 << 20
    with torch.device("meta"):
        q, k = torch.empty(1, tokens, 8, 576).bfloat16(), torch.empty(1, tokens, 576).bfloat16()
        iq, ik = torch.empty(1, tokens, 8, 128).bfloat16(), torch.empty(1, tokens, 128).bfloat16()
        w, lse = torch.empty(1, tokens, 8), torch.empty(1, tokens, 8)
        matrices, rows = (torch.empty(1, tokens, tokens) for _ in range(2)), (torch.empty(1, tokens) for _ in range(2))
        beyond = {}
        for name, call, given in (
            ("target", cudnn.dense_attn_score_recompute_wrapper, (q, k, lse, 0.1)),
            ("scores", cudnn.dense_indexer_score_recompute_wrapper, (iq, ik, w)),
            ("backward", cudnn.dense_indexer_backward_wrapper, (iq, w, ik, *chain(*zip(matrices, rows)))),
        ):
            most, results = peak(call, *given)
            beyond[name] = (most - results) / mb
        begin, end = (torch.empty(tokens).int() for _ in range(2))
        leaves = [each.transpose(0, 1).requires_grad_() for each in (iq, ik, w)]

        def trained():
            indexer = _megatron_dsa._Indexer(*leaves, begin, end, True)
            loss = _megatron_dsa._dense_loss(indexer, q.transpose(0, 1), k.transpose(0, 1), 0.1, None, {})
            return loss, *torch.autograd.grad(loss, leaves)

        whole, results = peak(trained)
    assert whole < 3 * results < 40 * mb, (whole / mb, results / mb)
    bounds = {"target": 40, "scores": 40, "backward": 128}
    assert all(beyond[name] < bounds[name] for name in bounds), beyond
