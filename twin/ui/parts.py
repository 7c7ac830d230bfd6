"""Parts that several pages share: key figures, edits, warnings, and provenance.

The catalog: parts with their numbers and sources, and the members of the axes of choice.

Derivation: the formula of a key figure, and those of all its inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, cast

import streamlit as st

from twin.answers import Run
from twin.arch.count import parameters
from twin.loading import Part, catalog_parts, load_part
from twin.loading.catalog import PART_KINDS, SLOTS, PartKind
from twin.loading.files import table as data_table
from twin.optimizers.base import Optimizer
from twin.reports.compare import KpiDelta
from twin.reports.explain import Explanation, explain
from twin.reports.head import Head
from twin.reports.table import count, digits, interval_words, show
from twin.routing import Routing
from twin.schedules.base import Schedule
from twin.sources import Ledger, Sourced
from twin.spec.axis import members
from twin.spec.base import Spec, descriptions
from twin.spec.kpis import Kpi
from twin.spec.model import ModelSpec
from twin.ui import PLAN, session
from twin.ui.answers import Failure, guarded, scenario_of
from twin.ui.comparison import change
from twin.ui.editor import as_text, label
from twin.ui.place import OpenPlan, grid, lean, open_plan, say, table
from twin.ui.workspace import Draft

_WARNINGS: Final = 3
"""Warnings that are shown at once."""
_SHORT: Final = data_table(__name__, "_SHORT")
"""Labels that fit in a narrow place."""


def say_verdict(words: str, report: Head) -> None:
    """A verdict: whether the plan fits, green where it does, orange where that may turn out
    otherwise; the rest below."""
    told = 1 + report.may_differ
    parts = words.split(". ", told)
    rest = parts.pop() if len(parts) > told else ""
    first = ". ".join(parts) + ("." if rest else "")
    if report.may_differ:
        st.warning(first, icon=":material/help:")
    elif report.fits:
        st.success(first, icon=":material/check_circle:")
    else:
        st.error(first, icon=":material/block:")
    if rest:
        st.markdown(rest)


def metrics(shown: OpenPlan, keys: Sequence[str], width: int | Literal["content"]) -> None:
    """Key figures of the open plan with their intervals, each `width` pixels wide, and their change
    against the baseline. A change is called good or bad only where both plans fit."""
    run, baseline = shown.reply.now, shown.baseline
    assert isinstance(run, Run), "a plan without an answer has no figures"
    report, known = run.report, {kpi.key: kpi for kpi in run.kind.kpis}
    deltas: dict[str, KpiDelta] = (
        dict(run.kind.compare([baseline.report, report]).deltas[0].kpis) if baseline else {}
    )
    judged = report.fits and (baseline is None or baseline.report.fits)
    with st.container(horizontal=True, gap="small"):
        for key in keys:
            with st.container(width=width, gap="xxsmall"):
                value, unit = report.kpis[key], known[key].unit
                _metric(known[key], value, deltas.get(key), judged=judged)
                ends = interval_words(value, report.intervals.get(key), unit)
                if ends:
                    st.caption(f"80 %: {ends}")
    if not report.fits and width != "content":  # beside every page the badge says it
        st.caption("As if the plan did fit.")


def _metric(kpi: Kpi, value: float | None, delta: KpiDelta | None, *, judged: bool) -> None:
    label, shown = _SHORT.get(kpi.key, kpi.label), show(value, kpi.unit)
    if delta is None or delta.delta is None or not delta.delta:
        st.metric(label, shown, help=kpi.label)
        return
    good = "inverse" if kpi.better == "lower" else "normal"
    words = change(kpi, delta, judged=judged)
    st.metric(label, shown, words, good if judged else "off", help=kpi.label)


def changes(plan: Draft) -> None:
    """Every edit of a plan, each with a way back."""
    if not plan.edits:
        st.caption("No edits.")
        return
    st.markdown(f"#### Edits of {plan.scenario}")
    for path, value in plan.edits:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"`{path}={value}`", width="stretch")
            st.button(
                "Revert",
                key=f"undo {plan.name}|{path}",
                type="tertiary",
                on_click=_undo,
                args=(path,),
                help=f"Back to the value of {plan.scenario}",
            )
    st.button("Reset all", icon=":material/restart_alt:", on_click=_reset)


def warnings(report: Head) -> None:
    """The assumptions and limits of an answer: why its times are uncalibrated first; all but three
    are folded."""
    first = report.uncalibrated
    found = [*first, *(one for one in report.warnings if one not in first)]
    for warning in found[:_WARNINGS]:
        st.markdown(f":material/warning: {warning.message}")
    if found[_WARNINGS:]:
        with st.expander(f"{len(found) - _WARNINGS} more", icon=":material/warning:"):
            st.markdown("\n".join(f"- {one.message}" for one in found[_WARNINGS:]))


def provenance(run: Run) -> None:
    """Where an answer comes from, and the command that gives it again."""
    origin: Any = run.report.provenance
    facts = {
        "scenario hash": f"`{run.report.hash[:12]}`",
        "twin": origin.twin_version,
        "fidelity": origin.fidelity,
        "calibration": origin.calibration,
        "events": f"{origin.events:,}",
        **{key.replace("_", " "): _plain(value) for key, value in origin.details.items()},
        "wall time": f"{digits(origin.wall_seconds or 0)} s",
    }
    stored = ["from the store"] if run.cached else []
    st.caption(", ".join([*(f"{key} {value}" for key, value in facts.items()), *stored]))
    if origin.reproduce is not None:
        st.code(origin.reproduce, language=None, wrap_lines=True)


def _plain(value: Any) -> str:
    """A detail of the provenance as text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else digits(value)


