"""Learning rates tuned with equal effort."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import inf, log2, sqrt
from pathlib import Path

import pytest

from reference.config import RunSpec
from reference.studies import optimizers
from reference.studies.optimizers import at_end, best, candidate, tune
from reference.studies.runs import RunOutcome, nano
from reference.studies.study import Workplace
from tests.reference.studies.runs_of import outcome

Rates = Sequence[tuple[str, float]]
OPTIMA = {"left": 1e-3, "inside": 4e-3}


def bowl_at(optimum: float, rate: float) -> float:
    """A loss with one minimum over the logarithm of the rate."""
    return 3 + log2(rate / optimum) ** 2


def bowl(asked: Rates) -> dict[tuple[str, float], RunOutcome]:
    """Outcomes with the minima of `OPTIMA`."""
    return {(name, rate): outcome(bowl_at(OPTIMA[name], rate)) for name, rate in asked}


def test_a_best_rate_at_an_end_is_followed_until_it_lies_inside() -> None:
    tried = tune(["left", "inside"], [2e-3, 4e-3, 8e-3], bowl, rounds=5)
    assert best(tried["left"]) == pytest.approx(1e-3)
    assert not at_end(tried["left"])


def test_nobody_gets_more_runs_than_another() -> None:
    tried = tune(["left", "inside"], [2e-3, 4e-3, 8e-3], bowl, rounds=5)
    assert len(tried["left"]) == len(tried["inside"]) == 5


def test_no_run_is_added_where_all_best_rates_lie_inside() -> None:
    assert len(tune(["inside"], [2e-3, 4e-3, 8e-3], bowl, rounds=5)["inside"]) == 3


def test_rounds_bound_the_effort() -> None:
    assert len(tune(["left"], [8e-3, 16e-3], bowl, rounds=1)["left"]) == 3


@pytest.mark.parametrize("adamw", [5e-4, 1e-3, 4e-3])
@pytest.mark.parametrize("muon", [1.6e-2, 6.4e-2, 0.12])
def test_the_grid_of_the_study_grows_until_every_best_rate_is_inside(
    adamw: float, muon: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    optima = {"adamw": adamw, "muon": muon, "muonclip": muon}

    def train_all(runs: Mapping[Hashable, RunSpec], place: Workplace) -> dict[Hashable, RunOutcome]:
        del place
        specs = {name: run.optimizer for name, run in runs.items()}
        return {name: outcome(bowl_at(optima[spec.kind], spec.lr)) for name, spec in specs.items()}

    monkeypatch.setattr(optimizers, "train_all", train_all)
    place = Workplace(tmp_path, 1, print)
    found = optimizers.find(
        nano(quick=True, steps=20), optimizers.RATES, optimizers.ROUNDS, optimizers.PARTS, place
    )
    for kind in optimizers.KINDS:
        assert min(found.tried[kind]) < found.rate(kind) < max(found.tried[kind])
        assert optima[kind] / 2 <= found.rate(kind) <= optima[kind] * 2
        assert len(found.tried[kind]) == len(found.tried["adamw"])
        assert not at_end(found.tried[kind])


def test_a_best_rate_that_stays_at_an_end_is_said_to() -> None:
    kinds: list[optimizers.Kind] = ["adamw", "muon"]

    def falling(
        asked: Sequence[tuple[optimizers.Kind, float]],
    ) -> dict[tuple[optimizers.Kind, float], RunOutcome]:
        return {
            (kind, rate): outcome(3 - rate if kind == "muon" else bowl_at(4e-3, rate))
            for kind, rate in asked
        }

    tried = tune(kinds, [2e-3, 4e-3, 8e-3], falling, rounds=2)
    assert max(tried["muon"]) == pytest.approx(32e-3)
    assert (at_end(tried["muon"]), at_end(tried["adamw"])) == (True, False)


def test_rates_that_diverge_bound_those_that_do_not() -> None:
    def edge(asked: Rates) -> dict[tuple[str, float], RunOutcome]:
        return {(name, rate): outcome(3 - rate if rate < 0.01 else inf) for name, rate in asked}

    tried = tune(["steep"], [2e-3, 4e-3, 8e-3], edge, rounds=5)
    assert sorted(tried["steep"]) == pytest.approx([2e-3, 4e-3, 8e-3, 16e-3])
    assert best(tried["steep"]) == pytest.approx(8e-3)


def test_the_next_candidate_of_a_best_rate_inside_lies_towards_its_better_neighbour() -> None:
    tried = {1e-3: outcome(3.5), 2e-3: outcome(3.0), 4e-3: outcome(3.1)}
    assert candidate(tried) == pytest.approx(sqrt(2e-3 * 4e-3))


def test_a_run_that_diverged_is_never_the_best() -> None:
    diverged = outcome(held_out=[(10, float("nan"))])
    object.__setattr__(diverged, "ended", "diverged")
    assert best({1e-3: diverged, 2e-3: outcome(9.0)}) == 2e-3
