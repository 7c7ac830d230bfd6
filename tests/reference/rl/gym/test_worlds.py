"""Families whose verifiers run programs or simulated applications, and the optional package."""

from __future__ import annotations

import sys

import pytest

from reference.agentic.environment import judged
from reference.rl.gym.environments import family, item, said
from twin.errors import UsageError


@pytest.mark.parametrize("level", [1, 2])
def test_errands_in_the_store_need_the_right_calls(level: int) -> None:
    for seed in range(6):
        made = item("errands", level, seed)
        assert judged(made.environment, made.solve()).success
        assert len(made.solve()) > 1
        tricks = made.hacks()
        assert "answers without a call" in tricks
        for name, turns in tricks.items():
            assert not judged(made.environment, turns).success, name


def test_one_line_programs_are_judged_by_hidden_tests() -> None:
    made = item("programs", 1, 0)
    assert judged(made.environment, made.solve()).success
    text = made.solve()[0].text
    assert judged(made.environment, said(f"Here it is:\n```python\n{text}\n```")).success
    tricks = made.hacks()
    for name in ("hard coded examples", "empty answer", "override of equality"):
        assert not judged(made.environment, tricks[name]).success, name


def test_a_repository_is_mended_by_one_call_at_level_one() -> None:
    made = item("repository", 1, 0)
    assert [one["function"]["name"] for one in made.environment.opening.tools] == ["edit_file"]
    assert judged(made.environment, made.solve()).success
    assert not judged(made.environment, made.hacks()["claim of success"]).success


@pytest.mark.slow
@pytest.mark.parametrize("name", ["errands", "programs", "repository"])
def test_at_every_level_the_oracle_earns_one_and_every_trick_nothing(name: str) -> None:
    for level in range(1, len(family(name).levels) + 1):
        for seed in range(2):
            made = item(name, level, seed)
            assert judged(made.environment, made.solve()).success, (level, seed)
            for trick, turns in made.hacks().items():
                assert not judged(made.environment, turns).success, (level, seed, trick)


def test_without_reasoning_gym_the_family_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(UsageError, match="TW651"):
        item("reasoning", 1, 0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_reasoning_gym_scores_its_own_answers_and_no_tricks() -> None:
    pytest.importorskip("reasoning_gym", reason="an optional package")
    for level in range(1, len(family("reasoning").levels) + 1):
        for seed in range(12):
            made = item("reasoning", level, seed)
            assert judged(made.environment, made.solve()).success, made.tags
            for trick, turns in made.hacks().items():
                assert not judged(made.environment, turns).success, (made.tags, trick)
            assert item("reasoning", level, seed).environment.opening == made.environment.opening
