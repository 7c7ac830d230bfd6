"""Seals are written once, refused when changed, and found again; checks and hit rates by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import exp, log
from pathlib import Path

import numpy as np
import pytest

from twin.errors import UsageError
from twin.evidence.live.seal import Checked, NoInterval, checked, digest_of, reach, read, seal
from twin.evidence.live.seals import (
    add,
    basis,
    check,
    counting,
    find,
    hit_rate,
    keep,
    load,
    read_seals,
    residuals,
    wilson,
)
from twin.evidence.live.step_time_estimate import StepTime

DAY = timedelta(days=1)
SEALED = datetime(2027, 1, 1, tzinfo=UTC)


def held(one, seconds, run="run", began: datetime | None = SEALED + DAY, now=SEALED + 2 * DAY):
    """A check of a seal against a run with this median."""
    return check(one, StepTime(seconds, None, 100), run, began, now)


def codes(error: pytest.ExceptionInfo[UsageError]) -> list[str]:
    return [one.code for one in error.value.problems]


def test_a_seal_says_what_the_report_says(answer) -> None:
    one = seal(answer)
    said, report = one.prediction, answer.report
    assert said.hash == report.hash
    assert said.kpis == report.kpis
    assert one.seconds == report.step_ns / 1e9
    assert said.tokens_per_step == 8 * 2048
    assert said.steps == round(1e12 / (8 * 2048))
    assert [stage.stage for stage in said.stages] == [0, 1]
    for stage, role in zip(said.stages, report.roles, strict=True):
        assert sum(stage.breakdown_seconds.values()) == pytest.approx(one.seconds)
        assert stage.breakdown_seconds["bubble"] == role.breakdown_ns["bubble"] / 1e9
    assert {"F", "B"} <= {action.name for action in said.actions}


def test_without_residuals_no_interval_is_made_up(answer) -> None:
    one = seal(answer)
    assert isinstance(one.prediction.basis, NoInterval)
    assert one.interval is None
    assert "no-interval" in one.prediction.warnings


def test_a_seal_is_written_once_and_read_as_it_was(sealed, seals: Path) -> None:
    one, path, new = keep(sealed(2.0, 1.1))
    assert new
    assert path.parent == seals
    assert path.name == f"2027-01-01-{one.digest[:8]}-small.json"
    assert path.stat().st_mode & 0o222 == 0
    assert load(path) == one
    assert load(path).to_json() == json.loads(path.read_text())


def test_the_same_prediction_finds_the_older_seal(sealed) -> None:
    first, path, _ = keep(sealed(2.0, 1.1))
    before = path.read_bytes()
    again, same_path, new = keep(sealed(2.0, 1.1, when=SEALED + DAY))
    assert (again, same_path, new) == (first, path, False)
    assert path.read_bytes() == before
    _, other, fresh = keep(sealed(2.1, 1.1))
    assert fresh
    assert other != path


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"step_seconds": 2.0', '"step_seconds": 1.9'),
        ('"sealed": "2027-01-01', '"sealed": "2026-01-01'),
        ('"name": "small"', '"name": "large"'),
        ('"kind": "seal"', '"kind": "seal", "further": 1'),
    ],
)
def test_a_changed_seal_is_refused_by_name(sealed, old: str, new: str) -> None:
    _, path, _ = keep(sealed(2.0, 1.1))
    path.chmod(0o644)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(UsageError) as caught:
        load(path)
    assert codes(caught) == ["TW342"]
    assert path.name in str(caught.value)
    found = read_seals()
    assert found.seals == ()
    assert [one.code for one in found.refused] == ["TW342"]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"kind": "seal"}', "nothing", '{"a": NaN}', "[" * 99999]
)
def test_what_is_no_seal_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load(path)
    assert codes(caught) == ["TW341"]


def test_a_digest_is_over_everything_else(sealed) -> None:
    document = sealed(2.0).to_json()
    assert digest_of(document) == document["digest"]
    for key in document:
        if key != "digest":
            assert digest_of({**document, key: "other"}) != document["digest"]
    data = json.dumps({**document, "version": 2}).encode()
    with pytest.raises(UsageError):
        read(data, "x")


def test_a_seal_is_found_by_file_digest_and_name(sealed) -> None:
    one, path, _ = keep(sealed(2.0))
    keep(sealed(3.0))
    assert find(str(path)) == find(one.digest[:8]) == find(path.name) == one
    with pytest.raises(UsageError) as caught:
        find("2027-01-01")  # both
    assert codes(caught) == ["TW343"]
    with pytest.raises(UsageError) as caught:
        find("nothing")
    assert codes(caught) == ["TW343"]


def test_nothing_is_written_over(sealed, seals: Path) -> None:
    one = sealed(2.0)
    seals.mkdir()
    (seals / one.filename).write_text("something else")
    with pytest.raises(UsageError) as caught:
        keep(one)
    assert codes(caught) == ["TW344"]
    assert (seals / one.filename).read_text() == "something else"


def test_a_hit_lies_in_the_interval_and_its_ends_count(sealed) -> None:
    one = sealed(2.0, 1.25)  # 1.6 to 2.5
    assert [held(one, s).hit for s in (1.59, 1.6, 2.0, 2.5, 2.51)] == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert held(sealed(2.0), 2.0).hit is None


def test_the_hit_rate_by_hand(sealed) -> None:
    """Ten seals: 4 hits, 1 miss; 1 without an interval; 1 sealed late; 1 of an unknown beginning; 2
    not checked."""
    some = [sealed(2.0 + n / 100, 1.1) for n in range(9)]
    bare = sealed(3.0)
    checks = [held(one, one.seconds) for one in some[:4]]
    checks += [held(some[4], 9.0), held(bare, 3.0)]
    checks += [held(some[5], 2.0, began=SEALED - DAY), held(some[6], 2.0, began=None)]
    found = hit_rate([*some, bare], checks)
    assert (found.hits, found.counted, found.sealed) == (4, 5, 10)
    assert (found.without_interval, found.late, found.unchecked) == (1, 2, 2)
    assert found.share == 0.8
    assert found.interval == wilson(4, 5)


def test_a_miss_cannot_be_checked_away(sealed) -> None:
    """The first run counts, with its latest check."""
    one = sealed(2.0, 1.1)
    checks = [held(one, 2.0, "a"), held(one, 9.0, "a"), held(one, 2.0, "b")]
    assert counting(checks) == checks[1]
    assert hit_rate([one], checks).hits == 0
    late = held(one, 9.0, "z", began=SEALED - DAY)
    assert counting([late, checks[2]]) == checks[2]
    assert counting([late]) is None


@pytest.mark.parametrize(
    ("hits", "counted", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (8, 10, 0.4902, 0.9433),
        (10, 10, 0.7225, 1.0),
        (81, 263, 0.2553, 0.3662),
    ],
)
def test_wilsons_interval_is_the_published_one(hits, counted, low, high) -> None:
    """81 of 263: Newcombe, Statistics in Medicine 17, 1998, table I."""
    assert wilson(hits, counted) == pytest.approx((low, high), abs=1e-4)
    assert wilson(0, 0) is None


def test_a_check_is_added_once_and_lines_of_others_are_kept(sealed, seals: Path) -> None:
    one, _, _ = keep(sealed(2.0, 1.1))
    assert add(held(one, 2.0))
    assert not add(held(one, 2.0, now=SEALED + 9 * DAY))
    assert add(held(one, 2.05))
    path = seals / "checks.jsonl"
    text = path.read_text()
    path.write_text(f'{text}{{"version": 9}}\n{text.splitlines()[0][:50]}')
    found = read_seals()
    assert [row.measured for row in found.of(one)] == [2.0, 2.05]
    assert [one.code for one in found.refused] == ["TW345"]  # the torn last line is no check yet


def test_earlier_checks_give_the_next_interval(sealed) -> None:
    """Five residuals: the ceil(0.8 x 6) = fifth smallest, 0.3; of three there is none."""
    errors = [0.1, -0.2, 0.05, 0.3, -0.01]
    assert reach(errors) == 0.3
    assert reach(errors[:3]) is None
    assert reach(errors[:4]) == 0.3  # ceil(0.8 x 5) = 4
    for n, error in enumerate(errors):
        one, _, _ = keep(sealed(2.0 + n / 100))
        add(held(one, one.seconds * exp(error), run=str(n)))
    found = basis("a100-megatron", "events")
    assert found is not None
    assert log(found.factor) == pytest.approx(0.3)
    assert len(found.seals) == 5
    assert basis("another", "events") is None


def test_such_intervals_hold_eight_of_ten() -> None:
    """Of n = 9: 8 in 10 exactly, whatever the distribution."""
    rng = np.random.default_rng(0)
    errors = rng.standard_t(3, size=(4000, 10)) * 0.1
    hits = [abs(row[-1]) <= (reach(row[:-1].tolist()) or 0) for row in errors]
    assert np.mean(hits) == pytest.approx(0.8, abs=0.03)
    assert checked({str(n): 0.1 for n in range(3)}) is None


def test_an_interval_of_the_step_is_one_of_what_follows_from_it(answer) -> None:
    found = Checked(1.25, ("a", "b", "c", "d")).intervals(answer.report)
    kpis = answer.report.kpis
    for key in ("step_seconds", "days", "cost_usd", "mfu", "tokens_per_second"):
        assert found[key] == pytest.approx((kpis[key] / 1.25, kpis[key] * 1.25))
    assert found["peak_device_bytes"] is None
    assert found["bubble_fraction"] is None


def test_residuals_are_of_the_check_that_counts(sealed) -> None:
    one = sealed(2.0, 1.1)
    assert residuals([one], [held(one, 2.2)]) == {one.digest: pytest.approx(log(1.1))}
    assert residuals([one], []) == {}
    assert residuals([one], [replace(held(one, 2.2), blind=False)]) == {}
