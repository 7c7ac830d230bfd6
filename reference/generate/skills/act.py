"""An assistant with tools: follows a plan, and errs by a temperament that the seed draws.

Metadata tells what a model would understand from the words: `steps` (which tool, and for each
argument whether it was said, follows from the words, or stands in which earlier result) and `goals`
(what is to be told). Everything else it reads in the dialogue: a value that the user has not said
it asks for or guesses, an id it takes from the result that is there, errors it sees as a model
does. It has never seen the world, so its mistakes are what they would be for a model.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reference.dialog import Message
from reference.generate.skill import Answer, Skill, Task

_TEMPERS: Final[dict[str, tuple[float, dict[str, float]]]] = {
    # Share of the seeds, and how likely each mistake is at a step.
    "careful": (0.50, {}),
    "hasty": (0.11, {"answer early": 0.2, "guess": 0.8, "misreport": 0.25, "ignore part": 1.0}),
    "sloppy": (0.14, {"wrong value": 0.25, "wrong tool": 0.15, "ignore part": 0.7}),
    "forgetful": (0.09, {"skip": 0.3}),
    "faint": (0.09, {"give up": 0.9, "skip": 0.05}),
    "meddling": (0.05, {"meddle": 0.3, "wrong tool": 0.1}),
    "musing": (0.02, {"think aloud": 0.5}),
}
_PATIENCE: Final = 5
"""Attempts at one step before it gives up, whatever its temper."""
_ERROR: Final = "Error: "
_PASSING: Final = "try again"


@dataclass(slots=True)
class _Sight:
    """What the dialogue shows: results by step, and where the plan stands."""

    results: dict[int, Any] = field(default_factory=dict[int, Any])
    step: int = 0
    attempts: int = 0
    """Failed or incomplete calls at this step."""
    failure: str = ""
    """The last error at this step."""
    told: int = 0
    """Goals that were answered."""


class _Plan:
    """The plan, the dialogue and the draws of one request."""

    def __init__(self, task: Task) -> None:
        self.steps: Sequence[Mapping[str, Any]] = task.words["steps"]
        self.goals: Sequence[Mapping[str, Any]] = task.words["goals"]
        self.messages = task.request.messages
        self.tools = [one["function"] for one in task.request.tools]
        self.seed = task.request.sampling.seed
        self.terse = bool(task.words.get("terse"))
        names = list(_TEMPERS)
        weights = [_TEMPERS[one][0] for one in names]
        self.temper = self.draw("temper").choices(names, weights)[0]
        user = [one.content for one in self.messages if one.role == "user"]
        self.said = "\n".join(user)
        self.sight = self._look()

    def draw(self, *words: object) -> random.Random:
        return random.Random(f"{self.seed}|{'|'.join(map(str, words))}")

    def errs(self, mistake: str, *at: object) -> bool:
        """Whether the temper makes this mistake here."""
        rate = _TEMPERS[self.temper][1].get(mistake, 0.0)
        return self.draw(mistake, *at).random() < rate

    @property
    def open_goal(self) -> Mapping[str, Any] | None:
        """The goal that was said and not answered."""
        heard = [one for one in self.goals if one["words"] in self.said]
        return heard[self.sight.told] if self.sight.told < len(heard) else None

    def _look(self) -> _Sight:
        """Goes through the dialogue; of several calls at once the first one is the plan's."""
        sight = _Sight()
        results = {one.answers: one.content for one in self.messages if one.role == "tool"}
        for message in self.messages:
            if message.role != "assistant":
                continue
            if message.calls:
                self._take(sight, results.get(message.calls[0].id, ""))
            elif "?" not in message.content and sight.told < len(self.goals):
                self._answered(sight, message)
        self._skip(sight)
        return sight

    def _take(self, sight: _Sight, told: str) -> None:
        self._skip(sight)
        result = None if told.startswith(_ERROR) else _read(told)
        careless = self.errs("ignore part", sight.step)
        if result is None or (result.get("incomplete") and not careless):
            sight.attempts += 1
            sight.failure = told if result is None else ""
            return
        sight.results[sight.step] = result
        sight.step, sight.attempts, sight.failure = sight.step + 1, 0, ""

    def _answered(self, sight: _Sight, message: Message) -> None:
        """An answer closes the goal, also one that gave up: what is left of it is dropped, unless
        the user asks for it again."""
        at = next(number for number, one in enumerate(self.messages) if one is message)
        following = self.messages[at + 1] if at + 1 < len(self.messages) else None
        if following is not None and following.content == "Please try once more.":
            sight.attempts, sight.failure = 0, ""
            return
        sight.step = max(sight.step, self.goals[sight.told]["steps"][1])
        sight.told += 1
        sight.attempts, sight.failure = 0, ""

    def _skip(self, sight: _Sight) -> None:
        """Past the steps that it forgets."""
        while sight.step < len(self.steps) and self.errs("skip", sight.step):
            sight.step += 1


