"""The whole run is the sum of its phases, and a run of one phase is the plain run."""

from __future__ import annotations

from datetime import date
from math import ceil
from pathlib import Path

import pytest

from tests.figures.made import traces
from tests.kinds.phases.conftest import TWO, Write
from twin.answers import ask
from twin.engine.program import Program
from twin.engine.trace import Trace
from twin.kinds.base import Tools
from twin.kinds.phases.figures import calendar
from twin.kinds.phases.report import DEFAULT_EVERY, OF_TOKENS, PhasesReport
from twin.kinds.step import Step
from twin.loading import load
from twin.scenario import Scenario

DAY = 86400.0
FAILURES = """\
goodput:
  failures: meta-rsc1-a100
  restart: meta-rsc
  checkpoint: {every: 20min, storage: {per_node: 1GB/s, total: 100GB/s}}
  seeds: 10
"""


def answer(scenario: Scenario) -> PhasesReport:
    return ask(scenario, cache=False).report


def answered(path: Path, *sets: str) -> PhasesReport:
    return answer(load(path, sets))


def test_totals_are_the_sum_of_tokens_over_batch_times_step(two: Scenario) -> None:
    found = answer(two)
    batches = [two.phase(at).train.global_batch for at in (0, 1)]
    steps = [phase.report.step_ns / 1e9 for phase in found.phases if phase.report]
    seconds = [t / b * s for t, b, s in zip(two.phase_tokens, batches, steps, strict=True)]
    assert found.kpis["days"] == pytest.approx(sum(seconds) / DAY, rel=1e-12)
    assert found.kpis["gpu_hours"] == pytest.approx(16 * sum(seconds) / 3600, rel=1e-12)
    assert found.kpis["cost_usd"] == pytest.approx(2 * 16 * sum(seconds) / 3600, rel=1e-12)
    assert steps[0] != steps[1]


@pytest.mark.parametrize("failures", [FAILURES, ""], ids=["with failures", "without"])
def test_one_phase_is_the_plain_run(write: Write, failures: str) -> None:
    whole = "schema: 1\nextends: plain.yaml\nphases: [{name: all, tokens: 1T}]\n" + failures
    found = answered(write(whole))
    plain = ask(load(write(whole), ["phases=[]"]), cache=False).report
    for key in OF_TOKENS:
        assert found.kpis[key] == plain.kpis[key], key
        assert found.intervals[key] == plain.intervals[key], key
    assert found.kpis["mfu"] == pytest.approx(plain.kpis["mfu"], rel=1e-12)
    assert (found.kpis["days_with_failures"] is not None) == bool(failures)


def test_checkpoints_data_and_days_by_hand(write: Write) -> None:
    """Phase one: 5,000 steps; a checkpoint every 30 min and one at the end, so their number is
    seconds / 1800, rounded up. 51,200 words are two bytes a token: 5,000 x 8 x 2,048 x 2 = 164 MB.
    A checkpoint of 22B parameters is 2 bytes of weights and 12 of Adam's states each."""
    found = answered(write(), "start=2026-12-30")
    one, other = found.phases
    assert one.report is not None
    assert one.saves is not None
    seconds = 5000 * one.report.step_ns / 1e9
    assert one.steps == 5000
    assert one.saves.number == ceil(seconds / DEFAULT_EVERY)
    assert one.saves.bytes == pytest.approx(14 * 22e9, rel=0.05)
    assert one.data_bytes == 5000 * 8 * 2048 * 2
    assert found.data_bytes == 163_840_000 * 2
    first, second = (dates.without_failures for dates in found.dates)
    assert first is not None
    assert second is not None
    days = pytest.approx(seconds / DAY)
    assert (first.begin, first.end, second.begin) == (0.0, days, days)
    assert second.to_json(date(2026, 12, 30))["from"] == "2026-12-30"
    assert second.to_json(None)["from"] is None
    assert other.saves is not None
    assert found.checkpoints == one.saves.number + other.saves.number


