"""smelt.integrations.transformers: small models with random weights, compared with their eager attention."""

import contextlib
import inspect
import threading

import pytest
import torch

transformers = pytest.importorskip("transformers")

from smelt_kernels.integrations import transformers as integration

BATCHES, TOKENS, PADDING = 2, 48, 5
COMMON = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "moe_intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 2, "n_routed_experts": 4, "num_experts_per_tok": 2, "max_position_embeddings": 256,
    "initializer_range": 0.2, "pad_token_id": 0, "q_lora_rank": 32, "index_head_dim": 64, "index_n_heads": 4,
    "index_topk": 16,
}  # fmt: skip
LATENT = {
    **COMMON, "num_key_value_heads": 2, "kv_lora_rank": 64, "qk_rope_head_dim": 64, "qk_nope_head_dim": 32,
    "v_head_dim": 32, "mlp_layer_types": ["dense", "dense"],
}  # fmt: skip
GROUPED = {
    **{key: COMMON[key] for key in ("vocab_size", "hidden_size", "moe_intermediate_size", "num_hidden_layers")},
    **{key: COMMON[key] for key in ("num_experts_per_tok", "max_position_embeddings", "initializer_range", "pad_token_id")},
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
}  # fmt: skip
CONFIGS = {
    "axk2": {**LATENT, "qk_rope_head_dim": 32, "gated_norm_rank": 4},
    "deepseek_v32": {**LATENT, "n_group": 1, "topk_group": 1},
    "glm_moe_dsa": {**LATENT, "indexer_types": ["full", "shared"]},
    "deepseek_v4": {
        **COMMON, "num_key_value_heads": 1, "head_dim": 64, "partial_rotary_factor": 0.25,
        "layer_types": ["compressed_sparse_attention", "heavily_compressed_attention"],
        "compress_rates": {"compressed_sparse_attention": 2, "heavily_compressed_attention": 4}, "index_topk": 8,
        "mlp_layer_types": ["hash_moe", "hash_moe"], "sliding_window": 6, "o_groups": 2, "o_lora_rank": 32,
        "hc_mult": 2, "hc_sinkhorn_iters": 3,
    },
    "glm5_next_text": {
        **LATENT, "qk_rope_head_dim": 0, "qk_nope_head_dim": 64, "indexer_types": ["full", "shared"], "index_kpool": 4,
        "layer_types": ["indexed_attention"] * 2, "hc_mult": 2, "hc_sinkhorn_iters": 3,
    },
    "minimax_m3_vl_text": {
        **GROUPED, "rotary_dim": 32, "dense_intermediate_size": 64, "num_local_experts": 4,
        "mlp_layer_types": ["dense", "dense"], "layer_types": ["minimax_m3_sparse", "full_attention"],
        "index_n_heads": 2, "index_head_dim": 64, "index_block_size": 16, "index_topk_blocks": 2,
    },
    "qwen4_exp_text": {
        **GROUPED, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
        "shared_expert_intermediate_size": 32, "num_experts": 4, "layer_types": ["indexed_attention"] * 2,
        "hc_count": 2, "hc_lowrank": 8, "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 64,
        "indexer_budget": 16, "indexer_compress_ratio": 4,
    },
}  # fmt: skip
NAMES = list(CONFIGS)
LATENT_NAMES = ("axk2", "deepseek_v32", "glm_moe_dsa")
PADDED_BEHIND = ("minimax_m3_vl_text",)


@pytest.fixture(scope="module", autouse=True)
def installed():
    integration.install()
    yield
    integration.uninstall()


