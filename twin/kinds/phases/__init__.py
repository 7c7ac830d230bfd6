"""The whole run: phases one after the other, each with a layout of its own, to days, dollars,
checkpoints, data and a calendar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from twin.kinds.base import ALONE, Check, Kind, Run, Tools
from twin.scenario import Root, Scenario
from twin.spec.kpis import KPIS

if TYPE_CHECKING:
    from twin.kinds.phases.plan import PhasesPlan, PhasesTrace
    from twin.kinds.phases.report import PhasesReport
    from twin.reports.table import Block

OF_TOKENS: Final = (
    "days",
    "gpu_hours",
    "cost_usd",
    "energy_kwh",
    "energy_cost_usd",
    "co2_tonnes",
    "days_with_failures",
    "cost_usd_with_failures",
)
"""Key figures that grow with tokens, so that those of phases sum to those of the run."""
OF_THE_FULLEST: Final = ("peak_device_bytes", "peak_host_bytes_per_node")
"""Key figures of which the run has the largest."""
_TOTALS: Final = (
    *OF_TOKENS,
    *OF_THE_FULLEST,
    "goodput_fraction",
    "mfu",
)


class Phases(Kind):
    """A whole run in phases, each with a layout of its own."""

    name = "phases"
    title = "a run in phases"
    length = "days"
    headline = ("days", "cost_usd", "mfu")
    kpis = tuple(kpi for kpi in KPIS if kpi.key in _TOTALS)
    shown_kpis = ("days", "cost_usd", "days_with_failures", "gpu_hours", "peak_device_bytes", "mfu")
    subject = "the run is"
    parts = "phases"
    changes_most = "the phase that changes most is"
    refusals = {  # noqa: RUF012  declared as ClassVar in the base
        "seal": "a seal is of one step: seal a scenario of one of its phases",
        "attribution": "only a step's difference is split by edit",
    }

    def recognises(self, scenario: Root) -> bool:
        return isinstance(scenario, Scenario) and bool(scenario.phases) and not scenario.rl

    def scope(self, scenario: Root) -> str | None:
        assert isinstance(scenario, Scenario), "only training runs have phases"
        return (
            f"the step of the scenario itself, for all of its tokens. `twin run` answers its "
            f"{len(scenario.phases)} phases."
        )

    def plan(self, scenario: Scenario, tools: Tools = ALONE) -> PhasesPlan:
        from twin.kinds.phases.plan import plan

        return plan(scenario, tools.nearest)

    def simulate(self, program: PhasesPlan, tools: Tools = ALONE) -> PhasesTrace:
        from twin.kinds.phases.plan import simulate

        return simulate(program, tools)

    def shortage(self, plan: PhasesPlan) -> tuple[str, float | None]:
        over = [f"{check.name}: {check.words}" for check in plan.checks if not check.fits]
        memories = [check.memory for check in plan.checks if check.memory is not None]
        spare = min((one.budget - one.peak.peak_bytes for one in memories), default=None)
        return " ".join(over), spare

    def check(self, scenario: Scenario, tools: Tools = ALONE) -> Check:
        from twin.kinds.phases.tables import check_tables, check_words
        from twin.reports.cost import check_data
        from twin.reports.head import FITS, judge

        check_data(scenario)
        checks = self.plan(scenario, tools).checks
        fits = all(check.fits for check in checks)
        peaks = [check.memory.peak.peak_bytes for check in checks if check.memory]
        known: dict[str, float | bool | None] = {FITS: fits}
        known |= {"peak_device_bytes": max(peaks)} if len(peaks) == len(checks) else {}
        return Check(
            kind=self.name,
            scenario=scenario,
            fits=fits,
            expectations=judge(scenario.expect, known),
            warnings=tuple(dict.fromkeys(w for check in checks for w in check.warnings)),
            sentences=tuple(check_words(checks)),
            tables=tuple(check_tables(checks)),
            body={"phases": [check.to_json() for check in checks]},
            possible=all(check.possible for check in checks),
        )

    def sentences(self, run: Run) -> Sequence[str]:
        """The whole run, its generated data, then each phase that cannot run as written."""
        from twin.kinds.phases.tables import failing
        from twin.reports.cost import data_words

        report: PhasesReport = run.report
        generated = [data_words(report.generated)] if report.generated else []
        return (report.verdict, *generated, *failing(report))

    def tables(self, run: Run) -> Sequence[Block]:
        from twin.kinds.phases.tables import run_tables

        return run_tables(run.report)

    def part_seconds(self, report: PhasesReport) -> Mapping[str, float]:
        return {phase.name: 86400 * (phase.kpis.get("days") or 0.0) for phase in report.phases}


KIND: Final = Phases()
