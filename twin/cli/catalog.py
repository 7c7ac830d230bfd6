"""`twin catalog`: what is built in, and where its numbers come from.

Catalog entries as lines, tables and data: parts with every number and its source, the measured
kernels of a profile, and the members of the axes of choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import groupby
from math import exp
from statistics import mean, median
from typing import Any, cast

from twin.arch.count import parameters
from twin.cli.output import Output
from twin.errors import Problem, UsageError
from twin.evidence.calibrate.kernels import PROFILE, Kernel, TraceClass, kernels, trace
from twin.loading import Part, catalog_parts, load_part, unavailable
from twin.loading.catalog import PART_KINDS, PartKind
from twin.loading.tree import hint
from twin.network import topology
from twin.optimizers.base import Optimizer
from twin.reports.table import Block, Notes, Table, count, headed, lookup
from twin.routing import Routing
from twin.schedules.base import Schedule
from twin.sources import Sourced
from twin.spec.axis import members
from twin.spec.base import Spec, descriptions
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import FabricSpec, GpuSpec, NodeSpec
from twin.spec.cost import PurchaseSpec, SiteSpec
from twin.spec.data import RephrasingRecipe, TrajectoryRecipe
from twin.spec.goodput import FailuresSpec, RestartSpec
from twin.spec.inference import EngineSpec
from twin.spec.model import ModelSpec
from twin.spec.recipe import RecipeSpec
from twin.spec.software import OperationSpec, SoftwareSpec
from twin.spec.weight_update import UpdaterSpec
from twin.units import format_quantity

VERSION = 1
"""Version of the JSON document."""

CHOICES = ("schedules", "optimizers", "routings", "topologies")
CATEGORIES = (*PART_KINDS, *CHOICES)
"""What the catalog holds: parts in files, and the members of the axes of choice."""


def catalog(*, category: str | None, name: str | None, output: Output) -> int | None:
    """What is built in, and its sources."""
    if category is None:
        _everything(output)
    elif category in PART_KINDS:
        _parts(category, name, output)
    elif category in CHOICES:
        _choices(category, name, output)
    else:
        _refuse(category, f"the catalog has no category `{category}`", CATEGORIES)


def _refuse(word: str, message: str, known: tuple[str, ...]) -> None:
    """Say that there is no such thing, and what is nearest to it."""

    raise UsageError([Problem("TW006", "", message, hint(word, known))])


def _everything(output: Output) -> None:
    """The names in every category."""

    names: dict[str, list[str]] = {
        **{kind: list(catalog_parts(kind)) for kind in PART_KINDS},
        **{axis: list(members_of(axis)) for axis in CHOICES},
    }
    output.document({"version": VERSION, "catalog": names})
    for kind, entries in names.items():
        output.sentence(f"{kind}: {', '.join(entries)}")
    output.sentence(
        "twin catalog CATEGORY lists one; twin catalog CATEGORY NAME shows its sources."
    )


def _parts(kind: PartKind, name: str | None, output: Output) -> None:
    """All parts of a kind, or one of them with the source of each number."""

    names = catalog_parts(kind) if name is None else (name,)
    parts = [load_part(kind, entry) for entry in names]
    lacking = unavailable(kind) if name is None else {}
    document: dict[str, Any] = {"version": VERSION, kind: [part_document(part) for part in parts]}
    if name is None:
        rows = [{"name": entry, "reason": why} for entry, why in lacking.items()]
        document["not_expressible"] = rows
    output.document(document)
    if name is not None:
        output.sentence(f"{parts[0].name}, from {parts[0].file}")
        if output.tables:
            output.show(*part_tables(parts[0]))
            if kind == "calibrations":
                for line in kernel_lines(cast("CalibrationSpec", parts[0].spec)):
                    output.sentence(line)
        return
    for part in parts:
        output.sentence(summary(part))
    for entry, why in lacking.items():
        output.sentence(f"not expressible, {entry}: {why}")


def _choices(category: str, name: str | None, output: Output) -> None:
    """The members of an axis with what each is and what it can be told."""

    known = members_of(category)
    if name is not None and name not in known:
        _refuse(name, f"there is no `{name}` among the {category} of the catalog", tuple(known))
    shown = {kind: member for kind, member in known.items() if name in (None, kind)}
    entries = [choice_document(kind, member) for kind, member in shown.items()]
    output.document({"version": VERSION, category: entries})
    for entry in entries:
        output.sentence(f"{entry['kind']}: {entry['summary']}")
        for setting in entry["settings"]:
            default = "..." if setting["required"] else setting["default"]
            output.sentence(f"  {setting['name']} = {default}: {setting['meaning']}")


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
        case SoftwareSpec():
            host = "a host thread" if spec.host else "no work per operation"
            gpus = ", ".join(spec.calibrations) or "no GPU"
            return f"{spec.framework}, {spec.release}; {host}; calibrations for {gpus}"
        case RecipeSpec():
            return _numbers(spec)
        case UpdaterSpec():
            return f"measured on {spec.gpu}, {spec.software}, {spec.date}"
        case _:
            return type(spec).__name__


def _numbers(spec: RecipeSpec) -> str:
    """What a recipe multiplies, and where it keeps more bits."""
    scaled = f" scaled by {spec.fp8_scaling}" if spec.precision == "fp8" else ""
    facts = [f"products in {spec.precision}{scaled}"]
    if spec.bf16_first or spec.bf16_last:
        facts.append(f"{spec.bf16_first} first and {spec.bf16_last} last layers in bf16")
    for name, parts in (("bf16", spec.bf16_parts), ("fp8", spec.fp8_parts)):
        if parts:
            facts.append(f"{', '.join(parts)} in {name}")
    return "; ".join(facts)


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


def part_tables(part: Part[Spec]) -> list[Block]:
    """Every number of a part with how it is known, and the works that are cited."""
    sources = {known.source.id: known.source for known in part.ledger.values() if known.source}
    numbers = [line for path, known in part.ledger.items() for line in _number(path, known)]
    works = [f"{s.id}: {s.title}, {s.date}. {s.url}" for _, s in sorted(sources.items())]
    counted: list[Block] = []
    if isinstance(part.spec, ModelSpec):
        counted = [_parameter_table(part.spec)]
    elif isinstance(part.spec, SoftwareSpec):
        counted = software_tables(part)
        numbers = []  # they are in its table
    shown = [Notes("Numbers", tuple(numbers))] if numbers else []
    return [*counted, *shown, Notes("Sources", tuple(works))]


_CALLS = ("call", "gradient", "collective", "sync")
"""Seconds of a stack's host beside its items."""


