"""Rollouts: whole dialogues, pauses that change nothing, and the bounds that end a response."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from reference.dialog import Message
from reference.inference.engine import Engine
from reference.inference.spec import EngineSpec
from reference.model import Transformer
from reference.model.transformer import initialize
from reference.rl.records import NOBODY, PromptGroup, Response, group_json, group_of
from reference.rl.rollout import DivergedError
from reference.text.template import render
from tests.reference.inference.small import LATENT, VOCABULARY, engine
from tests.reference.rl.scripted import Scripted
from tests.reference.rl.worlds import CHARACTERS, SUMS, adds, responses, rollout, steps_to
from twin.spec.model import ModelSpec

GOALS = [task.environment.goal for task in SUMS.values()]  # pyright: ignore[reportAttributeAccessIssue]


def planned(seed: int, said: int) -> Message:
    """Each seed is a response to the task of its number; every second one gives up early."""
    messages = steps_to(GOALS[seed % len(GOALS)])
    if seed % 2:
        messages = [messages[0], Message("assistant", "no"), *messages[1:]]
    return messages[min(said, len(messages) - 1)]


def columns(one: Response) -> tuple[list[int], list[float], list[float], list[bool]]:
    learned = [version != NOBODY for version in one.versions]
    return one.tokens, one.behaviour, one.policy, learned


def test_a_dialogue_with_tools_is_played_to_its_end_and_judged() -> None:
    found = responses(SUMS)
    rollout(Scripted(planned), SUMS).run(found)
    assert all(one.finished and one.ended == "over" for one in found)
    assert [one.verdict.success for one in found if one.verdict] == [True] * len(found)
    roles = [one.role for one in found[1].dialog.messages]
    assert roles[:2] == ["user", "assistant"]
    assert "user" in roles[2:], "the user asks once more"
    assert roles.count("tool") == -(-GOALS[1] // 3)


def test_tokens_are_what_the_template_writes_and_only_the_models_are_learned() -> None:
    found = responses(SUMS)
    rollout(Scripted(planned), SUMS).run(found)
    for one in found:
        assert [*one.prompt, *one.tokens] == VOCABULARY.ids(render(one.dialog))
        text = "".join(
            VOCABULARY.spelled(token)
            for token, version in zip(one.tokens, one.versions, strict=True)
            if version != NOBODY
        )
        assert text.endswith("done<|im_end|>")
        assert "Return of" not in text
        assert "im_assistant" not in text
        assert all(
            (version == NOBODY) == (now == then == 0.0)
            for version, now, then in zip(one.versions, one.behaviour, one.policy, strict=True)
        )


@pytest.mark.parametrize("pause", ["slice", "tokens"])
def test_a_thousand_interruptions_lose_and_double_nothing(pause: str) -> None:
    """Between two of them the records go to JSON and back, and the weights get a new version."""
    whole, cut = responses(SUMS), responses(SUMS)
    alone = rollout(straight := Scripted(planned), SUMS, latency="50ms")
    alone.run(whole)
    interruptions = drawn = 0
    for number in range(len(cut)):
        while not cut[number].finished:
            scripted = Scripted(planned, weights=interruptions)
            part = rollout(scripted, SUMS, latency="50ms", **{pause: 1})
            one = cut[number : number + 1]
            part.run(one)
            if pause == "tokens":
                part.rest(one)
            one[0].due = max(0, one[0].due - part.clock)  # a new one counts from 0
            drawn += scripted.drawn
            written = json.loads(json.dumps(group_json(PromptGroup(0, "", one))))
            (cut[number],) = group_of(written).responses
            interruptions += 1
    assert [columns(one) for one in cut] == [columns(one) for one in whole]
    assert [one.verdict for one in cut] == [one.verdict for one in whole]
    assert [one.dialog.messages for one in cut] == [one.dialog.messages for one in whole]
    assert drawn == straight.drawn == sum(one.written for one in whole)
    for one in cut:
        versions = [version for version in one.versions if version != NOBODY]
        assert versions == sorted(set(versions)), "each token in a segment of its own"
    assert interruptions >= 1000


def test_paused_responses_of_a_model_go_on_as_if_nothing_had_been() -> None:
    whole, cut = responses(CHARACTERS, 3), responses(CHARACTERS, 3)
    rollout(engine(), CHARACTERS, cap=20).run(whole)
    served, pauses = engine(), 0
    while not all(one.finished for one in cut):
        rollout(served, CHARACTERS, cap=20, tokens=13).run(cut)
        pauses += 1
    assert pauses > 10
    assert [one.tokens for one in cut] == [one.tokens for one in whole]
    near = [
        (ours, theirs)
        for a, b in zip(cut, whole, strict=True)
        for ours, theirs in zip(a.policy, b.policy, strict=True)
    ]
    assert max(abs(ours - theirs) for ours, theirs in near) < 1e-5


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_log_probabilities_are_the_trainers(dtype: torch.dtype, bound: float) -> None:
    model = Transformer(ModelSpec.model_validate(LATENT), dtype=dtype)
    initialize(model, 0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data *= parameter.shape[-1] ** -0.5 / 0.02
    served = Engine(model, VOCABULARY, EngineSpec())
    found = responses(CHARACTERS)
    part = rollout(served, CHARACTERS, cap=12, tokens=15)
    while part.run(found) == "spent":
        part.rest(found)
    for one in found:
        ids = torch.tensor([[*one.prompt, *one.tokens]])
        now = model(ids)[0, len(one.prompt) - 1 : -1].double().log_softmax(-1)
        ours = now.gather(1, ids[0, len(one.prompt) :, None])[:, 0]
        assert (ours - torch.tensor(one.policy, dtype=torch.float64)).abs().max() < bound


def test_a_response_over_its_bound_is_cut_and_judged_as_it_stands() -> None:
    found = responses(SUMS)
    rollout(Scripted(planned), SUMS, cap=400, caps={"sums": 30}).run(found)
    for one in found:
        assert one.ended == "budget"
        assert one.written == 30
        assert one.verdict is not None


def test_a_response_ends_with_its_context_and_with_its_steps() -> None:
    found = responses(SUMS)
    rollout(Scripted(planned), SUMS, context=len(found[0].prompt) + 90).run(found)
    assert {one.ended for one in found} <= {"context", "over"}
    assert all(one.finished for one in found)
    assert "context" in {one.ended for one in found}
    again = responses(SUMS)
    rollout(Scripted(planned), SUMS, steps=1).run(again)
    assert {one.ended for one in again} == {"steps"}
    assert all(one.steps == 1 and one.state for one in again), "the calls of the last are done"


def test_going_round_in_circles_ends_a_response() -> None:
    def circling(seed: int, said: int) -> Message:
        del seed, said
        return Message("assistant", "abc" * 30)

    found = responses(SUMS)
    rollout(Scripted(circling), SUMS, repeat={"window": 24, "times": 4}).run(found)
    assert {one.ended for one in found} == {"repeat"}
    assert {one.written for one in found} == {24}
    assert all(one.dialog.messages[-1].content == "abc" * 8 for one in found)


def test_a_limit_on_environments_makes_answers_wait() -> None:
    found, slow = responses(SUMS, 3), responses(SUMS, 3)
    many = rollout(Scripted(planned), SUMS, latency="100ms", spread=0.0, at_once=64)
    few = rollout(Scripted(planned), SUMS, latency="100ms", spread=0.0, at_once=1)
    many.run(found)
    few.run(slow)
    assert few.clock > 2 * many.clock
    assert [one.tokens for one in slow] == [one.tokens for one in found]
    assert few.clock >= 10 * few.seen.answers, "one at a time, ten steps each"


def test_a_slow_environment_does_not_hold_an_iteration_up() -> None:
    """With patience for three quarters of the whole time, most are over and the tail goes on."""
    slow: dict[str, Any] = {"latency": "100ms", "spread": 2.0}
    whole, found = responses(SUMS, 3), responses(SUMS, 3)
    patient = rollout(Scripted(planned), SUMS, **slow)
    patient.run(whole)
    patience = patient.clock * 3 // 4
    part = rollout(Scripted(planned), SUMS, **slow, patience=patience)
    assert part.run(found) == "spent"
    assert part.clock == patience
    waiting = [one for one in found if not one.finished]
    assert 0 < len(waiting) < len(found) / 2
    dues = [one.due for one in waiting if one.asks]
    part.rest(waiting)
    assert [one.due for one in waiting if one.asks] == [due - patience for due in dues]
    assert part.run(found) == "done"
    assert [columns(one) for one in found] == [columns(one) for one in whole]


def test_an_environment_that_fails_ends_the_response_and_says_why() -> None:
    class Broken:
        opening = SUMS["0/sums-0"].environment.opening

        def start(self) -> int:
            return 0

        def call(self, *_: object) -> tuple[int, str]:
            raise RuntimeError("out of memory")

    tasks = {name: replace(task, environment=Broken()) for name, task in SUMS.items()}
    found = responses(tasks)
    part = rollout(Scripted(planned), tasks)
    part.run(found)
    assert {one.ended for one in found} == {"failed"}
    assert "out of memory" in part.seen.failures[0]


def test_logits_that_are_no_numbers_end_the_run() -> None:
    model = Transformer(ModelSpec.model_validate(LATENT))
    initialize(model, 0)
    model.head.weight.data.fill_(torch.nan)
    with pytest.raises(DivergedError):
        rollout(Engine(model, VOCABULARY, EngineSpec()), CHARACTERS).run(responses(CHARACTERS))


def test_calls_in_one_message_are_done_in_order() -> None:
    found = responses({"0/sums-0": SUMS["0/sums-0"]})

    def twice(seed: int, said: int) -> Message:
        del seed
        return adds(9, 9) if said == 0 else Message("assistant", "done")

    rollout(Scripted(twice), SUMS).run(found)
    told = [one.content for one in found[0].dialog.messages if one.role == "tool"]
    assert told == ["9", "18"]
