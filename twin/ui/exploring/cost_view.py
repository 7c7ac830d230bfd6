"""Cost and goodput: what failures leave of the time, days and cost with and without them, and what
is paid for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import streamlit as st

from twin.answers import Run
from twin.explore.search.levers import usual_failures
from twin.figures.cost import amounts, days_lost
from twin.figures.plotly import Picture
from twin.loading import catalog_parts, load_part
from twin.reports import Report
from twin.reports.numbers import decimal_bytes, digits, duration, show
from twin.scenario import Scenario
from twin.spec.kpis import KPIS
from twin.ui import session
from twin.ui.answers import command, scenario_of
from twin.ui.exploring.exports import as_csv, as_json, hand_on
from twin.ui.pictures import place, table, theme
from twin.ui.view import View, lean

_KPI: Final = {kpi.key: kpi for kpi in KPIS}
_PAIRS: Final = (("days", "days_with_failures"), ("cost_usd", "cost_usd_with_failures"))
_ENERGY: Final = (
    "average_watts_per_gpu",
    "energy_kwh",
    "energy_cost_usd",
    "co2_tonnes",
)


def cost_view(shown: View, run: Run) -> None:
    """Everything that a run costs in time, money and energy."""
    report = run.report
    st.subheader("With and without failures")
    _beside(report)
    pictures = [*_losses(shown, report), *_money(report), *_power(report)]
    _energy(report)
    figures = {key: [report.kpis[key]] for key in _KPI}
    files = {".csv": lambda: as_csv(figures), ".json": lambda: as_json(_document(report))}
    hand_on(f"{report.name} cost", command(shown.asked), files, pictures, theme())


def _document(report: Report) -> Mapping[str, Any]:
    return report.to_json()


def _beside(report: Report) -> None:
    """Days and cost in both ways, never one alone."""
    rows: list[dict[str, str]] = []
    for without, with_ in _PAIRS:
        kpi, other = _KPI[without], _KPI[with_]
        rows.append(
            {
                "": kpi.label.partition(",")[0],
                "Without failures": show(report.kpis[without], kpi.unit),
                "80 % interval": _interval(report, without),
                "With failures": show(report.kpis[with_], other.unit),
                "80 % interval, with failures": _interval(report, with_),
            }
        )
    table(rows)


def _interval(report: Report, key: str) -> str:
    found = report.intervals.get(key)
    if found is None:
        return "unknown"
    low, high = (show(one, _KPI[key].unit) for one in found)
    return f"{low} to {high}"


def _losses(shown: View, report: Report) -> list[Picture]:
    """Where the time goes; how to say it, where the scenario does not."""
    found = report.goodput
    if found is None:
        if shown.reply.better is not None and "goodput" in report.scenario:
            st.caption("Failures are simulated once the step has been played event by event.")
            return []
        st.info(
            "The scenario says nothing of failures, so what is lost to them is unknown. Say whose "
            "failures and restarts to expect; all of it can be edited on the page Plan then.",
            icon=":material/report:",
        )
        _offer(shown)
        return []
    picture = days_lost(found, theme())
    place(picture, "explore losses")
    saves, largest = found.saves, found.largest
    rows = {
        "Interruptions a day": digits(sum(found.per_day.values())),
        "One interruption costs, on average": _or_unknown(largest.mean_seconds),
        f"It may cost, to keep {100 * largest.target:.0f} % of the time": _or_unknown(
            largest.seconds
        ),
        "Between two saves": _or_unknown(saves.every_seconds),
        "A save blocks training for": duration(saves.blocked_seconds),
        "Bytes of a checkpoint": decimal_bytes(saves.bytes),
        "A restart after a failure": duration(found.restart_seconds),
        "Rates of failures": found.source,
    }
    with st.expander("What interrupts the run, and how it saves", icon=":material/table:"):
        table([{"": name, "Value": value} for name, value in rows.items()])
    return [picture]


def _or_unknown(seconds: float | None) -> str:
    return "unknown" if seconds is None else duration(seconds)


def _offer(shown: View) -> None:
    """The section that is missing, from parts of the catalog."""
    failures, restarts = catalog_parts("failures"), catalog_parts("restarts")
    scenario = scenario_of(shown.asked)
    assert isinstance(scenario, Scenario), "a plan with an answer has a scenario"
    same = usual_failures(scenario.cluster.node.gpu.name).name
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


def _money(report: Report) -> list[Picture]:
    """Dollars by part, without failures and with them."""
    st.subheader("What is paid for")
    cost = report.bill.cost
    if cost is None:
        why = report.bill.unknown.get("cost_usd", "Nothing has a price.")
        st.info(f"{why} Set it on the page Plan.", icon=":material/payments:")
        return []
    rows = {"without failures": dict(cost)}
    share = report.kpis["goodput_fraction"]
    if share:
        rows["with failures"] = {name: usd / share for name, usd in cost.items()}
    picture = amounts(rows, "USD", "Cost", theme())
    place(picture, "explore cost")
    return [picture]


def _power(report: Report) -> list[Picture]:
    watts = report.bill.watts
    if watts is None:
        return []
    st.subheader("Power and energy")
    picture = amounts({"per GPU": watts.parts}, "W", "Mean power", theme())
    place(picture, "explore power")
    return [picture]


def _energy(report: Report) -> None:
    """Energy and CO2e, or why they are unknown."""
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
