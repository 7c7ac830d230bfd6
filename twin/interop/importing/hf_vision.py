"""Families of Hugging Face configurations whose language model has an encoder of images before it:
`vision_config` to `model.vision`. Defaults are those of the configuration classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from twin.interop.importing.hf_decoder import Fields, decoder, families
from twin.interop.importing.keys import Keys
from twin.loading.tree import Branch

_COMMON: Final[dict[str, Any]] = {
    "depth": 32, "num_heads": 16, "in_channels": 3, "patch_size": 14, "temporal_patch_size": 2,
    "spatial_merge_size": 2,
}  # fmt: skip
_OLDER: Final = _COMMON | {"embed_dim": 1280, "mlp_ratio": 4, "hidden_act": "quick_gelu"}
_WINDOWED: Final = _COMMON | {
    "hidden_size": 1280, "intermediate_size": 3420, "hidden_act": "silu", "window_size": 112,
    "fullatt_block_indexes": [7, 15, 23, 31],
}  # fmt: skip
_SILENT: Final = frozenset(
    {
        "model_type", "torch_dtype", "dtype", "initializer_range", "tokens_per_second", "in_chans",
        "spatial_patch_size", "out_hidden_size", "hidden_size",
    }
)  # fmt: skip
"""Keys of an encoder that change nothing, or that the language model says too."""


def unnested(tree: Branch) -> Branch:
    """A configuration whose language model stands below `text_config`, as if it stood beside it."""
    text = tree.children.get("text_config")
    if text is None or not isinstance(text.node, Branch):
        return tree
    others = {key: child for key, child in tree.children.items() if key != "text_config"}
    return Branch({**text.node.children, **others}, tree.origin)


def language(tree: Branch) -> Branch | None:
    """The configuration of the language model in one that has encoders beside it; None where there
    is none. Tied embeddings may be said of the whole."""
    text = tree.children.get("text_config")
    if text is None or not isinstance(text.node, Branch) or not text.node.children:
        return None
    tied = {key: child for key, child in tree.children.items() if key == "tie_word_embeddings"}
    return Branch({**tied, **text.node.children}, tree.origin)


def qwen2_vl(keys: Keys) -> Fields:
    """Qwen2-VL: an encoder with layer norms and GeLU, each patch attending to its image."""
    found = _encoder(keys, _OLDER)
    hidden = found["embed_dim"]
    shape = {"hidden": hidden, "ffn": "gelu", "width": int(hidden * found["mlp_ratio"])}
    return _language(keys) | {"vision": _common(found) | shape}


def qwen2_5_vl(keys: Keys) -> Fields:
    """Qwen2.5-VL: RMS norms, SwiGLU, and windows in all but some layers."""
    found = _encoder(keys, _WINDOWED)
    full, depth = [int(one) for one in found["fullatt_block_indexes"]], found["depth"]
    every = depth // max(len(full), 1)
    if full != list(range(every - 1, depth, every)):
        message = f"`fullatt_block_indexes: {full}` cannot be expressed: not each n-th layer"
        keys.refuse("vision_config", message)
    side = found["window_size"] // found["patch_size"]
    shape = {
        "hidden": found["hidden_size"],
        "ffn": "swiglu",
        "width": found["intermediate_size"],
        "norm": "rmsnorm",
        "window": side * side,
        "full_every": every,
    }
    return _language(keys) | {"vision": _common(found) | shape}


def _language(keys: Keys) -> Fields:
    return decoder(keys, families()["qwen2"])


def _encoder(keys: Keys, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The section with its defaults; what nobody knows is refused."""
    said = keys.section("vision_config")
    for other in sorted(said.keys() - defaults.keys() - _SILENT):
        message = f"twin does not know what `vision_config.{other}` changes"
        keys.refuse("vision_config", message, code="TW043")
    found = {**defaults, **{key: said[key] for key in defaults if key in said}}
    if found["hidden_act"] != defaults["hidden_act"]:
        act = found["hidden_act"]
        message = f"`vision_config.hidden_act: {act}` cannot be expressed in this family"
        keys.refuse("vision_config", message)
    wrong = [key for key, value in defaults.items() if not isinstance(found[key], type(value))]
    for key in wrong:
        keys.refuse("vision_config", f"`vision_config.{key}` has another type", code="TW014")
    return {**found, **{key: defaults[key] for key in wrong}}


def _common(found: Mapping[str, Any]) -> Fields:
    merge, patch = found["spatial_merge_size"], found["patch_size"]
    return {
        "layers": found["depth"],
        "heads": found["num_heads"],
        "values": found["in_channels"] * found["temporal_patch_size"] * patch * patch,
        "merge": merge * merge,
    }
