"""A critic ranks answers: pairs of them under rubrics, and the share of pairs that each wins.

A pair is asked about in both orders, so that a bias for the first or the second place helps
neither. A critic says how likely the first answer is the better one. If its log-odds are the
difference of the answers plus a bias for the place (Bradley-Terry with an effect of order, Davidson
and Beaver 1977, doi:10.2307/2529740), then half the difference of both orders is free of the bias,
however strong. A critic that only names an answer has odds of all or nothing: orders that differ
are a tie.

An answer is quoted as a JSON string, so that it cannot pretend to be the other one or the question.

A verifier knows the outcome of some comparisons: of a right and a wrong answer to one question.
They teach a critic (as dialogues of `reference.sft`, or beside the objective), weigh its rubrics,
and measure how far it can be trusted.

In a run the policy's own engine answers as the critic, held to one of two words; what counts is the
likelihood of each. It is asked between a rollout's end and the engine's sleep, when the engine is
idle; afterwards the engine forgets, so that nothing is left at a place where the run can stop.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import exp, sqrt
from pathlib import Path
from typing import Annotated, Any, Final

import torch
from pydantic import Field, Strict
from torch import Tensor

from reference.dialog import Dialog, Message, dialog_json
from reference.generate.choose import choose
from reference.generate.request import ChatRequest, Generator, Reply, Sampling, complete_many
from reference.inference.engine import Engine
from reference.inference.request import EngineRequest
from reference.rl.batches import evenly_weighed, padded
from reference.rl.gym.support import fit_logistic
from reference.rl.records import PromptGroup, Response, opening
from reference.rl.tasks import RlTask
from reference.text.loader import Weighed
from reference.text.template import Segment, weighed
from reference.text.tokenizer import Vocabulary
from twin.errors import Problem, TwinError, UsageError
from twin.loading.load import load_config
from twin.loading.tree import hint
from twin.spec.base import Count, Flag, Spec, Whole

FOLDER: Final = Path(__file__).with_name("rubrics")
FIRST, SECOND = "A", "B"
"""The answers of a critic."""
SURE: Final = 0.9
"""Share from which a mandatory rubric decides a pair. OURS: the report's rubrics are prose."""
_AT_ONCE: Final = 8
"""Requests to a generator in parallel."""
_SAID: Final = re.compile(rf"\W*([{FIRST}{SECOND}])(?:\W.*)?", re.DOTALL)
_PROSE: Final = re.compile(r"\W*A [a-z]")
Critic = Callable[[Sequence[Dialog]], Sequence[float]]
"""For each question, how likely the first answer is the better one, 0 to 1; one half for
unknown."""


class CritiqueSpec(Spec):
    """The critic of responses to prompts that cannot be verified, and how it learns."""

    critic: str = "self"
    """self: the policy's own engine; else a generator: the address of a server, or the folder of a
    run."""
    rubrics: Annotated[tuple[str, ...], Field(min_length=1)] = ("core", "prescriptive")
    """Built-in files of rubrics, or files of one's own."""
    kinds: tuple[str, ...] = ()
    """Kinds of tasks that are ranked, none of which may be verifiable; empty: all that are not."""
    weight: Annotated[float, Strict(), Field(ge=0, le=1e3)] = 0.0
    """Closed loop, of critic `self`: weight of the mean cross-entropy on comparisons that the
    iteration's verifiable responses decide, beside the objective; 0: none. OURS."""
    pairs: Count = 8
    """Most such comparisons in a step."""
    check: Whole = 0
    """Comparisons of an iteration that the critic is asked about before it learns from them: the
    metric `agreement`; 0: none."""


class Rubric(Spec):
    """A criterion for comparing answers."""

    name: str
    """Unique among all rubrics."""
    asks: str
    """What a better answer does, in one sentence."""
    weight: Annotated[float, Strict(), Field(ge=0, le=100)] = 1.0
    """Its weight beside the others."""
    mandatory: Flag = False
    """An answer that surely loses it, in both orders, loses the pair."""


class RubricsSpec(Spec):
    """A file of rubrics."""

    rubrics: Annotated[tuple[Rubric, ...], Field(min_length=1)]
    """In order."""


