"""A small scenario, its answer, and folders of seals and runs that every test has to itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.browser.conftest import address, visitor
from tests.cli.conftest import SMALL
from twin.answers import Run, ask
from twin.evidence.live.seal import Checked, Seal, digest_of, seal
from twin.loading import load
from twin.reports import kpi_intervals
from twin.reports.interval import Known

__all__ = ["address", "visitor"]


@pytest.fixture(autouse=True)
def seals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of seals; it does not exist yet."""
    monkeypatch.setenv("TWIN_SEALS", str(tmp_path / "seals"))
    return tmp_path / "seals"


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have no interval of their own here: what is asked is what comes in their place."""
    monkeypatch.setattr(kpi_intervals, "shipped", Known)


@pytest.fixture(scope="session")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A small scenario, answered."""
    path = tmp_path_factory.mktemp("scenario") / "small.yaml"
    path.write_text(SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kpi_intervals, "shipped", Known)
        return ask(load(path), cache=False)


@pytest.fixture(scope="session")
def bare(answer: Run) -> Seal:
    """Its seal, without an interval."""
    return seal(answer)


@pytest.fixture
def sealed(bare: Seal) -> Callable[..., Seal]:
    """Seals that predict so many seconds, with an interval to a factor to both sides."""

    def make(
        seconds: float | None = None,
        factor: float | None = None,
        when: datetime = datetime(2027, 1, 1, tzinfo=UTC),
        tokens: int = 100,
    ) -> Seal:
        said = bare.prediction
        step = bare.seconds if seconds is None else seconds
        if factor is not None:
            span = step / factor, step * factor
            basis = Checked(factor, ("a", "b", "c", "d"))
            said = replace(said, basis=basis, intervals={**said.intervals, "step_seconds": span})
        kpis = {**said.kpis, "step_seconds": step}
        said = replace(said, kpis=kpis, tokens_per_step=tokens)
        stamped = when.isoformat(timespec="seconds")
        whole = replace(bare, sealed=stamped, prediction=said)
        return replace(whole, digest=digest_of(whole.to_json()))

    return make