def _undo(path: str) -> None:
    session.change(lambda on: on.changed(lambda plan: plan.without(path)))


def _reset() -> None:
    session.change(lambda on: on.changed(lambda plan: plan.reset))


Choice = Literal["schedules", "optimizers", "routings"]
Category = PartKind | Choice
"""A category of the catalog."""
CHOICES: Final[Mapping[Choice, Mapping[str, type[Spec]]]] = {
    "schedules": members("twin.schedules", Schedule),
    "optimizers": members("twin.optimizers", Optimizer),
    "routings": members("twin.routing", Routing),
}
TITLES: Final[Mapping[Category, str]] = {kind: label((kind,)) for kind in (*PART_KINDS, *CHOICES)}
"""The categories in words."""
_FIELD: Final = {
    "schedules": "parallel.schedule.kind",
    "optimizers": "train.optimizer.kind",
    "routings": "train.routing.kind",
}
_UNCOUNTED: Final = ("name", "reserve")
"""What the overview of parts leaves to the list of numbers."""


def field_of(category: Category) -> str:
    """The field of a scenario that takes an entry of a category; the outermost of several."""
    slots = {kind: ".".join(path) for path, kind in reversed([*SLOTS.items()])}
    return _FIELD.get(category) or slots[cast(PartKind, category)]


def part_rows(parts: Sequence[Part[Spec]]) -> list[dict[str, str]]:
    """A row per part: its fields as a planner writes them; models with their parameters."""
    return [
        {"Name": part.name, **_counts(part.spec), **_values(part.spec.model_dump(mode="json"), "")}
        for part in parts
    ]


def number_rows(ledger: Ledger) -> list[dict[str, str]]:
    """Every number of a part with who says so."""
    return [{"Number": path, **known_as(known)} for path, known in ledger.items()]


def known_as(known: Sourced) -> dict[str, str]:
    """How a number is known, as columns."""
    low, high = known.range or (None, None)
    return {
        "Value": str(known.value),
        "Range": f"{low} to {high}" if known.range else "",
        "Kind": known.kind,
        "Source": f"{known.source.title}, {known.source.date}" if known.source else "",
        "Link": known.source.url if known.source else "",
        "Note": known.note,
    }


def choice_rows(category: Choice) -> list[dict[str, str]]:
    """A row per member of an axis, with what it says of itself."""
    return [
        {"Name": kind, "What it is": " ".join((member.__doc__ or "").split())}
        for kind, member in CHOICES[category].items()
    ]


def settings(category: Choice, kind: str) -> list[dict[str, str]]:
    """What can be set on a member of an axis."""
    member = CHOICES[category][kind]
    return [
        {
            "Setting": f"`{name}`",
            "Default": "required" if field.is_required() else as_text(field.default),
            "What it means": told,
        }
        for (name, field), told in zip(
            member.model_fields.items(), descriptions(member).values(), strict=True
        )
        if name != "kind"
    ]


