"""`config.json` of a model on Hugging Face to a `ModelSpec` with the released weights' count of
parameters.

A family is one function from keys to the fields of the spec, named by `model_type`; plain decoders
share one (`twin.interop.importing.hf_decoder`). Keys that would
change the count are read (tied embeddings, biases, head width, which layers have experts,
prediction layers), or refused by name; `twin.interop.importing.keys` handles the rest. Defaults are
those of the configuration classes in `transformers` (src/transformers/models/*/configuration_*.py).
YaRN is read whole. Other context extensions change no count and have no field: a warning names
them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from twin.errors import Problem, UsageError
from twin.interop.importing.hf_decoder import (
    Family,
    Fields,
    activation,
    decoder,
    dense,
    families,
    feeds_of,
    latent,
    routed,
)
from twin.interop.importing.hf_hybrids import HYBRIDS
from twin.interop.importing.hf_vision import language, qwen2_5_vl, qwen2_vl, unnested
from twin.interop.importing.keys import Keys, keys_of, model_type, read_keys
from twin.loading.files import table
from twin.loading.tree import hint
from twin.spec.model import ModelSpec

_YARN: dict[str, Any] = table(__name__, "_YARN")
_DEFAULTS = {"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 0.0}
"""Where the configuration is silent; without `mscale_all_dim` the softmax scale stays as it is."""
_NAMES = frozenset({
    "type", "rope_type", "rope_theta", "max_position_embeddings", "partial_rotary_factor",
    "llama_4_scaling_beta",
})  # fmt: skip
_DEFAULTS_OF: Final[dict[str, Any]] = {
    "longcat_flash": {"eps": 1e-5, "theta": 1e7},
    "lfm2": {"eps": 1e-5, "theta": 1e6, "tied": True},
    "lfm2_moe": {"eps": 1e-5, "theta": 1e6, "tied": True},
}
"""Of families with a function of their own, where the configuration is silent."""


def rope(keys: Keys, theta: float) -> dict[str, Any]:
    """The fields of `Rope`; `theta` is the family's where the configuration has none."""
    scaling = keys.section("rope_scaling")
    parameters = keys.section("rope_parameters")
    parameters = parameters.get("full_attention", parameters)
    base = parameters.get("rope_theta") or keys.number("rope_theta", theta)
    found: dict[str, Any] = {"theta": base}
    stretched = parameters if "factor" in parameters else scaling
    kind = stretched.get("rope_type") or stretched.get("type") or "default"
    if kind == "yarn":
        found["yarn"] = _yarn(keys, stretched, "rope_scaling" if scaling else "rope_parameters")
    elif kind not in ("default", "mrope"):  # images have positions of three axes
        keys.warnings.append(
            f"Positions are stretched by `{kind}`, for which there is no field; no count needs it."
        )
    return found


def _yarn(keys: Keys, scaling: dict[str, Any], key: str) -> dict[str, Any]:
    told = scaling.keys() - _YARN.keys() - _NAMES
    for other in sorted(told - ({"truncate"} if keys.get("model_type") == "gpt_oss" else set())):
        keys.refuse(key, f"`{key}.{other}` cannot be expressed: YaRN here follows DeepSeek's form")
    found = _DEFAULTS | {
        ours: scaling[theirs] for theirs, ours in _YARN.items() if theirs in scaling
    }
    if isinstance(found.get("original_context"), int):
        found["original_context"] = f"{found['original_context']}tok"
    return found


@dataclass(frozen=True, slots=True)
class Imported:
    """A model read from a configuration, and what a reader must know about it, as sentences."""

    model: ModelSpec
    family: str
    warnings: tuple[str, ...]

    @property
    def on_one_line(self) -> str:
        """The model's fields as a scenario takes them, on one line."""
        return json.dumps(self.model.model_dump(mode="json", exclude_defaults=True))


def read_hf_config(path: Path, name: str) -> Imported:
    """The model that a `config.json` describes, under a name.

    Raises `UsageError` with everything that is wrong: no such file, no configuration, a family that
    is not supported, keys that cannot be expressed or that nobody knows.
    """
    return _imported(read_keys(path), name)


def read_hf_text(text: str, file: str, name: str) -> Imported:
    """The same of the text of such a file, which problems call `file`."""
    return _imported(keys_of(text, file), name)


def _imported(keys: Keys, name: str) -> Imported:
    kind, origin = model_type(keys)
    if kind not in FAMILIES and (inner := language(keys.tree)) is not None:
        outer, keys.tree = kind, inner
        kind, _ = model_type(keys)
        keys.left_out.append(f"what `{outer}` has beside its language model")
    family = FAMILIES.get(kind)
    if family is None:
        raise UsageError([_unsupported(kind, origin)])
    keys.tree = unnested(keys.tree)
    own = families().get(kind, Family(**_DEFAULTS_OF.get(kind, {})))
    fields = {"name": name, **_common(keys, own), **family(keys)}
    _quantized(keys)
    keys.finish()
    if keys.left_out:
        fields["left_out"] = "; ".join(keys.left_out)
        keys.warnings += [f"Left out: {what}." for what in keys.left_out]
    if not keys.problems:
        return Imported(_validated(fields, keys), kind, tuple(keys.warnings))
    raise UsageError(keys.problems)