def test_a_day_of_the_calendar_is_the_day_on_which_a_phase_ends(write: Write) -> None:
    found = answered(write(), "start=2026-12-30", "train.tokens=20G", "phases.1.until=20G")
    span = found.dates[1].without_failures
    assert span is not None
    assert span.end > 3
    expected = date.fromordinal(date(2026, 12, 30).toordinal() + int(span.end)).isoformat()
    assert found.to_json()["calendar"][1]["without_failures"]["to"] == expected


def test_checkpoints_come_as_often_as_goodput_says(write: Write) -> None:
    found = answered(write(TWO + FAILURES))
    one = found.phases[0]
    assert one.saves is not None
    assert one.saves.every_seconds == pytest.approx(1200, rel=0.02)
    assert found.interval_source == "goodput.checkpoint"
    days, failed = found.kpis["days"], found.kpis["days_with_failures"]
    assert days is not None
    assert failed is not None
    assert failed > days
    assert failed == pytest.approx(sum(p.kpis["days_with_failures"] or 0 for p in found.phases))


def test_a_phase_without_training_costs_nothing_and_is_played(write: Write) -> None:
    without = answered(write())
    text = TWO + "  - {name: another, steps: 0, parallel: {pipeline: 1}}\n"
    found = answered(write(text))
    last = found.phases[2]
    assert last.report is not None
    assert last.check.fits
    assert (last.kpis["days"], last.kpis["cost_usd"]) == (0.0, 0.0)
    assert last.saves is not None
    assert last.saves.number == 0
    assert found.kpis["days"] == without.kpis["days"]


def test_phases_with_one_step_share_one_answer(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Program] = []

    def counted(self: Step, program: Program, tools: Tools) -> Trace:
        calls.append(program)
        return simulate(self, program, tools)

    simulate = Step.simulate
    monkeypatch.setattr(Step, "simulate", counted)
    text = TWO.replace("    steps: 5000\n", "    steps: 2000\n  - name: more\n    steps: 3000\n")
    found = answered(write(text))
    assert len(found.phases) == 3
    assert len(calls) == 2


ODD = (
    "phases.1.train.global_batch=9seq",
    "phases.1.parallel.pipeline=1",
    "phases.1.parallel.micro_batch=2",
)
"""Nine sequences on two data ranks, in micro-batches of two: eight or twelve would do."""
LARGE = "phases.1.parallel.tensor=1"
"""All matrices of a stage on one GPU."""


def test_an_impossible_phase_is_costed_as_the_nearest_batch(write: Write) -> None:
    found = answered(write(), *ODD)
    phase = found.phases[1]
    assert not phase.check.possible
    assert not found.fits
    assert phase.costed == "nearest"
    assert phase.check.problems[0].origin is not None
    assert phase.check.problems[0].origin.file == "--set"
    near = phase.check.nearest[0]
    assert near.overrides == {"train.global_batch": "8seq"}
    right = answered(write(), *ODD, "phases.1.train.global_batch=8seq")
    assert right.fits
    assert found.kpis == right.kpis


def test_a_phase_that_does_not_fit_is_costed_as_one_that_does(write: Write) -> None:
    found = answered(write(), LARGE)
    phase = found.phases[1]
    assert phase.check.possible
    assert not phase.check.fits
    assert phase.costed == "nearest"
    assert phase.report is not None
    assert phase.report.fits


def test_where_nothing_near_fits_totals_are_unknown(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twin.answers.answer.nearest_fit", lambda _: ())
    found = answered(write(), *ODD)
    assert found.phases[1].costed is None
    assert found.kpis["days"] is None
    assert found.checkpoints is None
    assert [dates.without_failures is None for dates in found.dates] == [False, True]
    assert "unknown" in calendar(found, "light").title


def test_the_picture_shows_a_bar_per_phase_from_its_first_day(two: Scenario) -> None:
    found = answer(two)
    picture = calendar(found, "dark")
    assert [row["Phase"] for row in picture.table] == ["short", "long"]
    (bars,) = [trace for trace in traces(picture.figure) if trace.type == "bar"]
    spans = [dates.without_failures for dates in found.dates]
    assert list(bars.base) == [span.begin for span in spans if span]
    assert list(bars.x) == [span.end - span.begin for span in spans if span]
    assert "days without failures" in picture.title