def software_tables(part: Part[Spec]) -> list[Block]:
    """What a stack is, seconds of each host item, and how often an operation does it."""
    stack = part.spec
    assert isinstance(stack, SoftwareSpec)
    about = {"framework": stack.framework, "release": stack.release}
    about |= {f"calibration on {gpu}": name for gpu, name in stack.calibrations.items()}
    host = stack.host
    if host is None:
        return [lookup({**about, "host": "only calibration.dispatch per kernel"}, "", "left")]
    about["the host waits for"] = ", ".join(host.waits) or "nothing"
    seconds = headed("Host items", "item", "seconds", "range", "known", left={0, 3})
    timed = (*(f"items.{name}" for name in host.items), *_CALLS)
    items = {path.removeprefix("items."): part.ledger.get(f"host.{path}") for path in timed}
    known_items = {name: known for name, known in items.items() if known}
    for name, known in known_items.items():
        seconds.add_row(name, *_item(known))
    notes = tuple(f"{name}: {known.note}" for name, known in known_items.items() if known.note)
    counts = headed("Counts per operation", "operation", "forward", "backward", left={0, 1, 2})
    for name, one in host.operations.items():
        forward, backward = (_counted(one, which) for which in ("forward", "backward"))
        counts.add_row(name, forward, backward)
    beside = ("each_microbatch", "each_step", "each_weight")
    for name in beside:
        counts.add_row(name.replace("_", " "), _items(getattr(host, name)), "")
    counts.caption = "Other operations: `call` per kernel forward, `gradient` per kernel backward"
    return [lookup(about, "", "left"), seconds, Notes("Notes", notes), counts]


def _item(known: Sourced) -> tuple[str, str, str]:
    """Seconds of an item with its range, and how they are known."""
    span = f"{known.range[0]} to {known.range[1]}" if known.range else ""
    source = f", {known.source.id}" if known.source else ""
    return str(known.value), span, f"{known.kind}{source}"


def _counted(operation: OperationSpec, which: str) -> str:
    """What an operation does in one direction, for each expert, and with how many kernels."""
    each = _items(getattr(operation, f"each_{which}"))
    kernels = getattr(operation, f"{which}_kernels")
    said = [_items(getattr(operation, which)), each and f"per expert {each}"]
    said.append("" if kernels is None else f"{kernels:g} kernel{'s' * (kernels != 1)}")
    return "; ".join(filter(None, said))


def _items(counts: Mapping[str, float]) -> str:
    """`te_linear, 2 hook`."""
    return ", ".join(f"{often:g} {name}" if often != 1 else name for name, often in counts.items())


def _number(path: str, known: Sourced) -> Iterator[str]:
    """A number with its range, how it is known and who says so; its note below."""
    span = f" ({known.range[0]} to {known.range[1]})" if known.range else ""
    source = f", {known.source.id}" if known.source else ""
    yield f"{path} = {known.value}{span}: {known.kind}{source}"
    if known.note:
        yield f"    {known.note}"


