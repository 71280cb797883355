#!/usr/bin/env python3
"""A small DSA model of Megatron-LM on two GPUs: its own PyTorch beside smelt's hooks, losses and tokens per second.

    torchrun --nproc-per-node 2 bench/megatron_lm.py tensor|context [--small]

Needs megatron-core 0.19 (Python 3.12) and smelt_kernels. Transformer Engine is not needed: two small classes stand for its
duplicated linear layer and its norm. `--small` is a tiny model; without a GPU it runs on gloo and, with SMELT_CUDA set, on
the emulator. Two layers, 64 heads, latent rows of 512 + 64, 32 indexer heads; AdamW with fp32 weights; one batch whose second
half repeats the first.
"""

import argparse
import contextlib
import logging
import os
import time
import types

logging.disable(logging.WARNING)

import torch
from torch import distributed as dist
from torch.nn import functional

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if GPU else torch.device("cpu")


def scatter_by_reduction(out, x, group=None, **_):
    """gloo has no reduce_scatter."""
    total = x.clone()
    dist.all_reduce(total, group=group)
    out.copy_(total.chunk(dist.get_world_size(group))[dist.get_rank(group)])
    return types.SimpleNamespace(wait=lambda: None)


def without_gpu():
    """What Megatron asks CUDA for."""
    tensor = torch.tensor
    torch.tensor = lambda *given, pin_memory=False, **named: tensor(*given, **named)
    torch.Tensor.cuda = lambda self, *_, **__: self
    torch.cuda.current_device = lambda: "cpu"
    torch.set_num_threads(1)
    dist.reduce_scatter_tensor = dist._reduce_scatter_base = scatter_by_reduction


if GPU:
    torch.cuda.set_device(DEVICE)
else:
    without_gpu()

from megatron.core import parallel_state
from megatron.core.models.backends import LocalSpecProvider
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt import experimental_attention_variant_module_specs as specs
from megatron.core.tensor_parallel import layers, mappings
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker, model_parallel_cuda_manual_seed
from megatron.core.transformer.enums import AttnBackend
from megatron.core.transformer.experimental_attention_variant import absorbed_mla, dsa
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import MLATransformerConfig

import smelt_kernels as smelt

smelt.compat.install("megatron")
smelt.set_backend("smelt")


class Duplicated(torch.nn.Module):
    def __init__(self, inputs, outputs, *, config, init_method, **_):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(outputs, inputs, dtype=config.params_dtype))
        init_method(self.weight)
        self.weight.sequence_parallel = config.sequence_parallel

    def forward(self, x):
        return functional.linear(x, self.weight), None


class Norm(torch.nn.Module):
    def __init__(self, config, hidden_size, eps=1e-6, **_):
        super().__init__()
        self.eps, self.rms = eps, config.normalization == "RMSNorm"
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype))
        self.weight.sequence_parallel = config.sequence_parallel

    def forward(self, x):
        norm = functional.rms_norm if self.rms else functional.layer_norm
        return norm(x, x.shape[-1:], self.weight, eps=self.eps)


class Provider(LocalSpecProvider):
    def linear(self):
        return Duplicated

    def layer_norm(self, rms_norm=False, for_qk=False, has_residual=False):
        return Norm


absorbed_mla.TELinear = Duplicated


