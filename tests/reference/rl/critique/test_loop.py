"""The critic in a run: for what cannot be verified only, and refined by what can."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from reference.agentic.environment import Verdict
from reference.dialog import Dialog, Message
from reference.rl.critique.ranking import (
    AnswerPair,
    Critique,
    CritiqueSpec,
    by_engine,
    by_generator,
    comparison_batches,
    dialog_of,
    refuse,
    rubrics,
)
from reference.rl.records import PromptGroup, Response, opening
from reference.rl.rewards import RewardsSpec, give
from reference.rl.run import learn_from
from reference.rl.tasks import RlTask, TasksSpec, tasks_of
from reference.rl.toys import Characters, open_prompts
from reference.text.loader import IGNORED
from tests.reference.inference.small import VOCABULARY, engine, model
from tests.reference.rl.critique.critics import INTENT, Judges
from tests.reference.rl.mini import spec
from tests.reference.rl.worlds import responses
from twin.errors import UsageError

OPEN = tasks_of([TasksSpec(source="open", count=2)])
CHARACTERS = tasks_of([TasksSpec(source="characters", count=1)])


@pytest.mark.parametrize(
    ("given", "tasks", "word"),
    [
        ({"kinds": ["characters"]}, {**OPEN, **CHARACTERS}, "is verifiable"),
        ({"kinds": ["poems"]}, OPEN, "no kind"),
        (None, OPEN, "nobody"),
        ({"critic": "http://localhost:1/v1", "weight": 0.1}, OPEN, "another model"),
    ],
)
def test_a_critic_ranks_what_cannot_be_verified_and_nothing_else(
    given: dict[str, Any] | None, tasks: dict[str, RlTask], word: str
) -> None:
    made = None if given is None else CritiqueSpec.model_validate(given)
    with pytest.raises(UsageError, match="TW653") as caught:
        refuse(made, tasks)
    assert word in str(caught.value)


def test_what_is_asked_rightly_is_not_refused() -> None:
    refuse(None, CHARACTERS)
    refuse(CritiqueSpec(), {**OPEN, **CHARACTERS})
    refuse(CritiqueSpec(kinds=("open",)), OPEN)
    assert not [one for one in open_prompts(9, 0) if one.verifiable]


def answered(tasks: dict[str, RlTask], texts: list[str], right: list[bool]) -> PromptGroup:
    """A group of the first task."""
    first = dict(list(tasks.items())[:1])
    found: list[Response] = responses(first, len(texts))
    for one, text, good in zip(found, texts, right, strict=True):
        said = (*one.dialog.messages, Message("assistant", text))
        one.dialog, one.ended = replace(one.dialog, messages=said), "over"
        one.verdict = Verdict({"right": good})
    return PromptGroup(0, next(iter(first)), found)


def critique(tasks: dict[str, RlTask], quality: Any, **fields: Any) -> Critique:
    task = {one.name: one for one in rubrics("task")}
    ask = by_generator(Judges(quality))
    return Critique(CritiqueSpec(**fields), ask, (INTENT,), task, tasks)


def test_win_rates_take_the_place_of_verdicts_where_there_is_nothing_to_verify() -> None:
    group = answered(OPEN, ["a", "bbb", "cc"], [True, True, True])
    ranked = critique(OPEN, lambda _, text: len(text)).ranked([group])
    assert list(ranked.values()) == [0.0, 1.0, 0.5]
    give([group], RewardsSpec(of="score"), 0, ranked)
    assert [one.reward for one in group.responses] == [0.0, 1.0, 0.5]
    group.responses[1].ended = "budget"
    give([group], RewardsSpec(over_budget=0.25), 0, ranked)
    assert group.responses[1].reward == 0.75
    known = answered(CHARACTERS, ["a", "bbb"], [True, False])
    judge = critique(CHARACTERS, lambda _, text: len(text), check=4)
    assert judge.ranked([known]) == {}
    assert judge.agreement([known], 0) == 0.0, "it would have taken the longer one, which is wrong"


def test_comparisons_beside_the_objective_weigh_what_the_section_says() -> None:
    group = answered(CHARACTERS, ["12345678", "aaaa", "87654321", "b"], [True, False, True, False])
    made = critique(CHARACTERS, lambda *_: 0.0, weight=0.3)
    found = made.verified([group], 8, 0)
    assert len(found) == 2
    batches = comparison_batches(found, made, VOCABULARY, (3, 400))
    assert [tokens.shape[0] for tokens, _, _ in batches] == [3, 1]
    assert sum(weights.sum().item() for _, _, weights in batches) == pytest.approx(0.3)
    for _, targets, weights in batches:
        learned = [row[row != IGNORED].tolist() for row in targets]
        assert {chr(one[0]) for one in learned} <= {"A", "B"}
        assert {len(one) for one in learned} == {2}, "the word, and the end of the message"
        assert ((weights > 0) == (targets != IGNORED)).all()
    assert comparison_batches(found, made, VOCABULARY, (3, 20)) == [], "too long for a row"
    other = answered(OPEN, ["a", "b"], [True, False])
    assert critique(OPEN, lambda *_: 0.0).verified([other], 8, 0) == []


def test_the_policys_engine_tells_how_likely_it_finds_each_word_and_forgets() -> None:
    made = engine(blocks=64, queue=3)
    pairs = [AnswerPair("?", "abc", "d", INTENT), AnswerPair("?", "e", "ff", INTENT)]
    asked = [dialog_of(one, swapped=swapped) for one in pairs for swapped in (False, True)]
    long = Dialog((Message("user", "x" * 5000),))
    said = by_engine(made)([*asked, long])
    assert said[4] == 0.5, "what has no room is not asked"
    assert by_engine(made)(asked) == said[:4]
    assert made.idle
    for dialog, share in zip(asked, said, strict=False):
        tokens = torch.tensor([opening(VOCABULARY, dialog)])
        with torch.no_grad():
            last = model()(tokens)[0, -1].double()
        assert share == pytest.approx(torch.softmax(last[[ord("A"), ord("B")]], 0)[0].item())
    assert 0 < said[0] < 1


def play(folder: Path, **fields: Any) -> Any:
    """A run of verifiable and of open tasks."""
    sections = {
        "tasks": [{"source": "characters", "count": 1}, {"source": "open", "count": 1}],
        "iterations": 1,
        "prompts": {"count": 2},
        "rollout": {"responses": 2},
        "critique": {"check": 4, "rubrics": [str(one_rubric(folder))]},
        "train": {"sequence": 400},
        "engine": {"blocks": 64},
    }
    both = {name: {**sections.get(name, {}), **one} for name, one in fields.items()}
    return learn_from(spec(folder, **{**sections, **both}))


def one_rubric(folder: Path) -> Path:
    file = folder / "rubrics.yaml"
    file.write_text("rubrics: [{name: only, asks: Better.}]\n")
    return file


@pytest.mark.slow
def test_a_run_ranks_open_prompts(tmp_path: Path) -> None:
    made = play(tmp_path, rewards={"of": "success"})
    (line,) = made.iterations
    assert line.groups == 2
    assert line.reward == pytest.approx(0.25), "one half of the open ones, nothing of the others"
    assert line.agreement is None, "nobody was right"


@pytest.mark.slow
def test_what_a_run_learns_as_a_critic_changes_it_and_equal_runs_stay_equal(
    tmp_path: Path,
) -> None:
    # At random 0.1 of the characters are right: a task that the first weights can do at times.
    tasks = [{"source": f"{__name__}:first_letter", "count": 1}, {"source": "open", "count": 1}]
    runs = [
        learn_from(
            spec(
                tmp_path,
                tasks=tasks,
                iterations=2,
                prompts={"count": 2},
                rollout={"responses": 8},
                critique={"check": 4, "rubrics": [str(one_rubric(tmp_path))], "weight": weight},
                train={"sequence": 400},
                engine={"blocks": 128},
            )
        )
        for weight in (0.0, 0.0, 2.0)
    ]
    one, again, taught = ([*made.model.state_dict().values()] for made in runs)
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one, taught, strict=True))
    assert runs[0].iterations[0].agreement is not None


@dataclass(frozen=True, slots=True)
class FirstLetter(Characters):
    """Right where the first byte of the answer is even: about half of what random weights write."""

    def judge(self, state: None, dialog: Dialog) -> Verdict:
        del state
        text = dialog.messages[-1].content
        return Verdict({"even": bool(text) and ord(text[0]) % 2 == 0})


def first_letter(count: int, seed: int) -> list[RlTask]:
    del seed
    return [RlTask(f"first-{at}", "first", FirstLetter("d")) for at in range(count)]
