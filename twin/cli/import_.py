"""`twin import`: a model of the catalog from another tool's description of it, or a scenario from
the arguments of a launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from twin.arch.count import parameters
from twin.cli.catalog import counts
from twin.cli.output import Output, write_text
from twin.errors import Problem, UsageError
from twin.interop.importing.as_yaml import catalog_part, scenario_text, sections
from twin.interop.importing.hf_config import Imported, read_hf_config
from twin.interop.importing.megatron import Launch, read_megatron
from twin.loading import catalog_parts
from twin.loading.files import display
from twin.loading.tree import hint

VERSION = 1
"""Version of the JSON document."""

FORMATS = ("hf-config", "megatron")
"""What can be read."""


def import_(  # noqa: PLR0913  one parameter per option of the command line
    *,
    form: str,
    file: Path,
    path: Path | None,
    force: bool,
    node: str | None,
    nodes: int | None,
    fabric: str | None,
    defines: list[str],
    more: list[str],
    output: Output,
) -> int | None:
    """A catalog model from a released configuration, or a scenario from a launch's arguments."""

    if form not in FORMATS:
        _refuse(form)
    if form == "megatron":
        where = _Cluster(node, nodes, fabric)
        _launch(_Launch(file, where, defines, more), path, output, force=force)
        return
    if node or nodes or fabric or defines or more:
        message = "only arguments of a launch need a cluster, variables and more arguments"
        raise typer.BadParameter(message, param_hint="FORMAT")
    imported = read_hf_config(file, _name(path or file))
    text = catalog_part(imported.model, display(file))
    if path is not None:
        write_text(path, text, force=force)
    elif not output.json:
        output.sentence(text.rstrip("\n"))
    output.document(_document(imported, path))
    total = parameters(imported.model).total
    place = f", written to {path}" if path else ""
    output.message(f"{imported.model.name}: {total:,} parameters{place}.")
    for warning in imported.warnings:
        output.message(warning)


@dataclass(frozen=True, slots=True)
class _Cluster:
    """Where a launch runs, which its arguments do not say."""

    node: str | None
    nodes: int | None
    fabric: str | None


@dataclass(frozen=True, slots=True)
class _Launch:
    """A file of arguments, and what is known beside it."""

    file: Path
    where: _Cluster
    defines: list[str]
    more: list[str]


def _launch(asked: _Launch, path: Path | None, output: Output, *, force: bool) -> None:
    """A scenario from the arguments of a launch."""

    launch, text, sections = _read_launch(asked.file, asked.where, asked.defines, asked.more)
    if path is not None:
        write_text(path, text, force=force)
    elif not output.json:
        output.sentence(text.rstrip("\n"))
    output.document(
        {
            "version": VERSION,
            "name": launch.name,
            "scenario": {"schema": 1, "name": launch.name, **sections},
            "parameters": counts(launch.model),
            "warnings": list(launch.remarks),
            "written": str(path) if path else None,
        }
    )
    output.message(f"{_summary(launch)}{f', written to {path}' if path else ''}.")
    for remark in launch.remarks:
        output.message(remark)


def _document(imported: Imported, path: Path | None) -> dict[str, object]:
    """The answer as one JSON document."""

    model = imported.model
    return {
        "version": VERSION,
        "name": model.name,
        "family": imported.family,
        "model": model.model_dump(mode="json"),
        "parameters": counts(model),
        "warnings": list(imported.warnings),
        "written": str(path) if path else None,
    }


def _name(path: Path) -> str:
    """What the model is called: as the file, or as its folder where the file is `config.json`."""
    stem = path.name.removesuffix(path.suffix)
    name = (path.absolute().parent.name or stem) if stem == "config" else stem
    return name.encode(errors="replace").decode()


def _refuse(form: str) -> None:

    message = f"there is no import format `{form}`"
    raise UsageError([Problem("TW065", "", message, hint(form, FORMATS))])


def _read_launch(
    file: Path, cluster: _Cluster, defines: Sequence[str], more: Sequence[str]
) -> tuple[Launch, str, dict[str, Any]]:
    """The launch that a file describes, as itself, as the text of a scenario, and as its sections.

    Raises `UsageError` for what is wrong with the file, and where the cluster is not known."""

    launch = read_megatron(file, _defined(defines), more)
    where = _placed(launch, cluster)
    return launch, scenario_text(launch, where, display(file)), sections(launch, where)


def _summary(launch: Launch) -> str:
    """What was read, in a sentence."""

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
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise typer.BadParameter(f"write NAME=VALUE, not `{word}`", param_hint="--define")
        found[name] = value
    return found


def _placed(launch: Launch, cluster: _Cluster) -> dict[str, Any]:
    """The section `cluster`; refuses what nobody says."""

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