def make(name, attention, dtype, weights=None, **changes):
    config = transformers.AutoConfig.for_model(name, **{**CONFIGS[name], **changes})
    torch.manual_seed(0)
    kind = transformers.AutoModel if name == "glm5_next_text" else transformers.AutoModelForCausalLM
    model = kind.from_config(config, attn_implementation=attention, dtype=dtype)
    for key, table in model.named_buffers():  # initially zeros, so every token has expert 0 twice
        if key.endswith("tid2eid"):
            table.copy_(torch.rand(table.shape[0], CONFIGS[name]["n_routed_experts"]).argsort(-1)[:, : table.shape[1]])
    for parameter in model.parameters():  # sinks and biases are initially zeros
        if parameter.dim() < 2:
            torch.nn.init.normal_(parameter, mean=float(parameter.detach()[:1].sum()), std=0.1)
    if weights is not None:
        model.load_state_dict(weights)
    return model


def indexers(model):
    return [module for module in model.modules() if type(module).__name__.endswith("Indexer")]


@contextlib.contextmanager
def recorded(model):
    """Records the lists that the model's indexers select."""
    lists = []
    hooks = [each.register_forward_hook(lambda *given: lists.append(given[-1])) for each in indexers(model)]
    yield lists
    for hook in hooks:
        hook.remove()


def hold(model, lists):
    """Gives the model these lists instead of those of its indexers."""
    for module, chosen in zip(indexers(model), lists, strict=True):
        module.forward = lambda *_, chosen=chosen, **__: chosen


def batch(device, padding, tokens=20, behind=False):
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(3, 64, (BATCHES, tokens), generator=generator)
    mask = torch.ones_like(ids)
    mask[0, tokens - padding if behind else 0 : tokens if behind else padding] = 0
    return ids.to(device), mask.to(device)


def train(model, ids, mask):
    """Logits of tokens other than padding, and gradients of their sum with random factors."""
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits.float()
    (logits * factors(logits, 1))[mask.bool()].sum().backward()
    return logits.detach()[mask.bool()], {name: each.grad for name, each in model.named_parameters()}


def factors(like, seed):
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(seed)).to(like.device)


def attended(model, ids, mask):
    """Records each layer's attention and its arguments."""
    calls = []
    attentions = [layer.self_attn for layer in getattr(model, "model", model).layers]

    def record(module, given, named):
        calls.append({**dict(zip(inspect.signature(module.forward).parameters, given)), **named})

    hooks = [each.register_forward_pre_hook(record, with_kwargs=True) for each in attentions]
    with torch.no_grad():
        model(input_ids=ids, attention_mask=mask, use_cache=False)
    for hook in hooks:
        hook.remove()
    return list(zip(attentions, calls, strict=True))


def chosen(model, layers):
    """The lists that the indexers select, for each layer separately."""
    with recorded(model) as lists, torch.no_grad():
        for attention, named in layers:
            attention(**named)
    return lists


def cast(value, dtype):
    if value is None:
        return None
    if isinstance(value, dict):
        return {key: cast(each, dtype) for key, each in value.items()}
    return tuple(each.to(dtype) for each in value)


def attend(attention, named, mask, seed):
    """One layer's output, and gradients with respect to hidden states and parameters."""
    states = named["hidden_states"].clone().requires_grad_()
    out = attention(**{**named, "hidden_states": states})[0]
    (out * factors(out, seed).to(out.dtype))[mask.bool()].sum().backward()
    gradients = {name: each.grad for name, each in attention.named_parameters() if each.grad is not None}
    return out.detach()[mask.bool()], {"hidden_states": states.grad, **gradients}


def visible(name, chosen, mask):
    """What smelt's indexer would return instead of what an eager indexer chose, without what the mask hides."""
    if chosen.dtype is torch.bool:  # Qwen's mask queries x keys
        causal = torch.ones_like(chosen[0, 0]).tril() & mask[:, None].bool()
        return integration.Lists(rows_of(chosen & causal.unsqueeze(1)).unsqueeze(2), 1)
    if name not in LATENT_NAMES:
        return chosen.int()
    positions = torch.arange(mask.shape[1], device=chosen.device)
    seen = (positions <= positions[:, None]) & mask[:, None].bool()
    return torch.where(seen.gather(2, chosen.long()), chosen, -1)


