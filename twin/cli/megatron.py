"""Megatron-LM's arguments at the command line: `twin export --format megatron` and
`twin import megatron`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twin.cli.output import Output

if TYPE_CHECKING:
    from twin.interop.importing.megatron import Launch
    from twin.planning.types import Plan

FORM = "megatron"
"""What the format is called, both ways."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where a launch runs, which its arguments do not say."""

    node: str | None
    nodes: int | None
    fabric: str | None


def export_plan(plan: Plan, words: Sequence[str], path: Path, output: Output) -> dict[str, Any]:
    """Write a plan's arguments in the form that the file's name asks for, and say what they leave
    out; the answer as a document. Nothing is played."""
    from twin.interop.export.base import stamp_of_plan, write_parts
    from twin.interop.export.megatron.launch import launch, written

    found = launch(plan)
    stamp = stamp_of_plan(plan.scenario, words, FORM)
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    write_parts({"": written(found, stamp, suffix).encode()}, path)
    output.sentence(f"Wrote {path}: {len(found.arguments)} arguments.")
    for loss in found.losses:
        output.message(f"Not said: {loss}")
    for caveat in found.caveats:
        output.message(f"Said differently: {caveat}")
    return {
        "hash": stamp.hash,
        "fits": plan.memory.fits,
        "losses": [asdict(loss) for loss in found.losses],
        "caveats": list(found.caveats),
    }


def read_launch(
    file: Path, cluster: Cluster, defines: Sequence[str], more: Sequence[str]
) -> tuple[Launch, str, dict[str, Any]]:
    """The launch that a file describes, as itself, as the text of a scenario, and as its sections.

    Raises `UsageError` for what is wrong with the file, and where the cluster is not known."""
    from twin.interop.importing.as_yaml import scenario_text, sections
    from twin.interop.importing.megatron import read_megatron
    from twin.loading.files import display

    launch = read_megatron(file, _defined(defines), more)
    where = _placed(launch, cluster)
    return launch, scenario_text(launch, where, display(file)), sections(launch, where)


def summary(launch: Launch) -> str:
    """What was read, in a sentence."""
    from twin.arch.count import parameters

    parallel = launch.parallel
    degrees = {
        "tensor": parallel.tensor,
        "context": parallel.context,
        "pipeline": parallel.pipeline,
        "virtual": parallel.virtual,
        "expert": parallel.expert,
    }
    shown = ", ".join(f"{axis} {degree}" for axis, degree in degrees.items() if degree > 1)
    return f"{launch.name}: {parameters(launch.model).total:,} parameters; {shown or 'one rank'}"


def _defined(words: Sequence[str]) -> Mapping[str, str]:
    import typer

    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise typer.BadParameter(f"write NAME=VALUE, not `{word}`", param_hint="--define")
        found[name] = value
    return found


def _placed(launch: Launch, cluster: Cluster) -> dict[str, Any]:
    """The section `cluster`; refuses what nobody says."""
    from twin.errors import Problem, UsageError
    from twin.loading import catalog_parts
    from twin.loading.suggest import hint

    nodes = cluster.nodes or launch.nodes
    said = {"node": cluster.node, "nodes": nodes, "fabric": cluster.fabric}
    fixes = {
        "node": hint("", catalog_parts("nodes"), "--node with one of"),
        "nodes": "--nodes NUMBER",
        "fabric": hint("", catalog_parts("fabrics"), "--fabric with one of"),
    }
    problems = [
        Problem("TW011", f"--{key}", f"the arguments do not say the cluster's {key}", fixes[key])
        for key, value in said.items()
        if value is None
    ]
    if problems:
        raise UsageError(problems)
    return said
