"""Small random models of `transformers` with inputs: architectures are at stake, not weights.

Every configuration is written out, so nothing is looked up anywhere. Dropout is off everywhere: it
is drawn by torch itself, and what is compared here is arithmetic.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

# Read when `transformers` is imported: whatever asks for a file gets an error, not a download.
os.environ["HF_HUB_OFFLINE"] = "1"
import transformers

VOCABULARY = 96
HIDDEN = 32
TOKENS = 12
IMAGE = 32


@dataclass(frozen=True)
class Example:
    """A model and what it is called with; the labels make it return a loss."""

    model: Any
    inputs: Mapping[str, Any]
    labels: Mapping[str, Any]


def _ids(*shape: int) -> Any:
    return torch.randint(1, VOCABULARY, shape)


def _decoder(architecture: str, **rest: Any) -> Example:
    """A causal language model of the Llama family, and one batch of tokens."""
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "attention_dropout": 0.0,
        "use_cache": False,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return _language(architecture, {**sizes, **rest})


def _language(architecture: str, settings: Mapping[str, Any], head: str = "ForCausalLM") -> Example:
    config = getattr(transformers, f"{architecture}Config")(**settings)
    model = getattr(transformers, architecture + head)(config)
    ids = _ids(2, TOKENS)
    return Example(model, {"input_ids": ids}, {"labels": ids})


def _image(architecture: str, settings: Mapping[str, Any]) -> Example:
    config = getattr(transformers, f"{architecture}Config")(num_labels=5, **settings)
    model = getattr(transformers, f"{architecture}ForImageClassification")(config)
    pixels = torch.randn(2, 3, IMAGE, IMAGE)
    return Example(model, {"pixel_values": pixels}, {"labels": torch.tensor([1, 3])})


# ---------------------------------------------------------------------------- language, decoders


def llama() -> Example:
    """Rotary positions, grouped-query attention, gated units."""
    return _decoder("Llama")


def qwen3() -> Example:
    """As Llama, with normalised queries and keys."""
    return _decoder("Qwen3", head_dim=8)


def gemma() -> Example:
    """As Llama, with scaled embeddings and a norm that adds one to its weight."""
    return _decoder("Gemma", head_dim=8)


def phi() -> Example:
    """Attention and feed-forward side by side, rotary on a part of each head."""
    return _decoder("Phi", num_key_value_heads=4)


def _experts(way: str, layers: int) -> Example:
    """A router chooses two of four experts for every token."""
    return _decoder(
        "Mixtral", num_local_experts=4, num_experts_per_tok=2, num_hidden_layers=layers,
        experts_implementation=way,
    )  # fmt: skip


def mixtral() -> Example:
    """Experts as one batch of products over gathered weights."""
    return _experts("batched_mm", layers=2)


def mixtral_grouped() -> Example:
    """Experts as a grouped product over sorted tokens; torch itself cannot trace its backward."""
    return _experts("grouped_mm", layers=1)


def mixtral_loop() -> Example:
    """Experts one after the other, each on as many tokens as chose it: sizes that data decides."""
    return _experts("eager", layers=1)


def gpt2() -> Example:
    """Learned positions, one fused projection, tanh-gelu."""
    return _language(
        "GPT2",
        {
            "vocab_size": VOCABULARY, "n_embd": HIDDEN, "n_layer": 2, "n_head": 4,
            "n_positions": 64, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
            "use_cache": False, "bos_token_id": 1, "eos_token_id": 2,
        },
        head="LMHeadModel",
    )  # fmt: skip


def opt() -> Example:
    """Learned positions counted from the mask."""
    return _language(
        "OPT",
        {
            "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "ffn_dim": 2 * HIDDEN,
            "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64,
            "word_embed_proj_dim": HIDDEN, "dropout": 0.0, "attention_dropout": 0.0,
            "use_cache": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        },
    )  # fmt: skip


def bloom() -> Example:
    """Positions as a bias of the scores, by head."""
    return _language(
        "Bloom",
        {
            "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "n_layer": 2, "n_head": 4,
            "hidden_dropout": 0.0, "attention_dropout": 0.0, "use_cache": False,
            "bos_token_id": 1, "eos_token_id": 2,
        },
    )  # fmt: skip


def falcon() -> Example:
    """One key and value head for all queries."""
    return _language(
        "Falcon",
        {
            "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "num_hidden_layers": 2,
            "num_attention_heads": 4, "hidden_dropout": 0.0, "attention_dropout": 0.0,
            "use_cache": False, "bos_token_id": 1, "eos_token_id": 2,
        },
    )  # fmt: skip


def mamba() -> Example:
    """A state-space model: a causal convolution and a scan over time written step by step."""
    return _language(
        "Mamba",
        {
            "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "num_hidden_layers": 1,
            "state_size": 8, "time_step_rank": 4, "use_cache": False,
            "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        },
    )  # fmt: skip


# ---------------------------------------------------------------------------- language, encoders


def bert() -> Example:
    """Post-norm encoder with token types and a mask."""
    example = _language(
        "Bert",
        {
            "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": 2 * HIDDEN,
            "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64,
            "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
        },
        head="ForMaskedLM",
    )  # fmt: skip
    mask = torch.ones(2, TOKENS, dtype=torch.long)
    mask[1, -3:] = 0
    return Example(example.model, {**example.inputs, "attention_mask": mask}, example.labels)


def distilbert() -> Example:
    """Bert without token types."""
    return _language(
        "DistilBert",
        {
            "vocab_size": VOCABULARY, "dim": HIDDEN, "hidden_dim": 2 * HIDDEN, "n_layers": 2,
            "n_heads": 4, "max_position_embeddings": 64, "dropout": 0.0, "attention_dropout": 0.0,
        },
        head="ForMaskedLM",
    )  # fmt: skip


def t5() -> Example:
    """Encoder and decoder with bucketed relative positions and cross attention."""
    example = _language(
        "T5",
        {
            "vocab_size": VOCABULARY, "d_model": HIDDEN, "d_kv": 8, "d_ff": 2 * HIDDEN,
            "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0, "use_cache": False,
            "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1,
        },
        head="ForConditionalGeneration",
    )  # fmt: skip
    words = {**example.inputs, "decoder_input_ids": _ids(2, 7)}
    return Example(example.model, words, {"labels": _ids(2, 7)})


# ------------------------------------------------------------------------------------------ images


_VISION: Mapping[str, Any] = {
    "hidden_size": HIDDEN, "intermediate_size": 2 * HIDDEN, "num_hidden_layers": 2,
    "num_attention_heads": 4, "image_size": IMAGE, "patch_size": 8,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip


def vit() -> Example:
    """Patches as tokens, one token for the class."""
    return _image("ViT", _VISION)


def deit() -> Example:
    """ViT with a second special token."""
    return _image("DeiT", _VISION)


def swin() -> Example:
    """Attention in windows that are shifted, patches merged between stages."""
    return _image(
        "Swin",
        {
            "image_size": IMAGE, "patch_size": 4, "embed_dim": 16, "depths": [2, 1],
            "num_heads": [2, 4], "window_size": 4, "drop_path_rate": 0.0,
            "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
        },
    )  # fmt: skip


def convnext() -> Example:
    """Depthwise convolutions and norms over channels."""
    return _image("ConvNext", {"hidden_sizes": [8, 16], "depths": [1, 2], "num_stages": 2})


def resnet() -> Example:
    """Bottlenecks with batch norm; running statistics change in training."""
    settings = {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 2]}
    return _image("ResNet", settings)


def clip() -> Example:
    """A text and an image encoder; the loss compares every text with every image."""
    both = {"hidden_size": HIDDEN, "intermediate_size": 2 * HIDDEN, "num_hidden_layers": 1,
            "num_attention_heads": 4, "attention_dropout": 0.0}  # fmt: skip
    words = {**both, "vocab_size": VOCABULARY, "max_position_embeddings": 64, "eos_token_id": 2,
             "bos_token_id": 1, "pad_token_id": 0}  # fmt: skip
    config = transformers.CLIPConfig(
        text_config=words,
        vision_config={**both, "image_size": IMAGE, "patch_size": 8},
        projection_dim=16,
    )
    pixels = torch.randn(2, 3, IMAGE, IMAGE)
    inputs = {"input_ids": _ids(2, TOKENS), "pixel_values": pixels}
    return Example(transformers.CLIPModel(config), inputs, {"return_loss": True})


# ------------------------------------------------------------------------------------------- sound


class _WithLoss(torch.nn.Module):
    """A model without a loss of its own: the mean sine of its result."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, with_loss: bool = False, **inputs: Any) -> dict[str, Any]:
        states = self.inner(**inputs).last_hidden_state
        return {"states": states, **({"loss": states.sin().mean()} if with_loss else {})}