def rows_of(chosen):
    """An indexer's choice as lists [B, T, ..]."""
    if isinstance(chosen, integration.Lists):
        entries, inside = chosen.entries[:, :, 0], torch.arange(chosen.granularity, device=chosen.entries.device)
        rows = (entries.unsqueeze(-1) * chosen.granularity + inside).masked_fill(entries.unsqueeze(-1) < 0, -1).flatten(2)
        return rows if chosen.limit is None else rows.masked_fill(rows >= chosen.limit.unsqueeze(-1), -1)
    if chosen.dtype is torch.bool:
        numbers = torch.arange(chosen.shape[-1], device=chosen.device, dtype=torch.int32)
        return torch.where(chosen[:, 0], numbers, -1)
    return chosen.transpose(1, 2) if chosen.dim() == 4 else chosen


def error(got, true):
    got, true = got.detach().double(), true.detach().double()
    return float((got - true).norm() / true.norm())


def mean_error(got, true):
    assert got.keys() == true.keys()
    return sum(error(got[name], true[name]) for name in true) / len(true)


def accept(errors, bounds):
    """No error exceeds eager bf16's."""
    for what, value in errors.items():
        assert value <= bounds[what], f"{what}: {value} > {bounds[what]}"


def overlap(got, want):
    """The average share of a query's keys that the other list has."""
    got, want = (each.reshape(-1, each.shape[-1]) for each in (got, want))
    found = ((want.unsqueeze(-1) == got.unsqueeze(1)).any(-1) & (want >= 0)).sum(-1)
    count = (want >= 0).sum(-1)
    return float((found[count > 0] / count[count > 0]).mean())


@pytest.mark.parametrize("name", NAMES)
def test_training(name, device):
    """Each layer's attention in bf16 beside the same in fp32 on the same hidden states: the indexers' own lists; and, with
    the lists held fixed, output and gradients, no further off than eager bf16's. One sequence is padded."""
    ids, mask = batch(device, PADDING, TOKENS, name in PADDED_BEHIND)
    true_model = make(name, "eager", torch.float32).to(device)
    weights = {key: value.to(torch.bfloat16).to(value.dtype) for key, value in true_model.state_dict().items()}
    true_model.load_state_dict(weights)
    true_layers = attended(true_model, ids, mask)
    states = [named["hidden_states"].to(torch.bfloat16) for _, named in true_layers]
    positions = [named.get("position_embeddings") for _, named in true_layers]
    for (_, named), each in zip(true_layers, states):
        named["hidden_states"] = each.float()
    lists = chosen(true_model, true_layers)
    hold(true_model, lists)
    held = {"eager": lists, "smelt": [visible(name, each, mask) for each in lists]}
    means = {}
    for attention, fixed in held.items():
        model = make(name, attention, torch.bfloat16, weights).to(device)
        layers = attended(model, ids, mask)
        for (_, named), *same in zip(layers, states, positions):
            named["hidden_states"], named["position_embeddings"] = same[0], cast(same[1], torch.bfloat16)
        own = chosen(model, layers)
        hold(model, fixed)
        errors = []
        for number, (true_layer, layer) in enumerate(zip(true_layers, layers)):
            if "prev_topk_indices" in layer[1] and number > 0:
                true_layer[1]["prev_topk_indices"], layer[1]["prev_topk_indices"] = lists[0], fixed[0]
            true_out, true_gradients = attend(*true_layer, mask, number)
            out, gradients = attend(*layer, mask, number)
            errors.append({"output": error(out, true_out), "gradients": mean_error(gradients, true_gradients)})
            true_layer[0].zero_grad()
        means[attention] = {what: sum(each[what] for each in errors) / len(errors) for what in errors[0]}
    accept(means["smelt"], means["eager"])
    with pytest.raises(AssertionError, match="gradients"):
        accept({**means["smelt"], "gradients": means["eager"]["gradients"] * 1.001}, means["eager"])
    kept = mask.bool()
    pairs = zip(map(rows_of, own), map(rows_of, held["smelt"]), strict=True)
    share = sum(overlap(got[kept], want[kept]) for got, want in pairs) / len(own)
    assert share >= 0.99, share


