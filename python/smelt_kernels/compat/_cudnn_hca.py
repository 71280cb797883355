"""cuDNN Frontend's backward pass of DeepSeek-V4's heavily compressed attention, `aligned_hca_backward_wrapper`.

Their contract: one sequence in cp_size chunks of L tokens, L a multiple of 128; q [L, H, D] of chunk cp_rank; token t
sees tokens t - 127 .. t and the groups of 128 tokens that are complete at t. kv has rows for the 128 tokens before the
chunk, for its own L tokens, and then L / 128 + 1 rows for each rank's groups, of which rank 0 does not use the last and
the others do not use the first. In addition: any number of heads, ranks and chunks, every width and GPU that smelt
supports.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._checks import integer, shapes
from .._sparse_attention import sparse_attention_backward
from ._conventions import TupleDict, check_outputs, from_flash_mla, into
from ._cudnn_common import on_stream

WINDOW = GROUP = 128


def _rows(tokens: int, rank: int, device) -> Tensor:
    """The rows of kv that each query sees, [L, WINDOW + groups] int32, -1 where there are fewer."""
    query = torch.arange(tokens, device=device)[:, None]
    first = tokens * rank
    window = query + 1 + torch.arange(WINDOW, device=device)
    window = window.masked_fill(window - WINDOW + first < 0, -1)
    own = tokens // GROUP  # groups of a rank
    group = torch.arange(own * (rank + 1), device=device)
    owner = group // own
    place = tokens + WINDOW + owner * (own + 1) + group % own + (owner > 0)
    groups = place.where(group < (first + query + 1) // GROUP, -1)
    return torch.cat([window, groups], -1).int()


@torch.no_grad()
def aligned_hca_backward_wrapper(
    q: Tensor, kv: Tensor, out: Tensor, dout: Tensor, lse: Tensor, attn_sink: Tensor, *, cp_rank: int,
    softmax_scale: float = 512**-0.5, dq: Tensor | None = None, dkv: Tensor | None = None, d_sink: Tensor | None = None,
    workspace: Tensor | None = None, current_stream=None, cp_size: int = 16,
) -> TupleDict:  # fmt: skip
    """{"dq", "dkv", "d_sink"}; lse [L, H] natural and without the sink, out with the sink. Rows of kv that no query
    sees may have any contents and get the gradient 0. No workspace is needed."""
    if not 0 <= integer(cp_rank, "cp_rank") < integer(cp_size, "cp_size"):
        raise ValueError(f"smelt: cp_rank must be 0 to cp_size - 1 = {cp_size - 1}, not {cp_rank}")
    shapes(q=(q, "THD"), kv=(kv, "SD"), lse=(lse, "TH"), attn_sink=(attn_sink, "H"))
    tokens = q.shape[0]
    rows = tokens + WINDOW + cp_size * (tokens // GROUP + 1)
    if tokens % GROUP or kv.shape[0] != rows:
        raise ValueError(
            f"smelt: q must have a multiple of {GROUP} tokens, not {tokens}, and kv with cp_size={cp_size} {rows} rows, "
            f"not {kv.shape[0]}"
        )
    check_outputs(
        q.device,
        dq=(dq, q.shape, q.dtype),
        dkv=(dkv, kv.shape, kv.dtype),
        d_sink=(d_sink, attn_sink.shape, torch.float32),
    )
    with on_stream(current_stream):
        lists = _rows(tokens, cp_rank, q.device)
        grads = sparse_attention_backward(dout, q, kv, lists, out, from_flash_mla(lse), softmax_scale, sink=attn_sink)
        return TupleDict(dq=into(dq, grads[0]), dkv=into(dkv, grads[1]), d_sink=into(d_sink, grads[2]))