def _answer(task: Task) -> Answer:
    plan = _Plan(task)
    goal, sight = plan.open_goal, plan.sight
    if goal is None:
        return Answer("All is done.")
    if sight.step >= goal["steps"][1]:
        return _final(plan, goal)
    at = sight.step
    if at > goal["steps"][0] and plan.errs("answer early", at):
        return _final(plan, goal)
    passing = _PASSING in sight.failure
    if sight.attempts >= _PATIENCE or (sight.attempts and plan.errs("give up", at, sight.attempts)):
        return Answer(f"Sorry, I could not do it. {'' if plan.terse else 'A tool failed.'}".strip())
    if sight.failure and not passing and plan.temper == "careful" and sight.attempts > 1:
        return Answer("Sorry, I could not do it.")
    return _call(plan, at)


def _call(plan: _Plan, at: int) -> Answer:
    step = plan.steps[at]
    given: dict[str, Any] = {}
    for name, source in step["arguments"].items():
        if "said" in source and source["text"] not in plan.said:
            if not plan.errs("guess", name):
                return Answer(f"What is the {source['label']}?")
            given[name] = _guess(plan, name, source["value"])
            continue
        value = source["value"] if "value" in source else _found(plan, source)
        if value is None:
            return Answer("Sorry, I could not find it.")
        given[name] = value
    tried = plan.sight.attempts
    if plan.errs("wrong value", at, tried):
        given = _mistaken(plan, at, given)
    tool = step["tool"]
    if plan.errs("wrong tool", at, tried):
        tool = plan.draw("tool", at, tried).choice([one["name"] for one in plan.tools])
    calls: list[tuple[str, Mapping[str, Any]]] = [(tool, given)]
    if plan.errs("meddle", at, tried):
        calls += _meddling(plan, at)
    text = "<think>The next tool should do it.</think>" if plan.errs("think aloud", at) else ""
    return Answer(text, tuple(calls))


def _found(plan: _Plan, source: Mapping[str, Any]) -> Any:
    number, *place = source["found"]
    result = plan.sight.results.get(number)
    value = _at(result, place)
    if value is None and result is not None and plan.temper == "careful":
        return None
    # What was forgotten or not read is taken from whatever is there.
    return value if value is not None else _any_like(plan, place)


def _any_like(plan: _Plan, place: Sequence[Any]) -> Any:
    seen = [
        value
        for result in plan.sight.results.values()
        for name, value in _leaves(result)
        if name == place[-1]
    ]
    return seen[-1] if seen else None


def _guess(plan: _Plan, name: str, like: Any) -> Any:
    """A value nobody said: of the right kind, not the right one."""
    draw = plan.draw("guess", name)
    for tool in plan.tools:
        choices = tool["parameters"].get("properties", {}).get(name, {}).get("enum")
        if choices:
            return draw.choice(choices)
    if isinstance(like, bool):
        return draw.random() < 0.5
    if isinstance(like, int | float):
        return type(like)(draw.randint(1, 99))
    return "unknown" if isinstance(like, str) else like


