"""The fields that the app lets a planner edit, as text: what stands in the scenario, what an edit
becomes. The same text would follow `--set` on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from twin.errors import Problem
from twin.report import resolved
from twin.scenario import Scenario
from twin.schedules import SCHEDULES
from twin.spec.memory import Recompute


@dataclass(frozen=True, slots=True)
class Field:
    """One editable field: its dotted path, its label, and how it is entered. `options` are those of
    a choice (one) or of choices (any number)."""

    path: str
    label: str
    kind: Literal["count", "quantity", "choice", "choices"]
    options: tuple[str, ...] = ()
    help: str = ""


FIELDS: tuple[Field, ...] = (
    Field("cluster.nodes", "Nodes", "count", help="servers; each has the GPUs its node part says"),
    Field("parallel.pipeline", "Pipeline stages", "count"),
    Field(
        "parallel.virtual", "Chunks per stage", "count", help="virtual stages; 1: no interleaving"
    ),
    Field("parallel.tensor", "Tensor parallel", "count"),
    Field(
        "parallel.expert", "Expert parallel", "count", help="ranks that share one set of experts"
    ),
    Field("parallel.micro_batch", "Micro-batch", "count", help="sequences per micro-batch"),
    Field("parallel.schedule.kind", "Schedule", "choice", options=tuple(SCHEDULES)),
    Field(
        "memory.recompute",
        "Recompute",
        "choices",
        options=get_args(Recompute),
        help="what the backward pass computes again; empty: every activation is kept",
    ),
    Field(
        "train.global_batch",
        "Global batch",
        "quantity",
        help="per step, such as 67108864tok or 64seq",
    ),
    Field(
        "cluster.node.nvlink.bandwidth",
        "NVLink per GPU",
        "quantity",
        help="line rate in one direction, such as 200GB/s",
    ),
    Field(
        "cluster.node.nic.bandwidth",
        "NIC per GPU",
        "quantity",
        help="line rate in one direction, such as 400Gbps (bits) or 50GB/s (bytes)",
    ),
    Field("cost.gpu_hour", "GPU-hour price", "quantity", help="such as 2.0USD"),
)
"""Every editable field, in the order shown."""


def rows(fields: Sequence[Field]) -> list[tuple[Field, ...]]:
    """The fields as a form lays them out: two numbers to a row, a choice on a row of its own."""
    laid: list[tuple[Field, ...]] = []
    for field in fields:
        wide = field.kind in ("choice", "choices")
        if laid and len(laid[-1]) == 1 and not wide and laid[-1][0].kind == field.kind:
            laid[-1] = (*laid[-1], field)
        else:
            laid.append((field,))
    return laid


def written(scenario: Scenario) -> dict[str, str]:
    """What each editable field would be written as; empty where its section is absent."""
    sections = resolved(scenario)
    return {field.path: _text(_value(sections, field.path)) for field in FIELDS}


def overrides(base: Mapping[str, str], edited: Mapping[str, str]) -> tuple[str, ...]:
    """The edits as arguments of `--set`, in field order: only what differs from the scenario."""
    paths = [field.path for field in FIELDS if field.path in edited]
    return tuple(f"{path}={edited[path]}" for path in paths if edited[path] != base.get(path, ""))


def listed(values: Sequence[str]) -> str:
    """Choices as they are written in a scenario: `[full]`."""
    return f"[{', '.join(values)}]"


def choices(text: str) -> list[str]:
    """The choices of a list as written."""
    return [word.strip() for word in text.strip("[]").split(",") if word.strip()]


def faulty(problem: Problem, edits: Sequence[str]) -> str:
    """What is wrong, headed by the label of the field that it is wrong with. An override that the
    loader could not even read is known by its place among the `edits` only."""
    path = problem.path
    if not path and problem.origin is not None and problem.origin.file == "--set":
        path = edits[problem.origin.line - 1].partition("=")[0]
    label = next((one.label for one in FIELDS if path in (one.path, _section(one))), "")
    words = f"**{label}**" if label else f"`{path}`" if path else ""
    return f"{words}: {problem.message}" if words else problem.message


def _section(field: Field) -> str:
    """The path under which a field is known that is the `kind` of its section."""
    return field.path.removesuffix(".kind")


def _value(section: Any, path: str) -> Any:
    for name in path.split("."):
        section = None if section is None else section[name]
    return section


def _text(value: Any) -> str:
    if value is None:
        return ""
    return listed(cast(list[str], value)) if isinstance(value, list) else str(value)
