"""Cost: with and without failures, what interrupts a run, energy, and files of all of it.

Serving: throughput of a plan's inference engines against concurrent users and context.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import streamlit as st

from twin.answers import Run
from twin.explore.search.levers import usual_failures
from twin.figures.serving import steps, throughput, twice_the_heads
from twin.loading import catalog_parts, load_part
from twin.reports import Report
from twin.reports.serving import DATA, NONE, Serving, turns
from twin.reports.table import decimal_bytes, digits, duration, gibibytes, show
from twin.spec.kpis import KPIS, WITH_FAILURES
from twin.ui import session
from twin.ui.answers import Refusal, command, engines
from twin.ui.explore.exports import as_csv, as_json, downloads
from twin.ui.place import OpenPlan, lean, place, say, sections, table, theme

_KPI: Final = {kpi.key: kpi for kpi in KPIS}
_ENERGY: Final = (
    "average_watts_per_gpu",
    "energy_kwh",
    "energy_cost_usd",
    "co2_tonnes",
)


def cost(shown: OpenPlan, run: Run) -> None:
    """The tables and files below the figures of cost."""
    report: Report = run.report
    st.header("With and without failures")
    _both(report)
    _failures(run)
    st.header("Energy")
    _energy(report)
    figures = {key: [report.kpis[key]] for key in _KPI}
    files = {".csv": lambda: as_csv(figures), ".json": lambda: as_json(report.to_json())}
    pictures = [one.drawn(theme()) for one in sections(run.kind.figures(run)).get("Cost", [])]
    downloads(f"{report.name} cost", command(shown.asked), files, pictures, theme())


def _both(report: Report) -> None:
    """Days and cost with and without failures."""
    rows: list[dict[str, str]] = []
    for without, with_ in WITH_FAILURES.items():
        rows.append(
            {
                "": _KPI[without].label.partition(",")[0],
                "Without failures": report.ranged(_KPI[without]),
                "With failures": report.ranged(_KPI[with_]),
            }
        )
    table(rows)
    st.caption("In brackets: the 80 % interval.")


def _failures(run: Run) -> None:
    """What interrupts the run; how to add failures where the scenario has none."""
    found = run.report.goodput
    if found is None:
        if run.report.scenario.get("goodput") is not None:
            st.caption("Failures are simulated once the simulation of the step is done.")
            return
        st.info(
            "The scenario has no failures. Choose failures and restarts to expect; edit them on "
            "the page Plan.",
            icon=":material/report:",
        )
        _offer(run)
        return
    saves, largest = found.saves, found.largest
    rows = {
        "Interruptions a day": digits(sum(found.per_day.values())),
        "Mean cost of an interruption": _or_unknown(largest.mean_seconds),
        f"Most it may cost for {100 * largest.target:.0f} % goodput": _or_unknown(largest.seconds),
        "Between two checkpoints": _or_unknown(saves.every_seconds),
        "A checkpoint blocks training for": duration(saves.blocked_seconds),
        "Bytes of a checkpoint": decimal_bytes(saves.bytes),
        "A restart after a failure": duration(found.restart_seconds),
        "Source of failure rates": found.source,
    }
    with st.expander("Interruptions and checkpoints", icon=":material/table:"):
        table([{"": name, "Value": value} for name, value in rows.items()])


def _or_unknown(seconds: float | None) -> str:
    return "unknown" if seconds is None else duration(seconds)


def _offer(run: Run) -> None:
    """The section that is missing, from parts of the catalog."""
    failures, restarts = catalog_parts("failures"), catalog_parts("restarts")
    same = usual_failures(run.scenario.cluster.node.gpu.name).name
    usual = next(
        (n for n, one in enumerate(failures) if same == load_part("failures", one).spec.name), 0
    )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        seen = st.selectbox("Failures as of", failures, usual, key="explore failures", width=180)
        again = st.selectbox("Restarts as of", restarts, key="explore restarts", width=180)
        hint = (
            "Where checkpoints go. 1 GB/s is assumed, a share of a node's front-end NIC: set yours."
        )
        node = st.text_input(
            "Storage, per node", "1GB/s", key="explore storage", help=hint, width=130
        )
        most = st.text_input("Storage, in all", "250GB/s", key="explore storage all", width=130)
        storage = f"{{per_node: {node}, total: {most}}}"
        text = f"{{failures: {seen}, restart: {again}, checkpoint: {{storage: {storage}}}}}"
        st.button("Add failures", icon=":material/add:", on_click=_add, args=(text,))


def _add(text: str) -> None:
    session.change(lambda on: on.changed(lambda plan: lean(plan.edited("goodput", text))))


def _energy(report: Report) -> None:
    """Energy and CO2e, or why they are unknown."""
    if report.bill.cost is None:
        why = report.bill.unknown.get("cost_usd", "Nothing has a price.")
        st.info(f"{why} Set it on the page Plan.", icon=":material/payments:")
    rows = [
        {
            "Key figure": _KPI[key].label,
            "Value": show(report.kpis[key], _KPI[key].unit),
            "Why unknown": report.bill.unknown.get(key, ""),
        }
        for key in _ENERGY
    ]
    table(rows)
    st.caption("Energy, its cost and its CO2e are of the run without failures.")


_ENGINE: Final = "deepep-32gpu"
"""The shipped engine that a plan without one can try."""
_DECLARED: Final = f"data:\n  engine: {_ENGINE}"


def serving_section(shown: OpenPlan) -> None:
    """The engines of the open plan."""
    found = engines(shown.asked)
    if isinstance(found, tuple):
        _show(_chosen(found))
    elif isinstance(found, Refusal) and {one.code for one in found.problems} == {NONE.code}:
        _declare(shown.plan.title)
        example = engines(replace(shown.asked, sets=(*shown.asked.sets, f"{DATA}={_ENGINE}")))
        if isinstance(example, tuple):
            st.header(f"An example: {_ENGINE}")
            _show(_chosen(example))
    else:
        say(shown.plan, found)


def _declare(title: str) -> None:
    """How a plan gets an engine."""
    st.info(f"**{title}** declares no inference engine.", icon=":material/dns:")
    st.markdown(
        "An engine is a part of the catalog, or your own, under `data.engine` (generates training "
        "data) or `rl.rollout.engine` (generates rollouts). This is enough to see it here:"
    )
    st.code(_DECLARED, language=None, wrap_lines=True)
    st.button(
        f"Try {_ENGINE}",
        icon=":material/add:",
        help=f"Edits this plan: `{DATA}={_ENGINE}`.",
        on_click=lambda: session.change(
            lambda on: on.changed(lambda one: one.edited(DATA, _ENGINE))
        ),
    )


def _chosen(found: tuple[Serving, ...]) -> Serving:
    """The engine that is shown, of a plan that declares several."""
    if len(found) == 1:
        return found[0]
    paths = [one.path for one in found]
    path = st.segmented_control(
        "Engine", paths, default=paths[0], required=True, key="engine shown"
    )
    return found[paths.index(path)] if path in paths else found[0]


def _show(found: Serving) -> None:
    _facts(found)
    if not any(at.points for at in found.curve.contexts):
        st.error(
            "The engine has no memory for a sequence of any of these contexts. Give it more GPUs, "
            "FP8 weights, an FP8 cache, or a smaller `chunk`.",
            icon=":material/block:",
        )
        return
    place(throughput(found, theme()), key="throughput")
    said = turns(found)
    if said is not None:
        st.info(said, icon=":material/lightbulb:")
    st.header("Parts of a step")
    place(steps(found, theme()), key="steps")
    st.header(f"{found.heads} or {2 * found.heads} heads?")
    place(twice_the_heads(found, theme()), key="heads")
    st.header("Assumptions and limits")
    _doubts(found)


def _facts(found: Serving) -> None:
    own, room = found.curve, found.curve.room
    st.caption(
        f"`{found.path}`: {found.model.name} on {own.gpus:,} GPUs in {own.groups:,} groups, "
        f"{found.engine.precision} weights, {found.engine.cache} cache. Of every GPU "
        f"{gibibytes(room.weights)} are weights and {gibibytes(max(0.0, room.cache))} are left for "
        f"the cache, {room.tokens:,} tokens of a group."
    )


def _doubts(found: Serving) -> None:
    """The uncertainty of the figures, and what is not modelled."""
    ranged = [
        f"at {context:,} tokens by -{digits(100 * (1 - one.low))} % to "
        f"+{digits(100 * (one.high - 1))} %"
        for context, one in found.reach.items()
    ]
    named = dict.fromkeys(name for one in found.reach.values() for name in one.drivers)
    low, high = found.kept
    kept = digits(100 * found.engine.utilisation)
    st.markdown(
        f"- The ranges of the inputs move tokens per second {', '.join(ranged)}, at the largest "
        f"batch of each. The largest effects: {', '.join(f'`{name}`' for name in named)}. These "
        "are ranges of inputs, not intervals with a stated coverage.\n"
        "- Between steps only `step_overhead` passes. Published services are slower than this "
        "model: see How-to: data in the documentation. Over hours the engine keeps "
        f"{kept} % ({digits(100 * low)} % to {digits(100 * high)} %) of these rates.\n"
        "- Users have equal contexts. Fewer users than one per group are not shown, because groups "
        "step together.\n"
        "- Not modelled: sampling, multi-token prediction, and caches that move between engines."
    )
