"""A table of smelt.compat's drop-ins (compat_cases_attention.py, compat_cases_indexer.py): for each a legal call, the
original's result by definition (compat_definitions.py), and the effect of each parameter. test_compat_table.py runs it;
a drop-in or a parameter that is missing fails there.

The originals' versions: FlashMLA nv_dev (flash_mla/flash_mla_interface.py, ref.py of its tests), DeepGEMM
54e2261 (csrc/apis/attention.hpp, test_attention.py of its tests), cuDNN Frontend 1.32 (python/cudnn/deepseek_sparse_attention:
training.py, */api.py, */_interface*.py and the kernels that these launch), TileLang a35008a42 (examples/deepseek_v32),
slime 624b824a8 (slime_plugins/models/glm5/ops), Megatron-LM d98e8a64dd (megatron/core/transformer/
experimental_attention_variant/ops), miles 31f1ca961 (miles_plugins/models/deepseek_v4/ops/kernel), prime-rl 559b44772
(src/prime_rl/trainer/models/kernels), NeMo AutoModel 36044ad3d (nemo_automodel/components/models/glm_moe_dsa).
The releases cuDNN Frontend 1.32.0, Megatron Core 0.19.2 and NeMo AutoModel 0.7.0 have the same functions.
"""

import inspect
import types
from dataclasses import dataclass, field

import torch


@dataclass
class Case:
    call: object
    given: dict  # legal arguments: those without a default, and tensors
    want: object  # a function of all arguments, defaults included: the original's results by name, in double precision
    lists: tuple = ()  # arguments that are lists of rows, of which some slots are -1
    bounds: tuple = ()  # other arguments of integers
    outputs: dict = field(default_factory=dict)  # output arguments: (name of the result, further legal types)
    changes: dict = field(default_factory=dict)  # other values: refused or as in the original
    tuning: dict = field(default_factory=dict)  # arguments: another value without effect
    unread: tuple = ()  # tensors without effect
    rows: int = 9  # the number of rows; list entries from it on are masked
    leaves: tuple = ()  # arguments whose gradients (of the first result) are results, as grad_NAME

    def arguments(self, **changes):
        """A call's arguments, as a namespace."""
        bound = inspect.signature(self.call).bind(**{**self.given, **changes})
        bound.apply_defaults()
        return types.SimpleNamespace(**bound.arguments)


made = torch.Generator().manual_seed(28)


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, generator=made).to(dtype)


def ints(*rows):
    return torch.tensor(rows, dtype=torch.int32)


def flat(*tensors):
    return [tensor.flatten(0, 1) for tensor in tensors]


def stacked(function, *tensors):
    """Applies the function to each batch and stacks the results."""
    results = [function(*each) for each in zip(*tensors)]
    return [torch.stack(each) for each in zip(*results)]


COTANGENT = normal(1 << 14).float()  # gradients of results are its first elements


def cotangent(result):
    return COTANGENT[: result.numel()].view(result.shape).to(result.device)
