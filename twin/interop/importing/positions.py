"""How positions rotate, from the keys of a configuration: `rope_theta` and `rope_scaling`, or both
in the `rope_parameters` of transformers 5.

YaRN is read whole. Other ways to stretch a context change nothing that the twin counts, and have no
field: a warning names them.
"""

from __future__ import annotations

from typing import Any

from twin.interop.importing.keys import Keys

_YARN = {
    "factor": "factor",
    "original_max_position_embeddings": "original_context",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "mscale": "mscale",
    "mscale_all_dim": "mscale_all_dim",
}
_DEFAULTS = {"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 0.0}
"""Where the configuration is silent; without `mscale_all_dim` the softmax scale stays as it is."""
_NAMES = frozenset({"type", "rope_type", "rope_theta"})


def rope(keys: Keys, theta: float) -> dict[str, Any]:
    """The fields of `Rope`; `theta` is the family's where the configuration has none."""
    scaling = keys.section("rope_scaling")
    parameters = keys.section("rope_parameters")
    base = parameters.get("rope_theta") or keys.number("rope_theta", theta)
    found: dict[str, Any] = {"theta": base}
    stretched = parameters if "factor" in parameters else scaling
    kind = stretched.get("rope_type") or stretched.get("type") or "default"
    if kind == "yarn":
        found["yarn"] = _yarn(keys, stretched, "rope_scaling" if scaling else "rope_parameters")
    elif kind != "default":
        keys.warnings.append(
            f"Positions are stretched by `{kind}`, for which there is no field; no count needs it."
        )
    return found


def _yarn(keys: Keys, scaling: dict[str, Any], key: str) -> dict[str, Any]:
    for other in sorted(scaling.keys() - _YARN.keys() - _NAMES):
        keys.refuse(key, f"`{key}.{other}` cannot be expressed: YaRN here follows DeepSeek's form")
    found = _DEFAULTS | {
        ours: scaling[theirs] for theirs, ours in _YARN.items() if theirs in scaling
    }
    if isinstance(found.get("original_context"), int):
        found["original_context"] = f"{found['original_context']}tok"
    return found
