"""`twin import`: a model of the catalog from another tool's description of it, or a scenario from
a file with which another program is launched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import typer

from twin.arch.count import parameters
from twin.cli.catalog import counts
from twin.cli.output import Output, write_text
from twin.errors import Problem, UsageError
from twin.interop.importing.as_yaml import catalog_part, scenario_text, sections
from twin.interop.importing.formats import CARD, FORMATS, MODEL, format_of, reader, source_of
from twin.interop.importing.hf_config import Imported, read_hf_text
from twin.interop.importing.launch import Launch, Source, stem_of
from twin.interop.importing.named_models import model_of
from twin.loading import catalog_parts, load_part
from twin.loading.tree import hint

VERSION = 1
"""Version of the JSON document."""


def import_(  # noqa: PLR0913  one parameter per option of the command line
    *,
    form: str,
    file: Path | None,
    path: Path | None,
    force: bool,
    node: str | None,
    nodes: int | None,
    fabric: str | None,
    defines: list[str],
    more: list[str],
    architecture: str | None,
    output: Output,
) -> int | None:
    """A catalog model from a released configuration, or a scenario from a launch."""

    if file is not None and form not in FORMATS:
        _refuse(form)
    source = source_of(file or Path(form))
    form = form if file is not None else format_of(source)
    beside = node or nodes or fabric or defines or more or architecture
    if form == MODEL:
        if beside:
            message = "only a launch needs a cluster, variables, further arguments and a model"
            raise typer.BadParameter(message, param_hint="FORMAT")
        _model(source, path, output, force=force)
        return
    where = _Cluster(node, nodes, fabric)
    known = replace(
        source,
        defined=_defined(defines),
        more=more,
        model=model_of(architecture) if architecture else None,
        gpus=where.gpus,
    )
    if form == CARD:
        _card(known, where, path, output, force=force)
        return
    _launch(known, form, where, path, output, force=force)


def _card(
    source: Source, where: _Cluster, path: Path | None, output: Output, *, force: bool
) -> None:
    """Predictions beside what a card measured; the scenario of the only entry, if asked for."""
    from twin.cli.import_card import compare_card, document

    found = compare_card(source, where.node, where.fabric, output)
    if path is not None:
        if len(found) > 1:
            message = "a scenario is of one GPU, and the card has several"
            raise typer.BadParameter(message, param_hint="--output")
        only = next(iter(found))
        write_text(path, only.text, force=force)
        output.message(f"Written to {path}; `twin run {path}` answers it.")
    output.document(document(found))


def _model(source: Source, path: Path | None, output: Output, *, force: bool) -> None:
    """A catalog part from a released configuration."""

    imported = read_hf_text(source.text, source.file, _name(path or Path(source.file)))
    text = catalog_part(imported.model, source.file)
    _written(text, path, output, force=force)
    output.document(_document(imported, path))
    total = parameters(imported.model).total
    place = f", written to {path}" if path else ""
    output.message(f"{imported.model.name}: {total:,} parameters{place}.")
    for warning in imported.warnings:
        output.message(warning)


def _written(text: str, path: Path | None, output: Output, *, force: bool) -> None:
    """Text where it was asked for."""

    if path is not None:
        write_text(path, text, force=force)
    elif not output.json:
        output.sentence(text.rstrip("\n"))


@dataclass(frozen=True, slots=True)
class _Cluster:
    """Where a launch runs, which its file does not say."""

    node: str | None
    nodes: int | None
    fabric: str | None

    @property
    def gpus(self) -> int | None:
        """Of all nodes; None where nobody says."""
        if self.node is None or self.nodes is None:
            return None
        return self.nodes * load_part("nodes", self.node).spec.gpus

    def of(self, launch: Launch) -> _Cluster:
        """With the nodes that the launch says."""
        return replace(self, nodes=self.nodes or launch.nodes)


def _launch(
    source: Source,
    form: str,
    where: _Cluster,
    path: Path | None,
    output: Output,
    *,
    force: bool,
) -> None:
    """A scenario from a launch."""

    launch = reader(form)(source)
    cluster = _placed(where.of(launch))
    text, said = scenario_text(launch, cluster, source.file, form), sections(launch, cluster)
    _written(text, path, output, force=force)
    output.document(
        {
            "version": VERSION,
            "name": launch.name,
            "format": form,
            "scenario": {"schema": 1, "name": launch.name, **said},
            "parameters": counts(launch.model),
            "keys": asdict(launch.tally),
            "warnings": list(launch.remarks),
            "written": str(path) if path else None,
        }
    )
    total = parameters(launch.model).total
    place = f", written to {path}" if path else ""
    output.message(f"{launch.name}: {total:,} parameters; {launch.summary}{place}.")
    for remark in (launch.tally.words, *launch.remarks, *_other_nodes(launch, where)):
        output.message(remark)


def _other_nodes(launch: Launch, where: _Cluster) -> Iterator[str]:
    """Whether the file has other nodes than the cluster."""
    own = launch.gpus_per_node
    each = load_part("nodes", where.node).spec.gpus if where.node else own
    if own is not None and own != each:
        yield f"The file has {own} GPUs per node, and {where.node} has {each}."


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
    stem = stem_of(path.name)
    folder = path.absolute().parent.name.encode(errors="replace").decode()
    return (folder or stem) if stem == "config" else stem


def _refuse(form: str) -> None:

    message = f"there is no import format `{form}`"
    raise UsageError([Problem("TW065", "", message, hint(form, FORMATS))])


def _defined(words: Sequence[str]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not (name.isidentifier() or name.isdecimal()):
            raise typer.BadParameter(f"write NAME=VALUE, not `{word}`", param_hint="--define")
        found[name] = value
    return found


def _placed(cluster: _Cluster) -> dict[str, Any]:
    """The section `cluster`; refuses what nobody says."""

    said = {"node": cluster.node, "nodes": cluster.nodes, "fabric": cluster.fabric}
    fixes = {
        "node": hint("", catalog_parts("nodes"), "--node with one of"),
        "nodes": "--nodes NUMBER",
        "fabric": hint("", catalog_parts("fabrics"), "--fabric with one of"),
    }
    problems = [
        Problem("TW011", f"--{key}", f"the file does not say the cluster's {key}", fixes[key])
        for key, value in said.items()
        if value is None
    ]
    if problems:
        raise UsageError(problems)
    return said