def logits_of(model, ids, **named):
    with torch.no_grad():
        return values_of(model(input_ids=ids, **named))


def values_of(made):
    return (made.logits if "logits" in made else made.last_hidden_state).float()


def close(got, true):
    return error(got, true) < 0.02


@pytest.mark.parametrize("name", NAMES)
def test_cache(name, device):
    """A prefill and the following tokens give the same as one call; also with a static cache that is not full."""
    ids, _ = batch(device, 0)
    model = make(name, "smelt", torch.bfloat16).to(device)
    want = logits_of(model, ids, use_cache=False)
    caches = [transformers.DynamicCache(config=model.config)]
    if name != "deepseek_v4":  # which has no static cache
        caches.append(transformers.StaticCache(config=model.config, max_cache_len=32))
    for cache in caches:
        assert close(logits_of(model, ids[:, :13], cache=cache, use_cache=True), want[:, :13])
        assert close(logits_of(model, ids[:, 13:14], cache=cache, use_cache=True), want[:, 13:14])
        assert close(logits_of(model, ids[:, 14:], cache=cache, use_cache=True), want[:, 14:])


@pytest.mark.parametrize("name", NAMES)
def test_masks_of_other_keys(name, device):
    """A mask with too few or too many columns is an error, as for the eager model."""
    ids, mask = batch(device, PADDING, behind=name in PADDED_BEHIND)
    model = make(name, "smelt", torch.bfloat16).to(device)
    wider = [torch.cat((mask, mask), dim=1)] if name != "glm5_next_text" else []  # this model reads only the last columns
    for wrong in (mask[:, :10], *wider):
        with pytest.raises((ValueError, RuntimeError), match="each of the 20 keys|Expected size 20"):
            model(input_ids=ids, attention_mask=wrong, use_cache=False)


@pytest.mark.parametrize("name", NAMES)
def test_threads(name, device):
    """Two threads in one model, which wait for each other after every module of its attention, get each their own tokens' logits."""
    given = [each[:1] for each in (batch(device, 0, tokens)[0] for tokens in (9, 20))]
    model = make(name, "smelt", torch.bfloat16).to(device)
    want = [logits_of(model, ids, use_cache=False) for ids in given]
    together, got = threading.Barrier(2, timeout=200), [None, None]

    def wait(*_):
        together.wait()

    for layer in getattr(model, "model", model).layers:
        for module in layer.self_attn.modules():
            module.register_forward_hook(wait)

    def run(number):
        try:
            got[number] = logits_of(model, given[number], use_cache=False)
        except BaseException:
            together.abort()  # so that the other thread ends, too
            raise

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(one is not None and torch.equal(one, two) for one, two in zip(got, want))


@pytest.mark.parametrize("name", ["deepseek_v32", "glm_moe_dsa"])
def test_documents(name, device):
    """Documents packed into one sequence, and a left-padded one, give the same as separate calls."""
    ids, _ = batch(device, 0)
    model = make(name, "smelt", torch.bfloat16).to(device)
    parts = ids[:1].split((8, 12), dim=1)
    alone = [logits_of(model, part, use_cache=False) for part in parts]
    positions = torch.cat([torch.arange(part.shape[1], device=device) for part in parts]).unsqueeze(0)
    packed = logits_of(model, ids[:1], position_ids=positions, use_cache=False)
    assert close(packed, torch.cat(alone, dim=1))
    assert not close(logits_of(model, ids[:1], use_cache=False)[:, 8:], alone[1])
    padded = torch.cat((ids[:1, :PADDING], parts[0]), dim=1)
    mask = torch.ones_like(padded)
    mask[:, :PADDING] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    assert close(
        logits_of(model, padded, attention_mask=mask, position_ids=positions, use_cache=False)[:, PADDING:], alone[0]
    )