def names() -> list[str]:
    """The built-in files."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def rubrics(file: str) -> tuple[Rubric, ...]:
    """The rubrics of a built-in file, by name, or of a file of one's own. Raises UsageError TW652
    where there is none."""
    path = Path(file) if Path(file).is_file() else FOLDER / f"{file}.yaml"
    if not path.is_file():
        fix = hint(file, names(), "or name a YAML file")
        raise UsageError([Problem("TW652", "critique.rubrics", f"no rubrics `{file}`", fix)])
    return load_config(RubricsSpec, path).rubrics


@dataclass(frozen=True, slots=True)
class AnswerPair:
    """Two answers to a question, and the rubric that compares them."""

    question: str
    one: str
    other: str
    rubric: Rubric


def dialog_of(pair: AnswerPair, *, swapped: bool) -> Dialog:
    """The prompt of the critic; `swapped`: with the other answer first."""
    first, second = (pair.other, pair.one) if swapped else (pair.one, pair.other)
    lines = (
        f"Which is better, {FIRST} or {SECOND}? {pair.rubric.asks}",
        json.dumps(pair.question, ensure_ascii=False),
        f"{FIRST}: {json.dumps(first, ensure_ascii=False)}",
        f"{SECOND}: {json.dumps(second, ensure_ascii=False)}",
    )
    return Dialog((Message("user", "\n".join(lines)),))


def outcomes(critic: Critic, pairs: Sequence[AnswerPair]) -> list[float]:
    """How likely the one answer of each pair is the better one, free of the bias for a place; one
    half for equal answers, which are not asked about."""
    differ = [pair for pair in pairs if pair.one != pair.other]
    asked = [dialog_of(pair, swapped=swapped) for pair in differ for swapped in (False, True)]
    said = critic(asked) if asked else []
    unbiased = iter(_both(said[at], 1 - said[at + 1]) for at in range(0, len(said), 2))
    return [next(unbiased) if pair.one != pair.other else 0.5 for pair in pairs]


def outcomes_by_rubric(
    critic: Critic, answers: Sequence[tuple[str, str, str]], rubrics: Sequence[Rubric]
) -> list[Sequence[float]]:
    """The same for triples of a question and two answers, under each rubric."""
    said = outcomes(critic, [AnswerPair(*each, rubric) for each in answers for rubric in rubrics])
    size = len(rubrics)
    return [said[at * size : (at + 1) * size] for at in range(len(answers))]


def _both(one: float, swapped: float) -> float:
    """The chance with the mean of two log-odds; certainty in both ways is a tie."""
    for_it, against = sqrt(one * swapped), sqrt((1 - one) * (1 - swapped))
    return for_it / (for_it + against) if for_it + against else 0.5


def by_generator(generator: Generator) -> Critic:
    """A generator as a critic, which names an answer. Raises the generator's errors."""

    def ask(dialogs: Sequence[Dialog]) -> list[float]:
        sampling = Sampling(temperature=0.0, max_tokens=4)
        requests = [
            ChatRequest(dialog.messages, dialog.tools, sampling, {"kind": "compare"})
            for dialog in dialogs
        ]
        return [_won(reply) for reply in complete_many(generator, requests, _AT_ONCE)]

    return ask


def _won(reply: Reply | TwinError) -> float:
    """The first answer's share by a reply; a reply that names neither is a tie."""
    if isinstance(reply, TwinError):
        raise reply
    named = None if _PROSE.match(reply.text) else _SAID.fullmatch(reply.text)
    return 0.5 if named is None else float(named[1] == FIRST)


def win_rates(
    critic: Critic, question: str, answers: Sequence[str], rubrics: Sequence[Rubric]
) -> list[float]:
    """For each answer the mean over the others of what it wins against them, 0 to 1; their mean is
    one half. Empty answers lose to others, unasked. OURS: the report gives no scalar."""
    places = list(combinations(range(len(answers)), 2))
    asked = [
        (one, other) for one, other in places if answers[one].strip() and answers[other].strip()
    ]
    triples = [(question, answers[one], answers[other]) for one, other in asked]
    said = outcomes_by_rubric(critic, triples, rubrics)
    known = {pair: combined(rubrics, own) for pair, own in zip(asked, said, strict=True)}
    won = [0.0] * len(answers)
    for one, other in places:
        # 1, 0 or a half where an answer is empty.
        unasked = (1 + bool(answers[one].strip()) - bool(answers[other].strip())) / 2
        share = known.get((one, other), unasked)
        won[one] += share
        won[other] += 1 - share
    return [each / max(1, len(answers) - 1) for each in won]


