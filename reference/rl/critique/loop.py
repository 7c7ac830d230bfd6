"""The critic of a run: it ranks responses to prompts that cannot be verified, and learns from those
to prompts that can.

The policy's own engine answers as the critic, held to one of two words; what counts is the
likelihood of each. It is asked between a rollout's end and the engine's sleep, when the engine is
idle; afterwards the engine forgets, so that nothing is left at a place where the run can stop.
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
from reference.rl.batches import evenly_weighed, padded
from reference.rl.critique.ranking import (
    FIRST,
    SECOND,
    Critic,
    CritiqueSpec,
    Rubric,
    VerifiedPair,
    agreement,
    by_generator,
    comparison_dialogs,
    rubrics,
    verified_pairs,
    win_rates,
)
from reference.rl.records import PromptGroup, Response, opening
from reference.rl.tasks import RlTask
from reference.text.loader import Weighed
from reference.text.template import Segment, weighed
from reference.text.vocabulary import Vocabulary
from twin.errors import Problem, UsageError


@dataclass(frozen=True, slots=True)
class Critique:
    """The critic, its rubrics, and the tasks."""

    spec: CritiqueSpec
    ask: Critic
    rubrics: tuple[Rubric, ...]
    task_rubrics: Mapping[str, Rubric]
    tasks: Mapping[str, RlTask]

    def ranked(self, groups: Sequence[PromptGroup]) -> dict[tuple[int, int], float]:
        """The win rate of each response to a prompt that cannot be verified, by its key."""
        ranked: dict[tuple[int, int], float] = {}
        for group in groups:
            task, responses = self.tasks[group.task], group.responses
            if task.verifiable:
                continue
            own = [self.task_rubrics[tag] for tag in task.tags if tag in self.task_rubrics]
            answers = [_answer(response) for response in responses]
            question = _question(responses[0])
            rates = win_rates(self.ask, question, answers, (*self.rubrics, *own))
            ranked |= {response.key: rate for response, rate in zip(responses, rates, strict=True)}
        return ranked

    def verified(self, groups: Sequence[PromptGroup], most: int, seed: int) -> list[VerifiedPair]:
        """Pairs of a right and a wrong response to verifiable prompts."""
        kept = [group for group in groups if self.tasks[group.task].verifiable and group.responses]
        questions = [_question(group.responses[0]) for group in kept]
        answers = [[(_answer(each), each.success) for each in group.responses] for group in kept]
        return verified_pairs(zip(questions, answers, strict=True), most, seed)

    def agreement(self, groups: Sequence[PromptGroup], seed: int) -> float | None:
        """Share of such pairs whose right response the critic prefers."""
        return agreement(self.ask, self.verified(groups, self.spec.check, seed), self.rubrics)


def critique_of(
    spec: CritiqueSpec | None, engine: Engine, tasks: Mapping[str, RlTask]
) -> Critique | None:
    """The critic of a run, where it has one. Raises UsageError TW653 for tasks that it may not
    rank, or that nobody ranks, and TW652 for rubrics that are not there."""
    refuse(spec, tasks)
    if spec is None:
        return None
    ask = by_engine(engine) if spec.critic == "self" else by_generator(choose(spec.critic))
    chosen = tuple(rubric for file in spec.rubrics for rubric in rubrics(file))
    return Critique(spec, ask, chosen, {rubric.name: rubric for rubric in rubrics("task")}, tasks)


def refuse(spec: CritiqueSpec | None, tasks: Mapping[str, RlTask]) -> None:
    """Raises UsageError TW653: a critic ranks what no verifier can judge, and nothing else."""
    known = {task.kind for task in tasks.values() if task.verifiable}
    left = {task.kind for task in tasks.values() if not task.verifiable}
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
        first, second = (words.ids([Segment(word)])[0] for word in (FIRST, SECOND))
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


def comparison_batches(
    pairs: Sequence[VerifiedPair], critique: Critique, words: Vocabulary, shape: tuple[int, int]
) -> list[Weighed]:
    """Micro-batches of comparisons with the right answers of a critic, all of them together of the
    section's weight; `shape` is rows of a micro-batch and most tokens of a row."""
    rows = [_ids(words, dialog) for dialog in comparison_dialogs(pairs, critique.rubrics)]
    rows = [row for row in rows if len(row[0]) <= shape[1] + 1]
    count = sum(sum(learned[1:]) for _, learned in rows)
    batches: list[Weighed] = []
    for at in range(0, len(rows), shape[0]):
        part = rows[at : at + shape[0]]
        batch = padded(part, max(len(ids) for ids, _ in part) - 1)
        batches.append(evenly_weighed(*batch, critique.spec.weight / count))
    return batches


def _ids(words: Vocabulary, dialog: Dialog) -> tuple[list[int], list[bool]]:
    """The ids of a dialogue, and which of them are learned."""
    ids: list[int] = []
    learned: list[bool] = []
    for part in weighed(dialog):
        more = words.ids([part.segment])
        ids += more
        learned += [part.learned] * len(more)
    return ids, learned


def _question(response: Response) -> str:
    messages = response.dialog.messages
    return "\n".join(message.content for message in messages if message.role == "user")


def _answer(response: Response) -> str:
    last = response.dialog.messages[-1]
    return last.content if last.role == "assistant" else ""
