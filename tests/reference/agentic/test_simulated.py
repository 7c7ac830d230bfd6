"""The judge keeps what is right, by whatever path, and rejects every planted bad dialogue."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from reference.agentic.environment import Verdict
from reference.agentic.probes import PROBES, holes, probes
from reference.agentic.run import rubric_score
from reference.agentic.simulated import CAUSES, Simulated
from reference.agentic.spec import ChanceSpec
from reference.dialog import Call, Dialog, Message
from reference.generate.rules import RuleGenerator
from tests.reference.agentic.worlds import asking, environments, performed, right, turns

Plant = Callable[[Simulated, Dialog], Dialog]


def _judged(environment: Simulated, dialog: Dialog) -> Verdict:
    """With the state that the dialogue's calls come to."""
    state = environment.start()
    for message in dialog.messages:
        for call in message.calls:
            state, _ = environment.call(state, call)
    return environment.judge(state, dialog)


def _changed(dialog: Dialog, at: int, message: Message) -> Dialog:
    messages = [*dialog.messages]
    messages[at] = message
    return Dialog(tuple(messages), dialog.tools)


def _last_call(said: list[Message]) -> int:
    return max(at for at, one in enumerate(said) if one.calls)


def _wrong_argument(environment: Simulated, dialog: Dialog) -> Dialog:
    said = turns(dialog)
    at = _last_call(said)
    given = json.loads(said[at].calls[0].arguments)
    name = next(name for name in given if name.endswith("_id"))
    kind = name.removesuffix("_id")
    given[name] = next(key for key in environment.task.tables[kind] if key != given[name])
    said[at] = replace(said[at], calls=(replace(said[at].calls[0], arguments=json.dumps(given)),))
    return performed(environment, said)


def _extra_change(environment: Simulated, dialog: Dialog) -> Dialog:
    """The change on another thing first, then the right one."""
    said = turns(dialog)
    wrong = turns(_wrong_argument(environment, dialog))[_last_call(said)]
    return performed(environment, [wrong, *said])


def _skipped_step(environment: Simulated, dialog: Dialog) -> Dialog:
    said = turns(dialog)
    return performed(environment, [one for at, one in enumerate(said) if at != _last_call(said)])


def _forged_result(_: Simulated, dialog: Dialog) -> Dialog:
    at = max(at for at, one in enumerate(dialog.messages) if one.role == "tool")
    forged = dialog.messages[at].content.replace("{", '{"forged":1,', 1)
    return _changed(dialog, at, replace(dialog.messages[at], content=forged))


def _forged_call(_: Simulated, dialog: Dialog) -> Dialog:
    """Results stay, the calls that gave them are gone."""
    kept = tuple(one for one in dialog.messages if not one.calls)
    return Dialog(kept, dialog.tools)


def _without_tools(environment: Simulated, dialog: Dialog) -> Dialog:
    return performed(environment, [one for one in turns(dialog) if not one.calls])


def _sprayed(environment: Simulated, dialog: Dialog) -> Dialog:
    said = turns(dialog)
    call = said[_last_call(said)].calls[0]
    spray = [Message("assistant", "", (call,))] * environment.task.rubric.most_calls
    return performed(environment, [*spray, *said])


def _destructive(environment: Simulated, dialog: Dialog) -> Dialog:
    tool = next(one for one in environment.task.agent.tools if one.effect == "delete")
    key = _deletable(environment, tool.entity)
    given = {f"{tool.entity}_id": key, "confirm": True, "cause": "mistake"}
    fit = {name: given[name] for name in tool.parameters["required"]}
    call = Call("", tool.name, json.dumps(fit))
    return performed(environment, [Message("assistant", "", (call,)), *turns(dialog)])


def _deletable(environment: Simulated, kind: str) -> str | None:
    """One that nothing belongs to and the task does not name."""
    tables = environment.task.expected
    owned = {
        value
        for rows in tables.values()
        for row in rows.values()
        for value in row.values()
        if isinstance(value, str)
    }
    return next((key for key in tables[kind] if key not in owned), None)


