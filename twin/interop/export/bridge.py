"""A plan as YAML of Megatron-Bridge: what goes over a recipe, or with its own model stands alone.

    twin export SCENARIO --format bridge -o over.yaml

Its keys are those of Megatron-LM's arguments by another name (`importing/bridge.yaml`, which serves
both ways), so it says as much and loses as much as they do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from twin.answers import Run
from twin.interop.export.base import Stamp
from twin.interop.export.megatron.launch import Launch, head, launch, scalar
from twin.interop.importing.bridge import dialect
from twin.interop.importing.megatron.launch_file import Argument
from twin.interop.importing.megatron.model import experts_pattern
from twin.interop.tables import nested
from twin.planning.types import Plan

SUFFIX = ".yaml"
PARTS = ("",)

_IMPLIED = frozenset(
    {
        "group-query-attention",
        "squared-relu",
        "accumulate-allreduce-grads-in-fp32",
        "max-position-embeddings",
    }
)
"""What other keys say."""
_LISTS = frozenset({"recompute-modules", "offload-modules"})


def files(run: Run, stamp: Stamp) -> dict[str, bytes]:
    """The YAML."""
    return {"": written(exported(run.plan), stamp, SUFFIX).encode()}


def exported(plan: Plan) -> Launch:
    """The plan as its launcher sees it."""
    return launch(plan)


def written(found: Launch, stamp: Stamp, suffix: str) -> str:  # noqa: ARG001  one form only
    """The text of the file."""
    lines = [*head(found, stamp, "keys of Megatron-Bridge", "bridge"), ""]
    return "\n".join([*lines, *_lines(nested(keys_of(found)))]) + "\n"


def keys_of(found: Launch) -> dict[str, Any]:
    """Keys by dotted path."""
    given = {one.name: one for one in found.arguments}
    said = dict[str, Any](_inverted(given))
    for name, one in given.items():
        if name not in _IMPLIED and name not in dialect().inverted:
            said[_key(name)] = _plain(one)
    for switch, function in (("squared-relu", "squared_relu"), ("swiglu", "silu")):
        if switch in given:
            said["model.activation_func"] = function
    if where := said.get("model.moe_layer_freq"):
        said["model.moe_layer_freq"] = experts_pattern(where, said["model.num_layers"])
    said["model.should_pad_vocab"] = False
    each = said.pop("model.num_layers_per_virtual_pipeline_stage", None)
    if each is not None:
        layers, stages = said["model.num_layers"], said["model.pipeline_model_parallel_size"]
        said["model.virtual_pipeline_model_parallel_size"] = layers // (each * stages)
    said["model.vocab_size"] = said.pop("model.padded_vocab_size")
    return said


def _inverted(given: dict[str, Argument]) -> Iterator[tuple[str, Any]]:
    """Keys that are false where a switch is on."""
    for switch, keys in dialect().inverted.items():
        if switch != "no-align-grad-reduce":
            yield keys[0], switch not in given


def _key(name: str) -> str:
    """The key of an argument: its first in the dialect, or that of its name in the model."""
    own = dialect().arguments.get(name)
    return own[0] if own else f"model.{name.replace('-', '_')}"


def _plain(one: Argument) -> Any:
    if one.name in _LISTS:
        return list(one.values)
    if not one.values:
        return True
    text = one.values[0]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _lines(tree: dict[str, Any], indent: str = "") -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield f"{indent}{key}:"
            yield from _lines(cast("dict[str, Any]", value), f"{indent}  ")
        elif isinstance(value, list | tuple):
            items = ", ".join(map(_shown, cast("list[Any]", value)))
            yield f"{indent}{key}: [{items}]"
        else:
            yield f"{indent}{key}: {_shown(value)}"


def _shown(value: Any) -> str:
    """A value as YAML 1.1 and 1.2 read it alike: exponents there need a point."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        mantissa, exponent, power = repr(value).partition("e")
        return f"{mantissa}.0e{power}" if exponent and "." not in mantissa else repr(value)
    return scalar(value) if isinstance(value, str) else str(value)