def _unsupported(kind: str, origin: Any) -> Problem:
    known = tuple(FAMILIES)
    if not kind:
        message = "the configuration has no `model_type`"
        return Problem("TW041", "model_type", message, f"one of: {', '.join(known)}", origin)
    near = hint(kind, known, "supported are")
    message = f"models of the family `{kind}` are not supported"
    supported = f"supported are: {', '.join(known)}"
    fix = f"{near} {supported}" if near.startswith("did") else supported
    return Problem("TW041", "model_type", message, fix, origin)


def _validated(fields: Fields, keys: Keys) -> ModelSpec:
    try:
        return ModelSpec.model_validate(fields)
    except ValidationError as error:
        raise UsageError(
            Problem(
                "TW015",
                "",
                f"the configuration gives {'.'.join(map(str, entry['loc']))} = {entry['input']!r}: "
                + str(entry["msg"]),
                "",
                keys.tree.origin,
            )
            for entry in error.errors(include_url=False)
        ) from None


def _common(keys: Keys, own: Family) -> Fields:
    """What every family says alike."""
    activation(keys, own)
    if keys.get("attention_dropout", 0.0):
        keys.left_out.append("dropout in attention")
    keys.taken.add("intermediate_size")
    return {
        "layers": keys.count("num_hidden_layers"),
        "hidden": keys.count("hidden_size"),
        "vocab": keys.count("vocab_size"),
        "norm": "rmsnorm",
        "norm_eps": keys.number("rms_norm_eps", own.eps),
        "rope": rope(keys, theta=own.theta),
        "tied_embeddings": keys.flag("tie_word_embeddings", default=own.tied),
    }


def _quantized(keys: Keys) -> None:
    if keys.get("quantization_config"):
        keys.warnings.append("The released weights are quantized; their scales are not counted.")


def _deepseek(keys: Keys) -> Fields:
    """DeepSeek-V2, V3 and what follows them: latent attention, shared experts, dense layers first.
    The router's bias comes with `noaux_tc`, which V3 uses unless told otherwise."""
    heads = keys.count("num_attention_heads")
    keys.must_be("num_key_value_heads", heads, why="latent attention has as many as query heads")
    keys.must_be("attention_bias", False, why="latent attention here has no biases")
    feeds = feeds_of(keys)
    keys.taken.add("head_dim")  # transformers 5 writes the rotary width there
    v3 = keys.get("model_type") != "deepseek_v2"
    method = keys.get("topk_method", "noaux_tc" if v3 else "greedy")
    # Both defaults are DeepSeek-V3's; `greedy` looks at all experts, whatever the groups.
    groups, scores = ((8, 4), "sigmoid") if v3 else ((1, 1), "softmax")
    moe = routed(keys, scores, normalize=v3, groups=groups, scale=2.5 if v3 else 1.0)
    if method == "greedy":
        moe |= {"groups": 1, "top_groups": 1}
    return {
        "attention": latent(keys, heads),
        "ffn": dense(keys, keys.flag("mlp_bias")),
        "moe": {
            **moe,
            "width": keys.count("moe_intermediate_size"),
            "shared_experts": keys.count("n_shared_experts", 0, least=0),
            "first_dense_layers": feeds.index("moe") if "moe" in feeds else len(feeds),
            "correction_bias": method == "noaux_tc",
        },
        "mtp_layers": keys.count("num_nextn_predict_layers", 0, least=0),
    }


def _deepseek_sparse(keys: Keys) -> Fields:
    """DeepSeek-V3.2: as V3, with an indexer in every layer."""
    found = _deepseek(keys)
    for key, word in (("layer_types", "indexed_attention"), ("indexer_types", "full")):
        keys.must_be(key, word, why="every layer has an indexer of its own")
    found["attention"]["indexer"] = {
        "heads": keys.count("index_n_heads", 64),
        "head_dim": keys.count("index_head_dim", 128),
        "top_k": keys.count("index_topk", 2048),
    }
    return found


FAMILIES: dict[str, Callable[[Keys], Fields]] = {
    "deepseek_v3": _deepseek,
    "kimi_k2": _deepseek,
    "deepseek_v2": _deepseek,
    "deepseek_v32": _deepseek_sparse,
    "glm_moe_dsa": _deepseek_sparse,
    **HYBRIDS,
    "qwen2_vl": qwen2_vl,
    "qwen2_5_vl": qwen2_5_vl,
    **{name: partial(decoder, own=own) for name, own in families().items()},
}
"""What can be imported, by `model_type`."""