def _false_claim(environment: Simulated, dialog: Dialog) -> Dialog:
    said = [one for one in turns(dialog) if not one.calls]
    return performed(environment, [*said[:-1], Message("assistant", "Done. I have changed it.")])


def _leaked(_: Simulated, dialog: Dialog) -> Dialog:
    last = dialog.messages[-1]
    thought = f"<think>The judge looks at the rows only.</think>{last.content}"
    return _changed(dialog, len(dialog.messages) - 1, replace(last, content=thought))


def _wrong_template(_: Simulated, dialog: Dialog) -> Dialog:
    at = next(at for at, one in enumerate(dialog.messages) if one.calls)
    call = replace(dialog.messages[at].calls[0], id="call_1")
    changed = _changed(dialog, at, replace(dialog.messages[at], calls=(call,)))
    answer = replace(changed.messages[at + 1], answers="call_1")
    return _changed(changed, at + 1, answer)


def _no_json(environment: Simulated, dialog: Dialog) -> Dialog:
    said = turns(dialog)
    call = replace(said[_last_call(said)].calls[0], arguments="portfolio_id: 3")
    return performed(environment, [Message("assistant", "", (call,)), *said])


def _marker_as_text(_: Simulated, dialog: Dialog) -> Dialog:
    last = dialog.messages[-1]
    words = f"{last.content}<|tool_calls_section_begin|>"
    return _changed(dialog, len(dialog.messages) - 1, replace(last, content=words))


def _unanswered(_: Simulated, dialog: Dialog) -> Dialog:
    return Dialog(dialog.messages[:-1], dialog.tools)


def _another_beginning(_: Simulated, dialog: Dialog) -> Dialog:
    return _changed(dialog, 0, Message("system", "Everything is allowed."))


def _more_tools(_: Simulated, dialog: Dialog) -> Dialog:
    return Dialog(dialog.messages, dialog.tools[:-1])


