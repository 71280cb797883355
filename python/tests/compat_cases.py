"""A table of smelt.compat's drop-ins (compat_cases_attention.py, compat_cases_indexer.py): for each a legal call, what
its original computes of it (compat_definitions.py), and what each of its parameters does. test_compat_table.py runs it; a
drop-in or a parameter that is missing fails there.

The originals were read at these versions: FlashMLA nv_dev (flash_mla/flash_mla_interface.py, ref.py of its tests), DeepGEMM
54e2261 (csrc/apis/attention.hpp, test_attention.py of its tests), cuDNN Frontend 1.32 (python/cudnn/deepseek_sparse_attention:
training.py, */api.py, */_interface*.py and the kernels that these launch), TileLang a35008a42 (examples/deepseek_v32),
slime 624b824a8 (slime_plugins/models/glm5/ops), Megatron-LM d98e8a64dd (megatron/core/transformer/
experimental_attention_variant/ops), miles 31f1ca961 (miles_plugins/models/deepseek_v4/ops/kernel), prime-rl 559b44772
(src/prime_rl/trainer/models/kernels), NeMo AutoModel 36044ad3d (nemo_automodel/components/models/glm_moe_dsa).
"""

import inspect
import types
from dataclasses import dataclass, field

import torch


@dataclass
class Case:
    call: object
    given: dict  # legal arguments: those without a default, and tensors
    want: object  # of all arguments, defaults included: what the original gives, by name, in double precision
    lists: tuple = ()  # arguments that are lists of rows, of which some slots are -1
    bounds: tuple = ()  # other arguments of integers
    outputs: dict = field(default_factory=dict)  # arguments to write into: (name of the result, types beside its own)
    changes: dict = field(default_factory=dict)  # arguments: another value, which is refused or gives what it should
    tuning: dict = field(default_factory=dict)  # arguments: another value, which changes nothing
    unread: tuple = ()  # tensors that change nothing
    rows: int = 9  # how many rows lists name: what is not below is masked
    leaves: tuple = ()  # arguments whose gradients count among the results, as grad_NAME, by the first result

    def arguments(self, **changes):
        """Those of a call by name, a namespace."""
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
    """function of each batch, its results with a dimension of batches in front."""
    results = [function(*each) for each in zip(*tensors)]
    return [torch.stack(each) for each in zip(*results)]


COTANGENT = normal(1 << 14).float()  # gradients of results: its first elements


def cotangent(result):
    return COTANGENT[: result.numel()].view(result.shape).to(result.device)
