"""The critic in a run: ranks responses to prompts that cannot be verified, and is refined by those
to prompts that can.

The policy's own engine answers as the critic, held to one of two words: what counts is how likely
it finds each. It is asked between a rollout's end and the engine's sleep, when nobody is in line;
afterwards the engine forgets, so that nothing of it is left at a place where the run could stop.

Legend: B rows, T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp

import torch
from torch import Tensor

from reference.dialog import Dialog
from reference.generate.choose import choose
from reference.inference.engine import Engine
from reference.inference.request import EngineRequest
from reference.rl.critique.ranking import (
    FIRST,
    SECOND,
    Critic,
    CritiqueSpec,
    Rubric,
    by_generator,
    rubrics,
    win_rates,
)
from reference.rl.critique.verified import Outcome, agreement, dialogues, outcomes_of
from reference.rl.records import Asked, Response, opening
from reference.rl.tasks import Task
from reference.text.loader import IGNORED, Weighed
from reference.text.template import Segment, weighed
from reference.text.vocabulary import Vocabulary
from twin.errors import Problem, UsageError


@dataclass(frozen=True, slots=True)
class Critique:
    """Who ranks, by what, and which tasks."""

    spec: CritiqueSpec
    ask: Critic
    rubrics: tuple[Rubric, ...]
    task_rubrics: Mapping[str, Rubric]
    tasks: Mapping[str, Task]

    def ranked(self, groups: Sequence[Asked]) -> dict[tuple[int, int], float]:
        """What each response to a prompt that cannot be verified wins, by its key."""
        found: dict[tuple[int, int], float] = {}
        for asked in groups:
            task = self.tasks[asked.task]
            if task.verifiable:
                continue
            own = [self.task_rubrics[tag] for tag in task.tags if tag in self.task_rubrics]
            answers = [_answer(one) for one in asked.responses]
            question = _question(asked.responses[0])
            rates = win_rates(self.ask, question, answers, (*self.rubrics, *own))
            found |= {one.key: rate for one, rate in zip(asked.responses, rates, strict=True)}
        return found

    def verified(self, groups: Sequence[Asked], most: int, seed: int) -> list[Outcome]:
        """Comparisons that responses to verifiable prompts decide."""
        kept = [one for one in groups if self.tasks[one.task].verifiable and one.responses]
        pairs = [(_question(one.responses[0]), _answers(one)) for one in kept]
        return outcomes_of(pairs, most, seed)

    def agreement(self, groups: Sequence[Asked], seed: int) -> float | None:
        """Share of such comparisons that the critic decides alike."""
        return agreement(self.ask, self.verified(groups, self.spec.check, seed), self.rubrics)


def critique_of(
    spec: CritiqueSpec | None, engine: Engine, tasks: Mapping[str, Task]
) -> Critique | None:
    """The critic of a run, where it has one. Raises UsageError TW653 for tasks that it may not
    rank, or that nobody ranks, and TW652 for rubrics that are not there."""
    refuse(spec, tasks)
    if spec is None:
        return None
    ask = by_engine(engine) if spec.critic == "self" else by_generator(choose(spec.critic))
    chosen = tuple(one for file in spec.rubrics for one in rubrics(file))
    return Critique(spec, ask, chosen, {one.name: one for one in rubrics("task")}, tasks)


def refuse(spec: CritiqueSpec | None, tasks: Mapping[str, Task]) -> None:
    """Raises UsageError TW653: a critic ranks what no verifier can judge, and nothing else."""
    known = {one.kind for one in tasks.values() if one.verifiable}
    left = {one.kind for one in tasks.values() if not one.verifiable}
    if spec is None:
        if left:
            message = f"nobody can say what responses to `{min(left)}` are worth"
            fix = "add `critique: {}`, or leave these tasks out"
            raise UsageError([Problem("TW653", "critique", message, fix)])
        return
    wrong = [kind for kind in spec.kinds if kind in known or kind not in left]
    if wrong:
        why = "is verifiable" if wrong[0] in known else "is no kind of these tasks"
        message = f"`{wrong[0]}` {why}: a critic ranks what cannot be verified, nothing else"
        fix = f"one of: {', '.join(sorted(left))}" if left else "leave `kinds` out"
        raise UsageError([Problem("TW653", "critique.kinds", message, fix)])
    missing = sorted(left - {*spec.kinds}) if spec.kinds else []
    if missing:
        message = f"nobody can say what responses to `{missing[0]}` are worth"
        fix = f"add it: `kinds: [{', '.join(sorted(left))}]`"
        raise UsageError([Problem("TW653", "critique.kinds", message, fix)])
    if spec.weight and spec.critic != "self":
        message = f"the critic `{spec.critic}` is another model, which this run does not train"
        raise UsageError([Problem("TW653", "critique.weight", message, "set `critic: self`, or 0")])


@dataclass(frozen=True, slots=True)
class OneOf:
    """The next token is one of two: a constraint of the engine."""

    allowed_W: Tensor

    @property
    def structured(self) -> bool:
        """No string ends it."""
        return True

    def allowed(self) -> Tensor:
        """The two, [W] of bool."""
        return self.allowed_W

    def after(self, token: int) -> OneOf:
        """Nothing follows: one token is asked for."""
        del token
        return self


def by_engine(engine: Engine) -> Critic:
    """An engine that nobody else uses now as a critic; a question that its context has no room for
    is not asked, which is a tie."""

    def ask(dialogs: Sequence[Dialog]) -> list[float]:
        words = engine.vocabulary
        first, second = (words.ids([Segment(one)])[0] for one in (FIRST, SECOND))
        held = torch.zeros(words.words, dtype=torch.bool)
        held[[first, second]] = True
        said = [0.5] * len(dialogs)
        asked: dict[int, int] = {}
        for at, dialog in enumerate(dialogs):
            prompt = opening(words, dialog)
            if len(prompt) < engine.scheduler.capacity:
                request = EngineRequest(prompt, 1, constraint=OneOf(held))
                asked[engine.add(request)] = at
            if len(asked) >= engine.spec.queue:
                _drain(engine, asked, first, said)
        _drain(engine, asked, first, said)
        engine.scheduler.forget()
        return said

    return ask


def _drain(engine: Engine, asked: dict[int, int], first: int, said: list[float]) -> None:
    """Whichever of the two words was drawn: what it was drawn from tells both shares."""
    while not engine.idle:
        for update in engine.step():
            if update.told is not None:
                share = exp(update.told.sampled_logprob)
                said[asked[update.request]] = share if update.told.token == first else 1 - share
    asked.clear()


def beside(
    found: Sequence[Outcome], critique: Critique, words: Vocabulary, shape: tuple[int, int]
) -> list[Weighed]:
    """Micro-batches of comparisons with what the critic should say, all of them of the section's
    weight together; `shape` is rows of a micro-batch and tokens of a row at most."""
    rows = [_ids(words, one) for one in dialogues(found, critique.rubrics)]
    rows = [row for row in rows if len(row[0]) <= shape[1] + 1]
    count = sum(sum(learned[1:]) for _, learned in rows)
    parts = [rows[at : at + shape[0]] for at in range(0, len(rows), shape[0])]
    return [_batch(part, critique.spec.weight / count) for part in parts]


def _ids(words: Vocabulary, dialog: Dialog) -> tuple[list[int], list[bool]]:
    ids: list[int] = []
    learned: list[bool] = []
    for one in weighed(dialog):
        more = words.ids([one.segment])
        ids += more
        learned += [one.learned] * len(more)
    return ids, learned


def _batch(rows: Sequence[tuple[list[int], list[bool]]], each: float) -> Weighed:
    width = max(len(ids) for ids, _ in rows) - 1
    tokens_BT = torch.zeros(len(rows), width, dtype=torch.int64)
    targets_BT = torch.full((len(rows), width), IGNORED)
    for at, (ids, learned) in enumerate(rows):
        row = torch.tensor(ids)
        tokens_BT[at, : len(ids) - 1] = row[:-1]
        kept = torch.where(torch.tensor(learned[1:]), row[1:], IGNORED)
        targets_BT[at, : len(ids) - 1] = kept
    return tokens_BT, targets_BT, torch.where(targets_BT == IGNORED, 0.0, each)


def _question(response: Response) -> str:
    return "\n".join(one.content for one in response.dialog.messages if one.role == "user")


def _answer(response: Response) -> str:
    last = response.dialog.messages[-1]
    return last.content if last.role == "assistant" else ""


def _answers(asked: Asked) -> list[tuple[str, bool]]:
    return [
        (_answer(one), one.verdict is not None and one.verdict.success) for one in asked.responses
    ]
