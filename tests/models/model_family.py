"""Any language model of `transformers` by its name, made small: breadth, where the zoo has depth.

A configuration is made small by the names its class knows; what that does not cover stands in
`MORE`. Models differ in what they return, so the loss is a fixed weighted sum of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from model_zoo import HIDDEN, TOKENS, VOCABULARY, Example, transformers

SMALL: Mapping[str, Any] = {
    **dict.fromkeys(
        ["hidden_size", "n_embd", "d_model", "embedding_size", "dim", "emb_dim"], HIDDEN
    ),
    **dict.fromkeys(["num_hidden_layers", "n_layer", "num_layers", "n_layers"], 2),
    **dict.fromkeys(["encoder_layers", "decoder_layers"], 2),
    **dict.fromkeys(["num_attention_heads", "n_head", "num_heads", "n_heads"], 4),
    **dict.fromkeys(["encoder_attention_heads", "decoder_attention_heads"], 4),
    **dict.fromkeys(["intermediate_size", "d_ff", "ffn_dim", "hidden_dim"], 2 * HIDDEN),
    **dict.fromkeys(["encoder_ffn_dim", "decoder_ffn_dim"], 2 * HIDDEN),
    **dict.fromkeys(["max_position_embeddings", "n_positions"], 64),
    **dict.fromkeys(["head_dim", "d_kv", "state_size", "d_state", "kv_lora_rank", "v_head_dim"], 8),
    **dict.fromkeys(["qk_rope_head_dim", "qk_nope_head_dim", "attention_window"], 8),
    **dict.fromkeys(["num_experts", "num_local_experts", "n_routed_experts"], 4),
    **dict.fromkeys(
        ["moe_intermediate_size", "shared_expert_intermediate_size", "q_lora_rank"], 16
    ),
    **dict.fromkeys(["n_group", "topk_group", "first_k_dense_replace"], 1),
    **dict.fromkeys(["hidden_dropout_prob", "attention_probs_dropout_prob", "dropout"], 0.0),
    **dict.fromkeys(["attention_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop"], 0.0),
    "vocab_size": VOCABULARY,
    "num_key_value_heads": 2,
    "num_experts_per_tok": 2,
    "type_vocab_size": 2,
    "pad_token_id": 0,
    "use_cache": False,
}
MORE: Mapping[str, Mapping[str, Any]] = {
    "gptj": {"rotary_dim": 4},
    "codegen": {"rotary_dim": 4},
    "xlnet": {"d_inner": 64},
    "funnel": {"block_sizes": [1, 1], "d_inner": 64, "d_head": 8},
    "big_bird": {"attention_type": "original_full"},
    "longt5": {"encoder_attention_type": "local", "local_radius": 4},
    "longformer": {"attention_window": [8, 8]},
    "mamba2": {"num_heads": 8, "expand": 2, "n_groups": 1, "chunk_size": 8},
    "modernbert": {"global_attn_every_n_layers": 2, "local_attention": 8},
    "gemma3_text": {"sliding_window": 8},
    "gpt_oss": {"sliding_window": 8},
}
FAMILY = (
    "roberta", "xlm-roberta", "albert", "electra", "deberta", "deberta-v2", "gpt_neox", "gptj",
    "codegen", "mistral", "qwen2", "qwen2_moe", "qwen3_moe", "gemma2", "gemma3_text", "olmo",
    "olmo2", "stablelm", "starcoder2", "phi3", "cohere", "granite", "glm", "nemotron", "xlnet",
    "fnet", "longformer", "nystromformer", "convbert", "ibert", "megatron-bert", "roformer", "xlm",
    "flaubert", "ernie", "bart", "mbart", "pegasus", "marian", "blenderbot", "m2m_100", "led",
    "mt5", "umt5", "longt5", "switch_transformers", "gpt_bigcode", "biogpt", "ctrl", "openai-gpt",
    "xglm", "exaone4", "hunyuan_v1_dense", "lfm2", "glm4", "glm4_moe", "seed_oss", "apertus",
)  # fmt: skip
"""Architectures that the configuration above fits, as `transformers` calls them."""


class Weighed(torch.nn.Module):
    """A model whose loss is a weighted sum of all it returns."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, with_loss: bool = False, **inputs: Any) -> dict[str, Any]:
        """What the model returns, and the loss if asked for."""
        leaves = torch.utils._pytree.tree_leaves(dict(self.inner(**inputs)))
        found = {f"{k}": x for k, x in enumerate(leaves) if isinstance(x, torch.Tensor)}
        if with_loss:
            real = [x for x in found.values() if x.is_floating_point() and x.requires_grad]
            parts = [(x * torch.linspace(-1, 1, x.numel()).view(x.shape)).sum() for x in real]
            found["loss"] = torch.stack(parts).sum()
        return found


def family(name: str) -> Example:
    """The architecture of that name, small, with weights and inputs that are always the same."""
    config_class = transformers.models.auto.configuration_auto.CONFIG_MAPPING[name]
    known = config_class()
    sizes = {key: value for key, value in SMALL.items() if hasattr(known, key)}
    config = config_class(**{**sizes, **MORE.get(name, {})})
    torch.manual_seed(0)
    model = _built(config)
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    inputs = {"input_ids": torch.randint(5, VOCABULARY, (2, TOKENS))}
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.randint(5, VOCABULARY, (2, TOKENS - 3))
    return Example(Weighed(model), inputs, {"with_loss": True})


def _built(config: Any) -> Any:
    """The model with a head, if there is one for this architecture."""
    heads: list[Any] = [transformers.AutoModelForCausalLM, transformers.AutoModelForMaskedLM]
    if config.is_encoder_decoder:
        heads = [transformers.AutoModelForSeq2SeqLM]
    for head in heads:
        if type(config) in head._model_mapping:
            return head.from_config(config).float()
    return transformers.AutoModel.from_config(config).float()