def combined(rubrics: Sequence[Rubric], said: Sequence[float]) -> float:
    """What an answer wins by outcomes under several rubrics: their weighted mean, unless mandatory
    ones are surely lost or won, all in one direction."""
    must = [each for rubric, each in zip(rubrics, said, strict=True) if rubric.mandatory]
    won, lost = any(each >= SURE for each in must), any(each <= 1 - SURE for each in must)
    if won != lost:
        return float(won)
    total = sum(rubric.weight for rubric in rubrics)
    weighed = sum(rubric.weight * each for rubric, each in zip(rubrics, said, strict=True))
    return weighed / total if total else 0.5


QuestionAnswers = tuple[str, Sequence[tuple[str, bool]]]
"""A question, and answers with whether they are right."""


@dataclass(frozen=True, slots=True)
class VerifiedPair:
    """Two answers to a question, of which a verifier accepts the first only."""

    question: str
    right: str
    wrong: str


def verified_pairs(groups: Iterable[QuestionAnswers], most: int, seed: int) -> list[VerifiedPair]:
    """At most so many pairs, in an order of the seed, each answer in one of them at most."""
    pairs: list[VerifiedPair] = []
    for question, answers in groups:
        right = [text for text, good in answers if good and text.strip()]
        wrong = [text for text, good in answers if not good and text.strip()]
        both = zip(right, wrong, strict=False)
        pairs += [VerifiedPair(question, good, bad) for good, bad in both if good != bad]
    random.Random(f"outcomes {seed}").shuffle(pairs)
    return pairs[:most]


def comparison_dialogs(pairs: Sequence[VerifiedPair], rubrics: Sequence[Rubric]) -> list[Dialog]:
    """The right answers of a critic: each pair in both orders, under the rubrics in turn."""
    dialogs: list[Dialog] = []
    for at, each in enumerate(pairs):
        pair = AnswerPair(each.question, each.right, each.wrong, rubrics[at % len(rubrics)])
        for swapped, says in ((False, FIRST), (True, SECOND)):
            asked = dialog_of(pair, swapped=swapped)
            dialogs.append(replace(asked, messages=(*asked.messages, Message("assistant", says))))
    return dialogs


def comparison_rows(
    pairs: Sequence[VerifiedPair], rubrics: Sequence[Rubric]
) -> list[Mapping[str, Any]]:
    """The same as lines of a file that `reference.sft` learns from."""
    dialogs = comparison_dialogs(pairs, rubrics)
    return [{"id": f"critique-{at}", **dialog_json(dialog)} for at, dialog in enumerate(dialogs)]


def agreement(
    critic: Critic, pairs: Sequence[VerifiedPair], rubrics: Sequence[Rubric]
) -> float | None:
    """Share of the pairs whose right answer the critic prefers, ties half; None without any."""
    if not pairs:
        return None
    won = [combined(rubrics, said) for said in _outcomes(critic, pairs, rubrics)]
    return sum(0.5 if each == 0.5 else float(each > 0.5) for each in won) / len(won)


def refined(
    critic: Critic, pairs: Sequence[VerifiedPair], rubrics: Sequence[Rubric], ridge: float = 0.05
) -> tuple[Rubric, ...]:
    """Rubrics weighed by how well each predicts the verifiers: a logistic regression of the outcome
    on the critic's outcomes under each, none below 0. Mandatory ones stay so. For a critic that
    cannot be trained itself; OURS."""
    if not pairs:
        return tuple(rubrics)
    won = [[each - 0.5 for each in said] for said in _outcomes(critic, pairs, rubrics)]
    both = [*won, *([-each for each in row] for row in won)]
    labels = [1.0] * len(won) + [0.0] * len(won)
    weights = fit_logistic(both, labels, ridge).weights
    return tuple(
        rubric.model_copy(update={"weight": min(100.0, max(0.0, weight))})
        for rubric, weight in zip(rubrics, weights, strict=False)
    )


def _outcomes(
    critic: Critic, pairs: Sequence[VerifiedPair], rubrics: Sequence[Rubric]
) -> list[Sequence[float]]:
    """How likely the right answer of each pair is the better one, under each rubric."""
    answers = [(pair.question, pair.right, pair.wrong) for pair in pairs]
    return outcomes_by_rubric(critic, answers, rubrics)


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