def _parameter_table(model: ModelSpec) -> Table:
    found = parameters(model)
    rows = {
        "parameters": found.total,
        "activated per token, without embeddings": found.activated_without_embeddings,
        "activated per token, with head": found.activated_with_head,
        "activated per token, with head and embedding": found.activated_with_embeddings,
    }
    return lookup({label: f"{number:,}" for label, number in rows.items()}, "")


def part_document(part: Part[Spec]) -> dict[str, Any]:
    """A part as data: values as a planner writes them, and the source of every number by path."""
    document: dict[str, Any] = {
        "name": part.name,
        "aliases": list(part.aliases),
        "file": part.file,
        "values": part.spec.model_dump(mode="json", by_alias=True),
        "numbers": {path: asdict(entry) for path, entry in part.ledger.items()},
    }
    if isinstance(part.spec, ModelSpec):
        document["parameters"] = counts(part.spec)
    if isinstance(part.spec, CalibrationSpec):
        document["kernels"] = kernel_rows(part.spec)
    return document


def counts(model: ModelSpec) -> dict[str, int]:
    """Exact parameter counts of a model, `total` and the activated ones first."""
    found = parameters(model)
    return {
        "total": found.total,
        "activated_without_embeddings": found.activated_without_embeddings,
        "activated_with_head": found.activated_with_head,
        "activated_with_embeddings": found.activated_with_embeddings,
        **asdict(found),
    }


def members_of(category: str) -> Mapping[str, type[Any]]:
    """The choices of an axis by kind."""

    if category == "topologies":
        return {kind: type(topology.member(kind)) for kind in topology.kinds()}
    axes: dict[str, tuple[str, type[Any]]] = {
        "schedules": ("twin.schedules", Schedule),
        "optimizers": ("twin.optimizers", Optimizer),
        "routings": ("twin.routing", Routing),
    }
    return members(*axes[category])


def choice_document(kind: str, member: type[Any]) -> dict[str, Any]:
    """A member of an axis as data: its first sentence, and the settings it can be given."""

    fields = member.model_fields if issubclass(member, Spec) else {}
    told = descriptions(member) if fields else {}
    settings = [
        {
            "name": name,
            "required": field.is_required(),
            "default": None if field.is_required() else field.get_default(),
            "meaning": told[name],
        }
        for name, field in fields.items()
        if name != "kind"
    ]
    summary = (member.__doc__ or "").strip().splitlines()[0]
    return {"kind": kind, "summary": summary, "settings": settings}


def kernel_rows(calibration: CalibrationSpec) -> list[dict[str, Any]]:
    """Every measured kernel of a profile with seconds measured and predicted."""
    return [
        {
            "row": kernel.row,
            "file": kernel.file,
            "shape": kernel.shape,
            "measured": kernel.measured,
            "predicted": kernel.measured * exp(error),
            "error": exp(error) - 1.0,
        }
        for kernel, error in _judged(calibration)
    ]


def kernel_lines(calibration: CalibrationSpec) -> Iterator[str]:
    """The same as text, by file, each with its errors in short; then the training trace, where the
    profile has one."""

    judged = _judged(calibration)
    for row, group in groupby(judged, lambda pair: pair[0].row):
        own = list(group)
        errors = [abs(exp(error) - 1.0) for _, error in own]
        yield ""
        yield (
            f"{row}: {len(own)} kernels, mean error {mean(errors):.1%}, median "
            f"{median(errors):.1%}, worst {max(errors):.1%}".replace("%", " %")
        )
        yield from (_kernel_line(kernel, error) for kernel, error in own)
    if judged and calibration.name == PROFILE:
        yield ""
        yield "DeepSeek's training trace, four layers: alone, beside DeepEP, measured"
        yield from map(_trace_line, trace())


def _judged(calibration: CalibrationSpec) -> list[tuple[Kernel, float]]:
    """The kernels of a profile, each with the logarithm of predicted over measured."""

    own = kernels(calibration.name)
    if not own:
        return []
    gpu = load_part("gpus", calibration.gpu).spec
    return [(kernel, kernel.error(gpu, calibration)) for kernel in own]


def _kernel_line(kernel: Kernel, error: float) -> str:
    predicted = kernel.measured * exp(error)
    return (
        f"{kernel.shape}: measured {_us(kernel.measured)}, predicted {_us(predicted)}, "
        f"{100 * (exp(error) - 1.0):+.1f} %"
    )


def _trace_line(part: TraceClass) -> str:
    return (
        f"{part.name}: alone {1e3 * part.alone:.1f} ms, beside {1e3 * part.beside:.1f} ms, "
        f"measured {1e3 * part.measured:.1f} ms, "
        f"{100 * (part.beside / part.measured - 1.0):+.1f} %"
    )


def _us(seconds: float) -> str:
    """Microseconds with one decimal."""
    return f"{1e6 * seconds:,.1f} us"