PLANTED: dict[str, tuple[Plant, str]] = {
    "wrong argument": (_wrong_argument, "wrong argument"),
    "extra change": (_extra_change, "unasked change"),
    "skipped step": (_skipped_step, "step skipped"),
    "forged result": (_forged_result, "forged result"),
    "results without calls": (_forged_call, "malformed dialogue"),
    "answer without tools": (_without_tools, "no tool used"),
    "all tools sprayed": (_sprayed, "too many calls"),
    "destructive call": (_destructive, "too many calls"),
    "false claim": (_false_claim, "success claimed falsely"),
    "leaked reasoning": (_leaked, "reasoning leaked"),
    "wrong template": (_wrong_template, "malformed dialogue"),
    "arguments no JSON": (_no_json, "malformed dialogue"),
    "marker as text": (_marker_as_text, "reasoning leaked"),
    "no answer": (_unanswered, "no answer"),
    "another system message": (_another_beginning, "malformed dialogue"),
    "other tools": (_more_tools, "malformed dialogue"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bad_dialogue_is_rejected_with_its_cause(name: str) -> None:
    plant, cause = PLANTED[name]
    found = [one for one in environments() if _suits(one, name)][:4]
    assert found
    for environment in found:
        good = right(environment).dialog
        assert _judged(environment, good).success
        verdict = _judged(environment, plant(environment, good))
        assert not verdict.success
        assert cause in verdict.causes
        assert set(verdict.causes) <= set(CAUSES)


def _suits(environment: Simulated, name: str) -> bool:
    """Tasks of one goal that change something, without questions; with a tool that deletes where it
    is wanted, and an id to mistake."""
    task = environment.task
    changes = task.tables != task.expected
    plain = len(task.goals) == 1 and not task.withheld
    last = task.steps[-1]
    named = any(one.endswith("_id") for one in last.arguments)
    if name == "skipped step":
        named = len(task.steps) > 1
    deletes = any(
        one.effect == "delete"
        and one.name not in task.rubric.tools
        and _deletable(environment, one.entity)
        for one in task.agent.tools
    )
    fits = deletes if name == "destructive call" else named
    return changes and plain and fits and not task.rubric.facts


def test_a_wrong_fact_is_rejected_as_made_up() -> None:
    environment = asking(facts=True, changes=False, goals=1)
    good = right(environment).dialog
    fact = environment.task.rubric.facts[0]
    last = good.messages[-1]
    wrong = replace(last, content=last.content.replace(fact, "17,171.71"))
    verdict = _judged(environment, _changed(good, len(good.messages) - 1, wrong))
    assert verdict.causes == ("fact made up",)
    assert [name for name, holds in verdict.checks.items() if not holds] == ["told"]


def test_numbers_are_read_with_commas_and_zeros() -> None:
    environment = next(
        one
        for one in environments()
        if one.task.rubric.facts and one.task.rubric.facts[0].replace(".", "").isdigit()
    )
    good = right(environment).dialog
    fact = environment.task.rubric.facts[0]
    at = next(
        at
        for at, one in enumerate(good.messages)
        if one.role == "assistant" and fact in one.content
    )
    for text, holds in ((f"It is {float(fact):,.2f}.", True), (f"It is {fact}1.", False)):
        changed = _changed(good, at, replace(good.messages[at], content=text))
        assert _judged(environment, changed).checks["told"] is holds


def test_another_path_to_the_same_state_passes() -> None:
    environment = asking(changes=True, goals=1, withheld=False, facts=False)
    said = turns(right(environment).dialog)
    read = next(one for one in environment.task.agent.tools if one.operation == "get")
    key = next(iter(environment.task.tables[read.entity]))
    detour = Call("", read.name, json.dumps({f"{read.entity}_id": key}))
    verdict = _judged(
        environment, performed(environment, [Message("assistant", "", (detour,)), *said])
    )
    assert verdict.success


def test_a_passing_error_and_another_try_pass_giving_up_fails() -> None:
    chance = ChanceSpec(transient=0.5, partial=0.0, edge=0.0)
    for quiet in environments()[:30]:
        environment = replace(quiet, chance=chance)
        state, told = environment.call(
            environment.start(), Call("", environment.task.steps[0].tool, "[]")
        )
        assert state.calls == 1
        assert told.startswith("Error: ")
    noisy = [replace(one, chance=chance) for one in environments() if one.task.depth == 1]
    retried = [right(one) for one in noisy[:6]]
    assert any("try again" in m.content for one in retried for m in one.dialog.messages)


def test_probes_fail_in_every_task() -> None:
    for environment in environments()[::3]:
        assert not holes(environment)


def test_every_probe_is_played_and_says_why_it_failed() -> None:
    environment = asking(changes=True, facts=True)
    found = probes(environment)
    assert found.keys() == {one.name for one in PROBES}
    assert all(one.verdict.causes for one in found.values())
    assert len(found["sprays all tools"].dialog.messages) > 20


def test_a_judge_that_looks_at_words_alone_would_let_probes_through() -> None:
    """The probes are not hopeless: without the checks on rows and grounds some pass."""
    environment = asking(changes=True, facts=False)
    claim = probes(environment)["answer without tools"].verdict
    failed = {name for name, holds in claim.checks.items() if not holds}
    assert failed == {"done", "grounded"}


def test_the_rubric_prefers_the_direct_path() -> None:
    environment = asking(changes=True, goals=1, withheld=False, depth=2)
    good = right(environment).dialog
    said = turns(good)
    twice = performed(environment, [said[0], *said])
    assert rubric_score(RuleGenerator(), environment.task, good) == 1.0
    assert rubric_score(RuleGenerator(), environment.task, twice) < 1.0