class Run:
    def __init__(self, mode, small):
        self.tp, self.cp = (2, 1) if mode == "tensor" else (1, 2)
        self.mode, self.small = mode, small
        self.vocabulary = 64 if small else 8192
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=self.tp, context_parallel_size=self.cp)
        if GPU:
            model_parallel_cuda_manual_seed(7)
        else:
            get_cuda_rng_tracker().fork = lambda *_, **__: contextlib.nullcontext()
            for module in (layers, mappings):
                if hasattr(module, "dist_reduce_scatter_func"):
                    module.dist_reduce_scatter_func = scatter_by_reduction

    def config(self, own, sparse, topk):
        big = {
            "hidden_size": 2048, "ffn_hidden_size": 4096, "num_attention_heads": 64, "q_lora_rank": 1024,
            "kv_lora_rank": 512, "qk_head_dim": 128, "v_head_dim": 128, "kv_channels": 128, "dsa_indexer_n_heads": 32,
            "dsa_indexer_head_dim": 128,
        }  # fmt: skip
        little = dict(zip(big, (64, 64, 4, 32, 64, 32, 32, 32, 4, 64)))
        return MLATransformerConfig(
            **little if self.small else big, num_layers=2, multi_latent_attention=True,
            experimental_attention_variant="dsa", qk_pos_emb_head_dim=64, dsa_indexer_topk=topk,
            dsa_indexer_loss_coeff=0.1, dsa_indexer_use_sparse_loss=sparse, dsa_indexer_rotate_activation=False,
            add_bias_linear=False, bf16=True, params_dtype=torch.bfloat16, normalization="RMSNorm", qk_layernorm=True,
            tensor_model_parallel_size=self.tp, sequence_parallel=self.tp > 1, context_parallel_size=self.cp,
            cp_comm_type="allgather", rope_type="rope", apply_rope_fusion=False, hidden_dropout=0.0,
            attention_dropout=0.0, use_cpu_initialization=True, gradient_accumulation_fusion=False,
            bias_dropout_fusion=False, persist_layer_norm=False, transformer_impl="local",
            attention_backend=AttnBackend.unfused if own else AttnBackend.auto, init_method_std=0.05,
        )  # fmt: skip

    def model(self, own, tokens, sparse, topk):
        torch.manual_seed(5)
        for name in ("FLASH", "FUSED", "UNFUSED"):  # Megatron's own, from the model before
            os.environ.pop(f"NVTE_{name}_ATTN", None)
        config, provider = self.config(own, sparse, topk), Provider()
        every = specs.get_transformer_layer_with_experimental_attention_variant_spec(config, backend=provider)
        model = GPTModel(
            config, TransformerBlockSubmodules(layer_specs=every, layer_norm=Norm), vocab_size=self.vocabulary,
            max_sequence_length=tokens, position_embedding_type="rope", share_embeddings_and_output_weights=False,
        )  # fmt: skip
        return model.to(DEVICE, torch.bfloat16).train()

    def batch(self, tokens):
        """Tokens, labels and positions: context parallel, of the rank's first and last part."""
        half = torch.randint(0, self.vocabulary, (1, tokens // 2), generator=torch.Generator().manual_seed(3))
        whole = torch.cat((half, half, half[:, :1]), 1)
        parts = [whole[:, :-1], whole[:, 1:], torch.arange(tokens)[None]]
        if self.cp > 1:
            rank, count = parallel_state.get_context_parallel_rank(), 2 * self.cp
            chunks = [each.chunk(count, 1) for each in parts]
            parts = [torch.cat((each[rank], each[count - 1 - rank]), 1) for each in chunks]
        return [each.to(DEVICE) for each in parts]

    def reduce(self, model):
        """Gradients over the ranks, as Megatron's optimizers do."""
        group = parallel_state.get_tensor_model_parallel_group()
        for parameter in model.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            if self.cp > 1:
                dist.all_reduce(parameter.grad, group=parallel_state.get_context_parallel_group())
                parameter.grad /= self.cp
            elif getattr(parameter, "average_gradients_across_tp_domain", False):
                dist.all_reduce(parameter.grad, group=group)
                parameter.grad /= self.tp
            elif getattr(parameter, "sequence_parallel", False):
                dist.all_reduce(parameter.grad, group=group)

    def train(self, own, tokens, steps, sparse=True, topk=512, warm=0):
        """Losses, the indexer's divergences, seconds of a step after `warm` ones, GiB."""
        model = self.model(own, tokens, sparse, topk)
        weights = [each.detach().float().clone().requires_grad_() for each in model.parameters()]
        adam = torch.optim.AdamW(weights, lr=1e-4, betas=(0.9, 0.95))
        inputs, labels, positions = self.batch(tokens)
        seen = []
        if GPU:
            torch.cuda.reset_peak_memory_stats()
        for step in range(steps):
            if step == warm:
                begin = self.now()
            loss = model(inputs, positions, None, labels=labels).float().mean()
            loss.backward()
            self.reduce(model)
            for weight, parameter in zip(weights, model.parameters()):
                weight.grad, parameter.grad = parameter.grad.float(), None
            adam.step()
            with torch.no_grad():
                for weight, parameter in zip(weights, model.parameters()):
                    parameter.copy_(weight)
            divergence = dsa.DSAIndexerLossLoggingHelper.tracker["values"]
            seen.append(torch.stack((loss.detach(), divergence.mean() / 0.1)))
            divergence.zero_()
        seconds = (self.now() - begin) / (steps - warm)
        memory = torch.cuda.max_memory_allocated() / 2**30 if GPU else 0.0
        seen = torch.stack(seen)
        if self.cp > 1:
            dist.all_reduce(seen)
            seen /= self.cp
        return *seen.t().tolist(), seconds, memory

    def now(self):
        if GPU:
            torch.cuda.synchronize()
        return time.perf_counter()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("tensor", "context"), help="what the two GPUs divide: heads, or queries")
    parser.add_argument("--small", action="store_true", help="a tiny model, for the emulator")
    options = parser.parse_args()
    dist.init_process_group("nccl" if GPU else "gloo")
    run = Run(options.mode, options.small)
    say = print if dist.get_rank() == 0 else lambda *_, **__: None

    tokens, topk = (32, 8) if options.small else (2048, 512)
    for sparse, steps in ((True, 20), (False, 5)):
        kind = "sparse" if sparse else "dense"
        say(f"{options.mode} parallel, {tokens} tokens, topk {topk}, {kind} indexer loss, steps 1 2 3 5 10 15 20")
        found = {who: run.train(who == "own", tokens, steps, sparse, topk) for who in ("own", "smelt")}
        for place, what in enumerate(("loss", "divergence")):
            for who, values in found.items():
                shown = [values[place][step] for step in (0, 1, 2, 4, 9, 14, 19) if step < steps]
                say(f"  {what:10s} {who:5s} " + " ".join(f"{each:8.4f}" for each in shown), flush=True)
    sizes = ((32, 8),) if options.small else ((2048, 512), (4096, 2048), (16384, 2048))
    for (tokens, topk), who in ((size, who) for size in sizes for who in ("own", "smelt")):
        if who == "own" and tokens > 4096:
            continue  # which has no memory for matrices of queries x keys
        *_, seconds, memory = run.train(who == "own", tokens, 5, topk=topk, warm=2)
        speed = f"{seconds * 1e3:8.1f} ms a step, {tokens / seconds:9.0f} tokens/s, {memory:5.1f} GiB a GPU"
        say(f"  {tokens:6d} tokens, topk {topk:4d}: {who:5s} {speed}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
