"""Catalog parts as terminal text: one line each, or every number with its source."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from twin.arch.count import parameters
from twin.loading import Part
from twin.reports.numbers import count
from twin.sources import Source, Sourced
from twin.spec.base import Spec
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import FabricSpec, GpuSpec, NodeSpec
from twin.spec.cost import PurchaseSpec, SiteSpec
from twin.spec.data import RephrasingRecipe, TrajectoryRecipe
from twin.spec.goodput import FailuresSpec, RestartSpec
from twin.spec.inference import EngineSpec
from twin.spec.model import ModelSpec
from twin.spec.weight_update import UpdaterSpec
from twin.units import format_quantity


def summary(part: Part[Spec]) -> str:
    """One line that tells a part from its neighbours."""
    also = f" (also {', '.join(part.aliases)})" if part.aliases else ""
    return f"{part.name}{also}: {_facts(part)}"


def _facts(part: Part[Spec]) -> str:  # noqa: C901, PLR0911, PLR0912  one per kind of part
    match spec := part.spec:
        case ModelSpec():
            found = parameters(spec)
            active = f", {count(found.activated_with_head)} activated with head" if spec.moe else ""
            return f"{found.total:,} parameters{active}, {spec.layers} layers"
        case GpuSpec():
            memory = format_quantity(spec.memory, "bytes", 3)
            rate = format_quantity(spec.bf16_dense, "flop_per_s", 3)
            return f"{memory}, {format_quantity(spec.memory_bandwidth, 'bytes_per_s', 3)}, {rate}"
        case NodeSpec():
            nvlink = format_quantity(spec.nvlink.bandwidth, "bytes_per_s", 3)
            nic = format_quantity(spec.nic.bandwidth, "bytes_per_s", 3)
            return f"{spec.gpus} x {spec.gpu.name}, NVLink {nvlink} and NIC {nic} per GPU, one way"
        case FabricSpec():
            over = f", oversubscribed {spec.oversubscription:g} to 1"
            wires = f"{spec.kind}, {spec.nodes_per_leaf} nodes per leaf, {spec.spines} spines"
            return wires + (over if spec.oversubscription > 1 else ", full bisection")
        case CalibrationSpec():
            assumed = all(known.kind == "assumed" for known in part.ledger.values())
            how = "assumed for" if assumed else "measured on"
            return f"{how} {spec.gpu}, {spec.software}, {spec.date}"
        case PurchaseSpec() | SiteSpec():
            return _money(spec)
        case FailuresSpec():
            return _interruptions(spec, part)
        case RestartSpec():
            parts = (spec.detect, spec.reschedule, spec.initialise, spec.load or 0, spec.warm_up)
            beside = " beside loading by its bytes" if spec.load is None else ""
            return f"{format_quantity(sum(parts), 'seconds', 3)} after a failure{beside}"
        case EngineSpec():
            batch = f"at most {spec.batch} sequences" if spec.batch else "as many as have room"
            return f"{spec.gpus} GPUs, {spec.precision}, {batch} per group of {spec.tensor}"
        case RephrasingRecipe():
            pieces = f"pieces of {spec.piece:,} tokens of excerpts of {spec.excerpt:,}"
            return f"{pieces}, {100 * spec.acceptance:.0f} % accepted"
        case TrajectoryRecipe():
            turns = f"{spec.turns} turns of {spec.written} tokens"
            return f"{turns}, {spec.candidates} per task, {100 * spec.acceptance:.0f} % accepted"
        case UpdaterSpec():
            return f"measured on {spec.gpu}, {spec.software}, {spec.date}"
        case _:
            return type(spec).__name__


def _interruptions(spec: FailuresSpec, part: Part[Spec]) -> str:
    """How many causes, of which run, and how they are known."""
    causes = f"{len(spec.causes)} cause" + "s" * (len(spec.causes) != 1)
    if any(known.kind == "assumed" for known in part.ledger.values()):
        return f"{causes}, assumed for {spec.gpu}"
    seen = spec.observed
    where = f"{seen.gpus:,} {spec.gpu} over {seen.time / 86400:g} d" if seen else spec.gpu
    return f"{causes}, observed on {where}"


def _money(spec: PurchaseSpec | SiteSpec) -> str:
    """What a purchase or a site says, in one line."""
    if isinstance(spec, PurchaseSpec):
        of, price = ("node", spec.node) if spec.gpu is None else ("GPU", spec.gpu)
        shown = format_quantity(price or 0.0, "usd", 3)
        return f"{shown} a {of}, over {spec.years:g} years used for {spec.utilisation:.0%}"
    facts = [f"PUE {spec.pue:g}"]
    if spec.electricity is not None:
        facts.append(format_quantity(spec.electricity, "usd_per_kwh", 3))
    if spec.carbon is not None:
        facts.append(format_quantity(spec.carbon, "grams_per_kwh", 3))
    return ", ".join(facts)


def part_tables(part: Part[Spec]) -> tuple[RenderableType, ...]:
    """Every number of a part with how it is known, and the works that are cited."""
    sources = {known.source.id: known.source for known in part.ledger.values() if known.source}
    numbers = [line for path, known in part.ledger.items() for line in _number(path, known)]
    works = [_indented(_citation(source), 2) for _, source in sorted(sources.items())]
    counted = [_counts(part.spec)] if isinstance(part.spec, ModelSpec) else []
    return (
        *counted,
        Group(Text("Numbers", style="bold"), *numbers),
        Group(Text("Sources", style="bold"), *works),
    )


def _number(path: str, known: Sourced) -> Iterator[RenderableType]:
    """A number with its range, how it is known and who says so; its note below."""
    span = f" ({known.range[0]} to {known.range[1]})" if known.range else ""
    source = f", {known.source.id}" if known.source else ""
    yield _indented(f"{path} = {known.value}{span}: {known.kind}{source}", 2)
    if known.note:
        yield _indented(known.note, 6)


def _citation(source: Source) -> str:
    return f"{source.id}: {source.title}, {source.date}. {source.url}"


def _indented(text: str, columns: int) -> RenderableType:
    return Padding(Text(text), (0, 0, 0, columns))


def _counts(model: ModelSpec) -> RenderableType:
    found = parameters(model)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for label, number in (
        ("parameters", found.total),
        ("activated per token, without embeddings", found.activated_without_embeddings),
        ("activated per token, with head", found.activated_with_head),
        ("activated per token, with head and embedding", found.activated_with_embeddings),
    ):
        table.add_row(label, f"{number:,}")
    return table