def _counts(spec: Spec) -> dict[str, str]:
    if not isinstance(spec, ModelSpec):
        return {}
    found = parameters(spec)
    return {"Parameters": count(found.total), "Activated": count(found.activated_with_head)}


def _values(values: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Leaves by name; a part inside a part goes by its name."""
    found: dict[str, str] = {}
    for key, value in values.items():
        name = label((prefix, key))
        if key in _UNCOUNTED or value is None:
            continue
        if isinstance(value, Mapping):
            inner = cast(Mapping[str, Any], value)
            found |= {name: str(inner["name"])} if "name" in inner else _values(inner, f"{name} ")
        else:
            found[name] = as_text(value)
    return found


def catalog_section() -> None:
    """The parts of a category, and a button to use one."""
    category: Category = st.segmented_control(
        "Category",
        list(TITLES),
        default="gpus",
        required=True,
        format_func=TITLES.__getitem__,
        key="category",
    )
    for kind in PART_KINDS:
        if kind == category:
            _parts(kind)
    for choice in CHOICES:
        if choice == category:
            _choices(choice)


def _parts(category: PartKind) -> None:
    """The parts of a kind side by side, then one of them with its sources."""
    names = catalog_parts(category)
    parts = [load_part(category, name) for name in names]
    grid(part_rows(parts), key=f"parts {category}", words=f"All {category} of the catalog")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name: str = st.selectbox("Sources of", names, key=f"part of {category}", width=420)
        _use(category, name)
    (part,) = (one for one in parts if one.name == name)
    st.caption(f"From `{part.file}`")
    grid(number_rows(part.ledger), key=f"numbers {category}", words=f"{name}: all parameters")


def _choices(category: Choice) -> None:
    """The members of an axis, and what can be set on each."""
    table(choice_rows(category))
    names = [row["Name"] for row in choice_rows(category)]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name: str = st.selectbox("Settings of", names, key=f"choice of {category}", width=420)
        _use(category, name)
    rows = settings(category, name)
    if rows:
        table(rows)
    else:
        st.caption("No settings.")


def _use(category: Category, name: str) -> None:
    """Put the entry into the open plan, where its scenario has such a field."""
    shown, path = open_plan(), field_of(category)
    scenario = scenario_of(shown.asked)
    fits = not isinstance(scenario, Failure) and path.partition(".")[0] in dict(scenario)
    if st.button(
        f"Use in {shown.plan.title}",
        icon=":material/add:",
        on_click=_edit,
        args=(path, name),
        disabled=not fits,
        help=f"Sets `{path}`" if fits else f"The open plan has no `{path}`",
    ):
        session.want_section("Scenario")
        st.switch_page(PLAN)


def _edit(path: str, name: str) -> None:
    forget = path.rpartition(".")[0] if path.endswith(".kind") else ""
    session.change(lambda on: on.changed(lambda plan: lean(plan.edited(path, name, forget=forget))))


_LEVEL: Final = "\u2502\u00a0"
"""A rule and a no-break space: one level in. Spaces alone would be cut off by the table's
Markdown, and other spaces would let a name break away from its rules."""


@st.fragment
def derivation(shown: OpenPlan, run: Run) -> None:
    """One key figure down to its inputs and their places; drawn when opened."""
    box = st.expander(
        "Where a number comes from",
        icon=":material/function:",
        key="derivation",
        on_change="rerun",
    )
    if not box.open:
        return
    with box:
        labels = {kpi.key: kpi.label for kpi in run.kind.kpis}
        kpi: str = st.selectbox(
            "Key figure", list(labels), format_func=labels.__getitem__, key="derived", width=420
        )
        found = guarded(lambda: explain(run.plan, run.program, run.trace, run.report, kpi))
        if isinstance(found, Explanation):
            table(list(rows(found, 0, set())))
        else:
            say(shown.plan, found)


def rows(node: Explanation, depth: int, said: set[Explanation]) -> Iterator[dict[str, str]]:
    """The number, then its inputs, one level in; repeated nodes say so."""
    again = node in said
    said.add(node)
    yield {
        "Number": f"{_LEVEL * depth}{node.name}",
        "Value": node.shown,
        "Formula": f"`{node.formula}`" if node.formula and not again else "",
        "Source": "as above" if again else node.source,
    }
    if not again:
        for child in node.children:
            yield from rows(child, depth + 1, said)
