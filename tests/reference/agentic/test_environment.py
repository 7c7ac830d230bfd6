"""Who ends a dialogue, who sees what, and what a budget counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from reference.agentic.environment import Budget, play
from reference.agentic.simulated import END, request_of
from reference.dialog import Call, Dialog, Message
from reference.generate.request import ChatRequest, Reply, ReplyPiece, Sampling, Tokens
from reference.generate.rules import RuleGenerator
from tests.reference.agentic.worlds import asking, environments, right
from twin.errors import Problem, UsageError


@dataclass
class Scripted:
    """A generator that says what a function says, and keeps what it was asked."""

    say: Callable[[ChatRequest], Message]
    asked: list[ChatRequest] = field(default_factory=list[ChatRequest])

    def complete(self, request: ChatRequest) -> Reply:
        self.asked.append(request)
        said = self.say(request)
        return Reply(said.content, said.calls, Tokens(None, None), "stop")

    def stream(self, request: ChatRequest) -> Iterator[ReplyPiece]:
        raise NotImplementedError


def test_the_agent_cannot_end_a_dialogue_that_has_a_second_goal() -> None:
    environment = asking(goals=2)
    second = environment.task.goals[1].words
    agent = Scripted(lambda _: Message("assistant", f"{END} The dialogue is over. Goodbye."))
    found = play(environment, agent, Budget())
    assert [one.content for one in found.dialog.messages if one.role == "user"][1] == second
    assert found.ended == "user"
    assert not found.verdict.success


def test_the_user_sees_neither_calls_nor_results_nor_reasoning() -> None:
    environment = asking(facts=True, changes=False, goals=1)
    dialog = right(environment).dialog
    thought = Message("assistant", "<think>secret plan</think>I shall look.")
    request = request_of(environment.task, Dialog((*dialog.messages, thought), dialog.tools))
    shown = "\n".join(one.content for one in request.messages)
    assert "secret" not in shown
    assert "I shall look." in shown
    assert not any(one.calls or one.role == "tool" for one in request.messages)
    for message in dialog.messages:
        if message.role == "tool":
            assert message.content not in shown
    assert not request.tools


def test_a_value_that_is_withheld_is_said_when_asked_and_only_then() -> None:
    environment = asking(withheld=True, goals=1)
    slot = next(iter(environment.task.withheld))
    said = environment.task.stated[slot]
    opening = environment.opening

    def reply(text: str) -> str | None:
        asked = Message("assistant", text)
        dialog = Dialog((*opening.messages, asked), opening.tools)
        return environment.reply(environment.start(), dialog)

    assert said.text in (reply(f"What is the {said.label}?") or "")
    assert said.text not in (reply("What is your shoe size?") or "")
    assert reply("All is done.") is None


def test_a_user_who_is_asked_the_same_for_ever_gives_up() -> None:
    environment = asking(goals=1)
    agent = Scripted(lambda _: Message("assistant", "Who are you?"))
    found = play(environment, agent, Budget(steps=100))
    assert found.ended == "user"
    assert found.steps < 10


def test_messages_calls_and_turns_share_one_budget() -> None:
    environment = asking(goals=1)
    call = Call("x", environment.task.steps[0].tool, "{}")
    agent = Scripted(lambda _: Message("assistant", "", (call, call)))
    found = play(environment, agent, Budget(steps=7))
    calls = sum(len(one.calls) for one in found.dialog.messages)
    results = sum(one.role == "tool" for one in found.dialog.messages)
    assert found.ended == "budget"
    assert not found.verdict.success
    # Two messages with two calls each are six steps; the third message is the seventh.
    assert (calls, results) == (6, 4)


def test_calls_of_a_server_get_the_ids_of_the_template() -> None:
    environment = asking(goals=1)
    name = environment.task.steps[0].tool
    agent = Scripted(
        lambda request: (
            Message("assistant", "No.")
            if request.calls
            else Message("assistant", "", (Call("call_a8", name, "{}"), Call("b", name, "{}")))
        )
    )
    found = play(environment, agent, Budget())
    ids = [call.id for one in found.dialog.messages for call in one.calls]
    assert ids == [f"functions.{name}:0", f"functions.{name}:1"]
    assert found.verdict.checks["form"]


def test_an_agent_without_an_answer_ends_the_dialogue_not_the_run() -> None:
    def fails(_: ChatRequest) -> Message:
        raise UsageError([Problem("TW550", "generator", "no server")])

    found = play(asking(goals=1), Scripted(fails), Budget())
    assert found.ended.startswith("error")
    assert "TW550" in found.ended
    assert not found.verdict.success


def test_rules_are_told_the_plan_and_no_value_of_the_world() -> None:
    for environment in environments():
        task = environment.task
        shown = json.dumps(environment.hints, ensure_ascii=False)
        said = " ".join(one.text for one in task.stated.values())
        ids = {key for rows in task.tables.values() for key in rows}
        assert not [one for one in ids if one in shown and one not in said]
        facts = [one for one in task.rubric.facts if not one.isalpha() and len(one) > 3]
        assert not [one for one in facts if one in shown and one not in said]


def test_the_embedded_agent_fails_for_several_real_causes() -> None:
    causes: Counter[str] = Counter()
    passed = played = 0
    for at, environment in enumerate(environments()):
        for seed in (at, at + 1000):
            found = play(environment, RuleGenerator(), Budget(sampling=Sampling(seed=seed)))
            causes.update(found.verdict.causes)
            passed += found.verdict.success
            played += 1
            assert found.verdict.success != bool(found.verdict.causes)
    assert 0.6 < passed / played < 0.9
    assert len(causes) >= 5
