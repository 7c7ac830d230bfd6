"""The software stack of a training run that names none: the typical one of its layout.

FSDP2 where everything is sharded and no rank holds part of a layer or of the model; Megatron-Core
with its defaults for every other layout. Its tuned counterpart is the fast end of what the same
framework does on the same GPU. Rows of published tables follow the same rule
(`twin.evidence.validate.stacks.typical_stack`).
"""

from __future__ import annotations

from typing import Any, Final

from twin.errors import DEFAULT
from twin.loading.catalog import catalog_parts, load_part
from twin.loading.tree import Branch, Child, KeyPath, Leaf, find, replace_at
from twin.scenario import Scenario

SOFTWARE: Final = "software"
SHARDED: Final = "fsdp2"
"""The stack of layouts that shard everything."""
OTHERS: Final = "megatron-core"
"""The stack of all others."""
TUNED: Final = {OTHERS: "megatron-core-tuned", SHARDED: "torchtitan"}
"""The same framework as its experts run it."""


def with_software(tree: Branch) -> Branch:
    """The tree of a training run with its typical stack, where nothing is written and the catalog
    has its GPU. Rollouts alone train nothing."""
    gpu = _value(tree, ("cluster", "node", "gpu", "name"), "")
    rollouts_only = find(tree, ("rl",)) and not find(tree, ("rl", "iteration"))
    known = str(gpu).casefold() in catalog_parts("gpus")
    if SOFTWARE in tree.children or rollouts_only or not known:
        return tree
    name = SHARDED if _shards_everything(tree) else OTHERS
    return replace_at(tree, (SOFTWARE,), Child(DEFAULT, Leaf(name, DEFAULT)))


def _shards_everything(tree: Branch) -> bool:
    degrees = (_value(tree, ("parallel", one), 1) for one in ("pipeline", "tensor", "expert"))
    return _value(tree, ("parallel", "zero"), 1) == 3 and all(degree == 1 for degree in degrees)


def _value(tree: Branch, path: KeyPath, default: Any) -> Any:
    child = find(tree, path)
    return child.node.value if child and isinstance(child.node, Leaf) else default


def under_tuned(scenario: Scenario) -> Scenario | None:
    """The scenario under the tuned counterpart of its stack; None of a stack that is no typical
    one. It brings its calibration of the GPU unless the scenario has one of its own."""
    assumed, gpu = scenario.software, scenario.cluster.node.gpu.name
    if assumed is None or assumed.name not in TUNED:
        return None
    tuned = load_part("software", TUNED[assumed.name]).spec
    changed: dict[str, Any] = {SOFTWARE: tuned}
    kernels = tuned.calibrations.get(gpu)
    if kernels and scenario.calibration.name == assumed.calibrations.get(gpu):
        changed["calibration"] = load_part("calibrations", kernels).spec
    return scenario.model_copy(update=changed)
