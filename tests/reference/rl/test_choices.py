"""Rewards, prompts, temperature, repeats, PTX: each by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from reference.agentic.environment import Verdict
from reference.rl.batches import PtxSpec, ptx_batches, ptx_loader
from reference.rl.prompts import History, PromptsSpec, draw
from reference.rl.records import Ended, PromptGroup, RepeatSpec, repeats
from reference.rl.rewards import RewardsSpec, give, reward
from reference.rl.rollout import TemperatureSpec, temperature_at
from reference.rl.spec import load_rl, named, run_of
from reference.rl.tasks import RlTask, TasksSpec, tasks_of
from reference.rl.toys import Characters
from reference.text.loader import IGNORED
from tests.reference.rl.mini import spec
from tests.reference.rl.worlds import CHARACTERS, responses

TASKS = {f"t{at}": RlTask(f"t{at}", "", Characters("d"), level=at // 2) for at in range(6)}


@pytest.mark.parametrize(
    ("ended", "fields", "worth"),
    [
        ("over", {}, 0.0),
        ("over", {"of": "score"}, 0.75),
        ("budget", {"of": "score", "over_budget": 0.5}, 0.25),
        ("context", {"of": "score", "over_budget": 0.25}, 0.5),
        ("repeat", {"of": "score", "repeat": 1.0}, -0.25),
        ("steps", {"of": "score"}, 0.75),
    ],
)
def test_a_reward_is_the_verdict_less_penalties(
    ended: Ended, fields: dict[str, Any], worth: float
) -> None:
    one = responses(CHARACTERS)[0]
    one.ended, one.verdict = ended, Verdict({"a": True, "b": True, "c": True, "d": False})
    assert reward(one, RewardsSpec.model_validate(fields)) == worth


def test_shuffled_rewards_are_the_same_ones_elsewhere() -> None:
    groups = [PromptGroup(0, "", responses(CHARACTERS, 8))]
    for at, one in enumerate(groups[0].responses):
        one.verdict = Verdict({str(check): check < at for check in range(24)})
    give(groups, RewardsSpec(of="score"), 1)
    before = [one.reward for one in groups[0].responses]
    give(groups, RewardsSpec(of="score", shuffle=True), 1)
    after = [one.reward for one in groups[0].responses]
    assert sorted(after) == sorted(before) == before
    assert after != before


def test_even_draws_take_every_task_equally_often_and_in_another_order() -> None:
    history, given = History(), PromptsSpec(seed=3)
    drawn = [draw(TASKS, history, given, (), 0) for _ in range(24)]
    assert set(Counter(drawn).values()) == {4}
    assert sorted(drawn[:6]) == sorted(TASKS)
    assert drawn[:6] != drawn[6:12]


def test_no_task_is_drawn_while_it_is_under_way() -> None:
    history = History()
    taken = {"t0", "t1", "t2", "t3"}
    drawn = {draw(TASKS, history, PromptsSpec(select="failing"), taken, 0) for _ in range(20)}
    assert drawn == {"t4", "t5"}


def test_failing_tasks_are_drawn_in_proportion_to_their_failures() -> None:
    history = History()
    for at, name in enumerate(TASKS):
        history.add(name, 10, 10 if at < 3 else 5 if at == 3 else 0)
    drawn = Counter(draw(TASKS, history, PromptsSpec(select="failing"), (), 0) for _ in range(2000))
    total = 3 * 0.02 + 0.5 + 2
    assert drawn["t5"] / 2000 == pytest.approx(1 / total, rel=0.15)
    assert drawn["t3"] / 2000 == pytest.approx(0.5 / total, rel=0.2)
    assert sum(drawn[f"t{at}"] for at in range(3)) / 2000 < 0.05


def test_moderate_tasks_are_neither_solved_nor_hopeless() -> None:
    history = History()
    for name, right in zip(TASKS, (0, 10, 5, 1, 9, 10), strict=True):
        history.add(name, 10, right)
    given = PromptsSpec(select="moderate", least=0.1, most=0.9)
    drawn = Counter(draw(TASKS, history, given, (), 0) for _ in range(600))
    assert {name for name, count in drawn.items() if count > 100} == {"t2", "t3", "t4"}


def test_levels_join_one_after_the_other() -> None:
    given = PromptsSpec(level_every=10)
    for iteration, names in ((0, 2), (9, 2), (10, 4), (20, 6), (99, 6)):
        history = History()
        assert len({draw(TASKS, history, given, (), iteration) for _ in range(40)}) == names


def test_pass_at_k_is_the_estimate_over_what_was_tried() -> None:
    history = History()
    history.add("t0", 4, 1)
    assert history.pass_at(1, "t0") == 0.25
    assert history.pass_at(2, "t0") == pytest.approx(1 - 3 / 6)
    assert history.pass_at(8, "t0") is None
    assert history.share("t1") is None


def test_temperature_falls_from_the_first_to_the_last() -> None:
    line = TemperatureSpec(first=1.5, last=0.5, iterations=10)
    assert [temperature_at(line, at) for at in (0, 5, 10, 99)] == [1.5, 1.0, 0.5, 0.5]
    wave = TemperatureSpec(first=1.5, last=0.5, iterations=10, shape="cosine")
    assert temperature_at(wave, 5) == pytest.approx(1.0)
    assert temperature_at(wave, 2) > temperature_at(line, 2)
    assert temperature_at(TemperatureSpec(first=1.2, last=0.2), 50) == 1.2


def test_a_repeat_is_a_piece_that_fills_the_window_often_enough() -> None:
    given = RepeatSpec(window=12, times=3)
    assert repeats([9, 1, 2, 3, 4] + [1, 2, 3, 4] * 2, given)
    assert repeats([7] * 12, given)
    assert not repeats([7] * 11, given)
    assert not repeats([1, 2, 3, 4, 5, 6] * 2, given), "twice is not three times"
    assert not repeats([7] * 11 + [8], given)
    assert not repeats([7] * 99, RepeatSpec(window=0))


def test_ptx_weighs_all_its_targets_alike_and_together_its_weight(tmp_path: Path) -> None:
    given = spec(tmp_path, ptx={"weight": 0.3, "rows": 6})
    run = run_of(given)
    from reference.text.prepare import prepare  # noqa: PLC0415

    loader = ptx_loader(PtxSpec(weight=0.3, rows=6), run, prepare(run.data, run.model.vocab))
    batches = ptx_batches(PtxSpec(weight=0.3, rows=6), loader)
    weights = sum(weights.sum().item() for _, _, weights in batches)
    assert weights == pytest.approx(0.3)
    assert len(batches) == 2
    for _, targets, each in batches:
        assert ((each > 0) == (targets != IGNORED)).all()


@pytest.mark.parametrize("name", named())
def test_presets_load(name: str) -> None:
    loaded = load_rl(name)
    assert loaded.iterations
    assert tasks_of(loaded.tasks)


def test_a_goal_is_asked_for_in_three_words() -> None:
    goals = tasks_of([TasksSpec(source="sums", count=2, seed=3)]).values()
    said = [task.environment.opening.messages[0].content for task in goals]
    assert said == ["make 8", "make 19"]