def whisper_encoder() -> Example:
    """Two convolutions over a spectrogram, then an encoder."""
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY, d_model=HIDDEN, encoder_layers=2, encoder_attention_heads=4,
        encoder_ffn_dim=2 * HIDDEN, decoder_layers=1, decoder_attention_heads=4, num_mel_bins=8,
        max_source_positions=20, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    encoder = transformers.WhisperModel(config).get_encoder()
    return Example(_WithLoss(encoder), {"input_features": torch.randn(2, 8, 40)}, _ASK)


def wav2vec2() -> Example:
    """Strided convolutions over a wave, positions by a grouped convolution."""
    config = transformers.Wav2Vec2Config(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=2 * HIDDEN, conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3),
        num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2, hidden_dropout=0.0,
        activation_dropout=0.0, attention_dropout=0.0, feat_proj_dropout=0.0, layerdrop=0.0,
        mask_time_prob=0.0, mask_feature_prob=0.0, final_dropout=0.0,
    )  # fmt: skip
    model = transformers.Wav2Vec2Model(config)
    model.freeze_feature_encoder()  # as it is fine-tuned; Dynamo gives up on its other branch
    return Example(_WithLoss(model), {"input_values": torch.randn(2, 200)}, _ASK)


_ASK: Mapping[str, Any] = {"with_loss": True}

MODELS: Mapping[str, Callable[[], Example]] = {
    build.__name__: build
    for build in (
        llama, qwen3, gpt2, bert, t5, vit, mamba, mixtral, mixtral_grouped, mixtral_loop,
        whisper_encoder, convnext, resnet, deit, clip, gemma, phi, opt, distilbert, bloom, falcon,
        swin, wav2vec2,
    )
}  # fmt: skip
"""Every model by name."""

QUICK = ("llama", "bert", "resnet")
"""One decoder, one encoder, one with convolutions and statistics."""


def example(name: str) -> Example:
    """The model of that name with weights and inputs that are the same every time."""
    torch.manual_seed(0)
    return MODELS[name]()
