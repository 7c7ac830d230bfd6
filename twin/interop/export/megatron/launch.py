"""Everything that a file of arguments holds: the arguments themselves, the environment that they
need, what they do not say, and what Megatron-LM makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from twin.interop.export.megatron.arguments import grouped
from twin.interop.export.megatron.caveats import caveats
from twin.interop.export.megatron.losses import Loss, losses
from twin.interop.importing.megatron import Argument
from twin.planning.types import Plan


@dataclass(frozen=True, slots=True)
class Launch:
    """A plan as its launcher sees it."""

    groups: Mapping[str, tuple[Argument, ...]]
    environment: Mapping[str, str]
    nodes: int
    gpus_per_node: int
    node: str
    fabric: str
    losses: tuple[Loss, ...]
    caveats: tuple[str, ...]

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """All of them, in order."""
        return tuple(one for group in self.groups.values() for one in group)


def launch(plan: Plan) -> Launch:
    """The launch of a plan."""
    scenario = plan.scenario
    name = Argument("wandb-exp-name", (scenario.name,))
    groups = {**grouped(plan), "Name": (name,)}
    arguments = tuple(one for group in groups.values() for one in group)
    cluster = scenario.cluster
    return Launch(
        groups={heading: group for heading, group in groups.items() if group},
        environment=_environment(plan, arguments),
        nodes=cluster.nodes,
        gpus_per_node=cluster.node.gpus,
        node=cluster.node.name,
        fabric=cluster.fabric.name,
        losses=losses(scenario, arguments),
        caveats=caveats(plan, arguments),
    )


def _environment(plan: Plan, arguments: tuple[Argument, ...]) -> dict[str, str]:
    """Variables that Megatron-LM asks for (`validate_args`, megatron/training/arguments.py at
    000c4ac2): one queue, so that tensor and context ranks send in time, and many for pairs."""
    parallel = plan.scenario.parallel
    found: dict[str, str] = {}
    if any(one.name == "overlap-moe-expert-parallel-comm" for one in arguments):
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"
    elif parallel.tensor > 1 or parallel.context > 1:
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    if any(one.name == "fine-grained-activation-offloading" for one in arguments):
        found["NVTE_CPU_OFFLOAD_V1"] = "1"
    return found