def test_autocast(device):
    """Weights in fp32, as trainers keep them; checkpointing computes the attention twice."""
    ids, mask = batch(device, PADDING)
    model = make("deepseek_v32", "eager", torch.float32).to(device)
    want, true = train(model, ids, mask)
    model.zero_grad()
    model.set_attn_implementation("smelt")
    model.activation_checkpointing_enable()
    model.train()
    with torch.autocast(device.type, torch.bfloat16):
        got, gradients = train(model, ids, mask)
    assert error(got, want) < 0.1
    indexer = {key for key in gradients if ".indexer." in key}  # eager attention gives them no gradients either
    assert indexer and {key for key, each in gradients.items() if each is None} == indexer
    assert {key for key, each in true.items() if each is None} == indexer
    assert mean_error(*({key: of[key] for key in of.keys() - indexer} for of in (gradients, true))) < 0.2


def test_refusals(device):
    """Unsupported configurations raise an error that names them."""
    ids, mask = batch(device, PADDING)
    name = "deepseek_v32"
    model = make(name, "smelt", torch.bfloat16).to(device)
    run = {"input_ids": ids, "use_cache": False}
    holes = mask.clone()
    holes[1, 7] = 0
    with pytest.raises(ValueError, match="query 8 of batch 1 sees keys that are not one contiguous range"):
        model(**run, attention_mask=holes)
    with pytest.raises(TypeError, match="no matrix queries x keys"):
        model(**run, attention_mask=torch.zeros(BATCHES, 1, 20, 20, device=device))
    with pytest.raises(TypeError, match="torch.float32.*dtype=torch.bfloat16"):
        make(name, "smelt", torch.float32).to(device)(**run)
    with pytest.raises(ValueError, match="attention_dropout = 0, not 0.5"):
        make(name, "smelt", torch.bfloat16, attention_dropout=0.5).to(device).train()(**run)
    with pytest.raises(ValueError, match="output_attentions"):
        model(**run, output_attentions=True)
    with pytest.raises(RuntimeError, match="dim=48 is not legal"):
        make(name, "smelt", torch.bfloat16, index_head_dim=48, qk_rope_head_dim=16).to(device)(**run)
    attention = model.model.layers[0].self_attn
    attention.kv_b_proj = torch.nn.Sequential(attention.kv_b_proj)
    with pytest.raises(TypeError, match="merge adapters"):
        model(**run)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2
    )
    other = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="smelt").to(device)
    with pytest.raises(ValueError, match="qwen4_exp, not llama"):
        other(ids)


def test_install(monkeypatch):
    """uninstall restores what install changed; a release with other methods is refused as a whole."""
    from transformers.models.deepseek_v32 import modeling_deepseek_v32 as modeling

    hooked = modeling.DeepseekV32Indexer.forward
    integration.install()  # no effect
    assert modeling.DeepseekV32Indexer.forward is hooked
    integration.uninstall()
    try:
        before = modeling.DeepseekV32Indexer.forward
        assert before is not hooked
        with pytest.raises(ValueError, match='"smelt". is not supported'):
            make("deepseek_v32", "smelt", torch.bfloat16)
        with monkeypatch.context() as patched:
            patched.setattr(modeling.DeepseekV32Indexer, "forward", lambda self, states: None)
            with pytest.raises(RuntimeError, match="DeepseekV32Indexer.forward of transformers .* takes self, states"):
                integration.install()
        assert not integration._hooked and modeling.DeepseekV32Indexer.forward is before
    finally:
        integration.install()
    assert modeling.DeepseekV32Indexer.forward is not before
