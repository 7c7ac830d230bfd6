"""The contents of a file of arguments: the arguments, their environment, what they leave out, and
caveats; as a shell script, a list of arguments, or YAML as in Megatron-LM's own tests.

Sources of caveats: `validate_args` of megatron/training/arguments.py at 000c4ac2, `__post_init__`
and field comments of megatron/core/transformer/transformer_config.py at 002526d8.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from twin.errors import printable
from twin.interop.export.base import Stamp
from twin.interop.export.megatron.arguments import grouped, losses, of_stages
from twin.interop.importing.megatron.launch_file import Argument
from twin.interop.losses import Loss
from twin.loading.files import read_data
from twin.planning.types import Plan
from twin.schedules.interleaved import Interleaved


def caveats(plan: Plan, arguments: Sequence[Argument]) -> tuple[str, ...]:
    """What a reader of the arguments must know, as sentences."""
    given = {argument.name: argument.values for argument in arguments}
    return (*_differences(given), *_refusals(plan, given))


def _differences(given: dict[str, tuple[str, ...]]) -> Iterator[str]:
    """Arguments that mean a little less or more than the field (`caveats.yaml`)."""
    for key, caveat in read_data(Path(__file__).with_name("caveats.yaml")).items():
        name, _, value = key.partition(" ")
        if name in given and (not value or value in given[name]):
            yield caveat


def _refusals(plan: Plan, given: dict[str, tuple[str, ...]]) -> Iterator[str]:
    """Layouts that the twin plays and Megatron-LM does not run."""
    scenario = plan.scenario
    parallel, model = scenario.parallel, scenario.model
    refused = {
        "experts with tensor ranks and no --sequence-parallel": model.moe is not None
        and parallel.tensor > 1
        and not parallel.sequence_parallel,
        "--moe-router-topk 1 with a softmax behind the choice": model.moe is not None
        and model.moe.top_k == 1
        and model.moe.scores == "softmax"
        and model.moe.normalize_weights,
        "--moe-router-enable-expert-bias with softmax": model.moe is not None
        and model.moe.correction_bias
        and model.moe.scores == "softmax",
        "a sequence that 2 x context ranks do not divide": parallel.context > 1
        and scenario.train.sequence % (2 * parallel.context) > 0,
        "--use-torch-fsdp2 with pipeline stages, expert ranks or tied embeddings": (
            "use-torch-fsdp2" in given
            and (parallel.pipeline > 1 or parallel.expert > 1 or model.tied_embeddings)
        ),
        "Muon with FSDP": given.get("optimizer") == ("muon",)
        and bool({"use-megatron-fsdp", "use-torch-fsdp2"} & given.keys()),
        "chunks on one pipeline stage": parallel.virtual > 1 and parallel.pipeline == 1,
        "micro-batches that the stages do not divide, interleaved": isinstance(
            parallel.schedule, Interleaved
        )
        and plan.microbatches % parallel.pipeline > 0,
        "--overlap-moe-expert-parallel-comm with several prediction modules": (
            "overlap-moe-expert-parallel-comm" in given and model.mtp_layers > 1
        ),
        "experts that are not gated, or an activation without its biases": _plain_blocks(plan),
    }
    yield from (f"Megatron-LM refuses {what}." for what, found in refused.items() if found)


def _plain_blocks(plan: Plan) -> bool:
    """Whether GELU comes without biases, which `bias_activation_fusion` refuses, or dense blocks
    differ from experts, which are SwiGLU here."""
    model = plan.scenario.model
    bare = model.ffn.kind == "gelu" and not model.ffn.bias
    return bare or (model.moe is not None and model.ffn.kind != "swiglu")


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
    of_stages: tuple[str, ...] = ()
    """Memory flags where stages differ."""

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
        of_stages=of_stages(plan),
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


_PLAIN = re.compile(r"[A-Za-z][\w./-]*")
_WORDS = ("true", "false", "null", "yes", "no", "on", "off")
_ADD = (
    "Yours to add: data, tokenizer, learning rate, losses of the router, checkpoints, logs.",
    "Names: NVIDIA/Megatron-LM, megatron/training/arguments.py at 000c4ac2 (late 2025), and the",
    "options made of megatron/core/transformer/transformer_config.py at 002526d8 (2026).",
)


def written(launch: Launch, stamp: Stamp, suffix: str) -> str:
    """The text for a file that ends in this; a script for any ending that says nothing."""
    return _FORMS.get(suffix.lower(), script)(launch, stamp)


def script(launch: Launch, stamp: Stamp) -> str:
    """A shell script that runs it under torchrun."""
    lines = ["#!/bin/bash", *head(launch, stamp), ""]
    lines += [f"export {name}={value}" for name, value in launch.environment.items()]
    lines += ["", "MEGATRON_ARGS=("]
    for heading, group in launch.groups.items():
        lines.append(f"    # {heading}")
        lines += [f"    {shlex.join(one.words)}" for one in group]
    lines += [")", ""]
    lines.append(f"torchrun --nnodes {launch.nodes} --nproc-per-node {launch.gpus_per_node} \\")
    lines.append('    pretrain_gpt.py "${MEGATRON_ARGS[@]}" "$@"')
    return "\n".join(lines) + "\n"


def listed(launch: Launch, stamp: Stamp) -> str:
    """One argument per line."""
    lines = [*head(launch, stamp)]
    for heading, group in launch.groups.items():
        lines += ["", f"# {heading}", *(shlex.join(one.words) for one in group)]
    return "\n".join(lines) + "\n"


def yaml(launch: Launch, stamp: Stamp) -> str:
    """`ENV_VARS` and `MODEL_ARGS`."""
    lines = [*head(launch, stamp)]
    if launch.environment:
        lines += ["", "ENV_VARS:"]
        lines += [f"  {name}: {value}" for name, value in launch.environment.items()]
    lines += ["", "MODEL_ARGS:"]
    for heading, group in launch.groups.items():
        lines += [f"  # {heading}", *(f"  --{one.name}: {_value(one)}" for one in group)]
    return "\n".join(lines) + "\n"


def _value(argument: Argument) -> str:
    """A switch is true; words are quoted for the shell that launchers pass them through."""
    return scalar(shlex.join(argument.values)) if argument.values else "true"


def scalar(text: str) -> str:
    """Text that YAML reads as it stands, or in quotes."""
    number = re.fullmatch(r"\d+(\.\d+)?(e-?\d+)?", text)
    plain = number or (_PLAIN.fullmatch(text) and text.lower() not in _WORDS)
    return text if plain else json.dumps(text)


def head(
    launch: Launch, stamp: Stamp, what: str = "arguments of Megatron-LM", form: str = "megatron"
) -> Iterator[str]:
    """Where the file came from, and what it leaves out."""
    yield f"# {printable(stamp.scenario)}, as {what}"
    yield from (f"# {name}: {printable(text)}" for name, text in asdict(stamp).items())
    yield "#"
    yield from (f"# {line}" for line in _ADD)
    where = f"--node {launch.node} --nodes {launch.nodes} --fabric {launch.fabric}"
    yield f"# Back: twin import {form} FILE {printable(where)}"
    for title, lines in (
        ("Not said by these arguments", [str(loss) for loss in launch.losses]),
        ("Said, and different in Megatron-LM", launch.caveats),
        ("Memory flags of stages, instead of those below", launch.of_stages),
    ):
        if lines:
            yield "#"
            yield f"# {title}:"
            yield from (f"# - {printable(line)}" for line in lines)


_FORMS: Mapping[str, Callable[[Launch, Stamp], str]] = {
    ".txt": listed,
    ".args": listed,
    ".yaml": yaml,
    ".yml": yaml,
}