def _mistaken(plan: _Plan, at: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """One argument copied wrong: another id that was seen, or two signs exchanged."""
    draw = plan.draw("mistaken", at, plan.sight.attempts)
    name = draw.choice(list(given))
    value = given[name]
    others = [
        other
        for result in plan.sight.results.values()
        for key, other in _leaves(result)
        if key == name and other != value
    ]
    if others:
        return {**given, name: draw.choice(others)}
    return {**given, name: _swapped(value, draw)}


def _swapped(value: Any, draw: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + draw.choice((-10, -1, 1, 10))
    if isinstance(value, float):
        return round(value * 10, 2)
    if isinstance(value, str) and len(value) > 1:
        at = draw.randrange(len(value) - 1)
        return value[:at] + value[at + 1] + value[at] + value[at + 2 :]
    return value


def _meddling(plan: _Plan, at: int) -> list[tuple[str, Mapping[str, Any]]]:
    """A call nobody asked for, of a tool of which all arguments can be had from what was seen."""
    seen = dict(pair for result in plan.sight.results.values() for pair in _leaves(result))
    said = {
        name: source["value"]
        for step in plan.steps
        for name, source in step["arguments"].items()
        if source.get("text", "\0") in plan.said
    }
    known = {**said, **seen}
    used = {one["tool"] for one in plan.steps}
    fit = [
        one
        for one in plan.tools
        if one["name"] not in used
        and all(name in known for name in one["parameters"].get("required", ()))
    ]
    if not fit:
        return []
    tool = plan.draw("meddle", at).choice(fit)
    needed = tool["parameters"].get("required", ())
    return [(tool["name"], {name: known[name] for name in needed})]


def _final(plan: _Plan, goal: Mapping[str, Any]) -> Answer:
    told = [_fact(plan, one) for one in goal["facts"]]
    done = [] if told and plan.terse else [_done(plan, goal)]
    return Answer(" ".join([*told, *(one for one in done if one)]))


def _fact(plan: _Plan, fact: Mapping[str, Any]) -> str:
    value = _at(plan.sight.results.get(fact["step"]), fact["place"])
    draw = plan.draw("made up", fact["label"])
    if value is None:
        value = draw.randint(1, 999)
    elif plan.errs("misreport", fact["label"]):
        value = _swapped(value, draw)
    text = _say(value)
    return f"The {fact['label']} is {text}."


def _done(plan: _Plan, goal: Mapping[str, Any]) -> str:
    changes = [plan.steps[at]["purpose"] for at in range(*goal["steps"]) if plan.steps[at]["does"]]
    if not changes:
        return ""
    if plan.terse:
        return "Done."
    return plan.draw("done", goal["steps"]).choice(("That is done.", "Done.", "I have done that."))


def _say(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _read(text: str) -> dict[str, Any] | None:
    """A result, out of its wrapping if it has one; None for what is no object."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if isinstance(value, dict) and isinstance(value.get("result"), dict):
        return {**value["result"]}
    return value if isinstance(value, dict) else None


def _at(value: Any, place: Sequence[Any]) -> Any:
    for at in place:
        if isinstance(value, dict):
            value = value.get(at)
        elif isinstance(value, list) and isinstance(at, int) and at < len(value):
            value = value[at]
        else:
            return None
    return value


def _leaves(value: Any, name: str = "") -> list[tuple[str, Any]]:
    """Plain values of a result with the names under which they stand."""
    if isinstance(value, dict):
        return [pair for key, one in value.items() for pair in _leaves(one, key)]
    if isinstance(value, list):
        return [pair for one in value for pair in _leaves(one, name)]
    return [(name, value)]


SKILL = Skill(
    "act",
    "An assistant with tools that errs by its temper: metadata `steps` (tool, arguments, does), "
    "`goals` (words, steps, facts), `terse`.",
    _answer,
)
