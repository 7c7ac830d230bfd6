"""The rule-based policy on real tasks: some dialogues succeed, some fail, all by real steps."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from reference.agentic.code.environment import CodeEnvironment
from reference.agentic.code.generate import generate as task
from reference.agentic.code.generate import hints as code_hints
from reference.agentic.environment import Budget, Trajectory, play
from reference.agentic.software.environment import SoftwareEnvironment
from reference.agentic.software.generate import choose, make_many
from reference.agentic.software.generate import hints as patch_hints
from reference.dialog import dialog_json
from reference.generate.rules import RuleGenerator


def _code(seed: int) -> Trajectory:
    made = task(seed)
    return play(CodeEnvironment(made, hints=code_hints(made, seed)), RuleGenerator(), Budget())


def _software(seeds: range) -> list[Trajectory]:
    made = make_many([(*choose(seed), seed) for seed in seeds])
    worlds = [
        SoftwareEnvironment(one, hints=patch_hints(one, seed))
        for one, seed in zip(made, seeds, strict=True)
    ]
    return [play(one, RuleGenerator(), Budget()) for one in worlds]


def _tools(found: Trajectory) -> Counter[str]:
    return Counter(call.name for one in found.dialog.messages for call in one.calls)


def test_functions_are_tried_and_handed_in() -> None:
    found = [_code(seed) for seed in (6, 10)]
    assert [one.verdict.success for one in found] == [True, False]
    assert found[1].verdict.causes == ("wrong answer",)
    for one in found:
        assert one.ended == "user"
        assert _tools(one)["run_python"] >= 1


@pytest.mark.slow
def test_dialogues_are_played_again_the_same() -> None:
    for found, again in (
        *((_code(seed), _code(seed)) for seed in range(8)),
        *zip(_software(range(4)), _software(range(4)), strict=True),
    ):
        assert json.dumps(dialog_json(found.dialog)) == json.dumps(dialog_json(again.dialog))
        assert found == again


def test_repositories_are_read_changed_and_tested() -> None:
    (found,) = _software(range(6, 7))
    assert found.ended == "user"
    assert found.verdict.success
    assert {"list_files", "read_file", "edit_file", "run_tests"} <= set(_tools(found))


@pytest.mark.slow
def test_both_policies_succeed_and_fail() -> None:
    for name, found in (
        ("code", [_code(seed) for seed in range(100)]),
        ("software", _software(range(60))),
    ):
        good = sum(one.verdict.success for one in found)
        causes = Counter(cause for one in found for cause in one.verdict.causes)
        print(f"{name}: {good} of {len(found)} solved; {dict(causes)}")
        assert 0.2 < good / len(found) < 0.85
        assert all(one.ended == "user" for one in found)
