"""The section Accuracy: published rows beside their predictions, without a simulation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.evidence.validate.made import answer
from tests.ui.test_pages import words
from twin.evidence.validate import shipped_answers
from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.baselines import BASELINES, Baseline
from twin.evidence.validate.pairs import RowPair
from twin.evidence.validate.shipped_answers import ShippedAnswers
from twin.evidence.validate.summary import Summary, sentence
from twin.ui import accuracy, published
from twin.ui.background import Pending
from twin.ui.workspace import Draft

PAGE = "evidence"
ROWS = (
    answer("close", 0.05, interval=(1.8, 2.4), experts=False, assumed=("no sequence ranks",)),
    answer("far", -0.5, gpu="A100-80GB", interval=(0.9, 1.1), experts=True, stack="nemo"),
    answer("fitted", 0.01, use="fit"),
    answer("untold", None),
    answer("peak", 0.1, metric="peak_device_bytes", measured=8e10, predicted=8.8e10),
    answer("kernel", 0.2, metric="kernel_seconds", category="kernel", use="fit"),
)


def made(rows: tuple[RowResult, ...] = ROWS, made_from: str = "") -> ShippedAnswers:
    """Answers as a file holds them; of this twin where nothing else is said."""
    others: dict[Baseline, tuple[RowResult, ...]] = {
        name: tuple(replace(one, predicted=3.0) for one in rows[:2]) for name in BASELINES
    }
    pairs = (RowPair(rows[0], rows[1], "recompute", ("full", "none"), "check"),)
    left_out = (replace(rows[5], predicted=2.2),)
    summary = Summary(len(rows), rows, others, pairs, left_out)
    return ShippedAnswers(summary, "2026-11-20", "0.1.0", made_from or shipped_answers.made_from())


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> ShippedAnswers:
    found = made()
    monkeypatch.setattr(shipped_answers, "shipped", lambda: found)
    return found


def box(app, label):
    kinds = (app.selectbox, app.multiselect, app.toggle, app.button)
    return next(one for kind in kinds for one in kind if one.label.startswith(label))


def cells(app):
    """Every cell of every table."""
    return {
        str(cell) for one in app.dataframe for column in one.value.to_numpy().T for cell in column
    }


def figure(app) -> str:
    """The dots, as the browser is told."""
    return app.get("plotly_chart")[0].proto.spec


def test_the_page_says_first_how_far_steps_are_missed(opened, answers) -> None:
    text = words(opened(page=PAGE))
    assert sentence(answers.summary) in text
    assert "median error 27.5 %" in text
    assert "Nothing that affects them has changed" in text


@pytest.mark.usefixtures("answers")
def test_every_figure_has_its_finding_as_text(opened) -> None:
    charts = opened(page=PAGE).get("plotly_chart")
    assert len(charts) == 3
    assert all(chart.proto.alt for chart in charts)


@pytest.mark.usefixtures("answers")
def test_rows_that_a_fit_has_seen_are_shown_on_demand_and_are_in_no_number(opened) -> None:
    app = opened(page=PAGE)
    assert "fitted" not in figure(app)
    before = words(app)
    app = box(app, "Show fitted rows").set_value(True).run()
    assert "fitted" in figure(app)
    assert words(app) == before


@pytest.mark.usefixtures("answers")
def test_what_is_looked_at_can_be_narrowed(opened) -> None:
    app = box(opened(page=PAGE), "GPU").set_value(["A100-80GB"]).run()
    assert "1 held-out rows: median error 50.0 %" in words(app)
    app = box(app, "GPU").set_value([]).run()
    app = box(app, "Model").set_value(["Dense"]).run()
    assert "far" not in cells(app)
    app = box(app, "Measurement").set_value("Peak memory").run()
    assert "No row of this choice has a prediction" in words(app)


@pytest.mark.usefixtures("answers")
def test_kernels_are_told_by_fits_that_have_not_seen_them(opened) -> None:
    app = box(opened(page=PAGE), "Measurement").set_value("Kernels").run()
    assert "1 rows have a median error of 10.0 %" in words(app)
    assert "kernel" in figure(app)


@pytest.mark.usefixtures("answers")
def test_worst_rows_pairs_and_reasons_are_tables(opened) -> None:
    app = opened(page=PAGE)
    found = cells(app)
    assert {"far", "-50.0 %", "nemo", "no sequence ranks", "nobody tells", "recompute"} <= found
    assert "in 0 of 1 pairs" in words(app)


@pytest.mark.usefixtures("answers")
def test_one_row_is_told_in_full(opened) -> None:
    app = box(opened(page=PAGE), "Row: click").set_value("far").run()
    text = words(app)
    assert "1.00 s predicted, 2.00 s measured: -50.0 %" in text
    assert "is outside the 80 % interval" in text
    assert "Stack: nemo" in text


def test_a_row_opens_as_a_plan(opened, monkeypatch) -> None:
    rows = tuple(row for row in published.read_suite() if row.id == "vtrain-check-multi-node-1")
    found = made((answer(rows[0].id, 0.1), *ROWS[1:]))
    monkeypatch.setattr(shipped_answers, "shipped", lambda: found)
    monkeypatch.setattr(published, "_rows", lambda: rows)
    app = box(opened(page=PAGE), "Row: click").set_value(rows[0].id).run()
    app = box(app, "Open its scenario").click().run()
    assert not app.exception
    assert app.query_params["plan"].startswith(rows[0].id)
    assert "Fits" in words(app)


def test_a_row_that_is_no_scenario_says_why(monkeypatch) -> None:
    row = replace(published.read_suite()[0], fields={"id": "odd", "system": {"gpu": "abacus"}})
    monkeypatch.setattr(published, "_rows", lambda: (row,))
    found = published.draft_of("odd")
    assert not isinstance(found, Draft)
    assert "abacus" in found.text


def test_answers_of_another_twin_say_so_and_can_be_made_again(opened, monkeypatch) -> None:
    old, new = made(made_from="older"), made((answer("close", 0.0), *ROWS[1:]))
    pending: Pending[ShippedAnswers] = Pending()
    monkeypatch.setattr(shipped_answers, "shipped", lambda: old)
    monkeypatch.setattr(accuracy, "again", lambda _: pending)
    app = opened(page=PAGE)
    assert "have changed since" in words(app)
    app = box(app, "Validate again").click().run()
    assert "being predicted again" in words(app)
    assert box(app, "Validate again").disabled
    pending.future.set_result(new)
    text = words(app.run())
    assert sentence(new.summary) in text
    assert "have changed since" not in text


def test_without_answers_the_page_offers_to_make_them(opened, monkeypatch) -> None:
    monkeypatch.setattr(shipped_answers, "shipped", lambda: None)
    app = opened(page=PAGE)
    assert "No answers ship" in words(app)
    assert box(app, "Validate again")


def test_predicting_again_notes_its_share_and_knows_what_it_was_made_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    row = next(one for one in published.read_suite() if one.category == "optimizer")
    monkeypatch.setattr(published, "read_suite", lambda: (row,))
    shares: list[float] = []
    found = published.predict(shares.append)
    assert isinstance(found, ShippedAnswers)
    assert shares == [1.0]
    assert not found.is_older
    shipped_answers.write(tmp_path / "answers.json", found)
    assert shipped_answers.read(tmp_path / "answers.json").summary.rows == 1
