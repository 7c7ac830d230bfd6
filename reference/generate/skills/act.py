"""An assistant with tools that follows a plan, and errs by a temper drawn from the seed.

The metadata holds what a model would understand from the words: `steps` (the tool, and for each
argument whether it is stated, implied, or in an earlier result) and `goals` (what to tell). The
rest it reads in the dialogue: it asks for a value that the user has not stated, or guesses it; it
takes ids from results; it sees errors as a model does. It never sees the world.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reference.dialog import Message, json_object, texts_of
from reference.generate.rules import Skill, SkillAnswer, SkillTask

_TEMPERS: Final[dict[str, tuple[float, dict[str, float]]]] = {
    # Share of the seeds, and the probability of each mistake at a step.
    "careful": (0.50, {}),
    "hasty": (0.11, {"answer early": 0.2, "guess": 0.8, "misreport": 0.25, "ignore part": 1.0}),
    "sloppy": (0.14, {"wrong value": 0.25, "wrong tool": 0.15, "ignore part": 0.7}),
    "forgetful": (0.09, {"skip": 0.3}),
    "faint": (0.09, {"give up": 0.9, "skip": 0.05}),
    "meddling": (0.05, {"meddle": 0.3, "wrong tool": 0.1}),
    "musing": (0.02, {"think aloud": 0.5}),
}
_PATIENCE: Final = 5
"""Attempts at one step before it gives up."""
_ERROR: Final = "Error: "
_PASSING: Final = "try again"
_UNABLE: Final = "Sorry, I could not do it."


@dataclass(slots=True)
class _Sight:
    """What the dialogue shows: results by step, and the position in the plan."""

    results: dict[int, Any] = field(default_factory=dict[int, Any])
    step: int = 0
    attempts: int = 0
    """Failed or incomplete calls at this step."""
    failure: str = ""
    """The last error at this step."""
    told: int = 0
    """Answered goals."""


class _Plan:
    """The plan, the dialogue and the draws of one request."""

    def __init__(self, task: SkillTask) -> None:
        self.steps: Sequence[Mapping[str, Any]] = task.words["steps"]
        self.goals: Sequence[Mapping[str, Any]] = task.words["goals"]
        self.messages = task.request.messages
        self.tools = [tool["function"] for tool in task.request.tools]
        self.seed = task.request.sampling.seed
        self.terse = bool(task.words.get("terse"))
        weights = [share for share, _ in _TEMPERS.values()]
        self.temper = self.draw("temper").choices(list(_TEMPERS), weights)[0]
        self.said = "\n".join(texts_of(self.messages, "user"))
        self.sight = self._look()

    def draw(self, *words: object) -> random.Random:
        return random.Random(f"{self.seed}|{'|'.join(map(str, words))}")

    def errs(self, mistake: str, *at: object) -> bool:
        """Whether the temper makes this mistake here."""
        rate = _TEMPERS[self.temper][1].get(mistake, 0.0)
        return self.draw(mistake, *at).random() < rate

    @property
    def open_goal(self) -> Mapping[str, Any] | None:
        """The goal that was stated and not answered."""
        heard = [goal for goal in self.goals if goal["words"] in self.said]
        return heard[self.sight.told] if self.sight.told < len(heard) else None

    def _look(self) -> _Sight:
        """Read the dialogue; the first of several calls at once is the plan's."""
        sight = _Sight()
        tools = [message for message in self.messages if message.role == "tool"]
        results = {message.answers: message.content for message in tools}
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
        """An answer closes the goal, also when it gave up, unless the user asks again."""
        at = next(number for number, other in enumerate(self.messages) if other is message)
        following = self.messages[at + 1] if at + 1 < len(self.messages) else None
        if following is not None and following.content == "Please try once more.":
            sight.attempts, sight.failure = 0, ""
            return
        sight.step = max(sight.step, self.goals[sight.told]["steps"][1])
        sight.told += 1
        sight.attempts, sight.failure = 0, ""

    def _skip(self, sight: _Sight) -> None:
        """Go past the steps that it forgets."""
        while sight.step < len(self.steps) and self.errs("skip", sight.step):
            sight.step += 1


def _answer(task: SkillTask) -> SkillAnswer:
    plan = _Plan(task)
    goal, sight = plan.open_goal, plan.sight
    if goal is None:
        return SkillAnswer("All is done.")
    if sight.step >= goal["steps"][1]:
        return _final(plan, goal)
    at = sight.step
    if at > goal["steps"][0] and plan.errs("answer early", at):
        return _final(plan, goal)
    passing = _PASSING in sight.failure
    if sight.attempts >= _PATIENCE or (sight.attempts and plan.errs("give up", at, sight.attempts)):
        return SkillAnswer(_UNABLE if plan.terse else f"{_UNABLE} A tool failed.")
    if sight.failure and not passing and plan.temper == "careful" and sight.attempts > 1:
        return SkillAnswer(_UNABLE)
    return _call(plan, at)


def _call(plan: _Plan, at: int) -> SkillAnswer:
    step = plan.steps[at]
    given: dict[str, Any] = {}
    for name, source in step["arguments"].items():
        if "said" in source and source["text"] not in plan.said:
            if not plan.errs("guess", name):
                return SkillAnswer(f"What is the {source['label']}?")
            given[name] = _guess(plan, name, source["value"])
            continue
        value = source["value"] if "value" in source else _found(plan, source)
        if value is None:
            return SkillAnswer("Sorry, I could not find it.")
        given[name] = value
    tried = plan.sight.attempts
    if plan.errs("wrong value", at, tried):
        given = _mistaken(plan, at, given)
    tool = step["tool"]
    if plan.errs("wrong tool", at, tried):
        tool = plan.draw("tool", at, tried).choice([tool["name"] for tool in plan.tools])
    calls: list[tuple[str, Mapping[str, Any]]] = [(tool, given)]
    if plan.errs("meddle", at, tried):
        calls += _meddling(plan, at)
    text = "<think>The next tool should do it.</think>" if plan.errs("think aloud", at) else ""
    return SkillAnswer(text, tuple(calls))


def _found(plan: _Plan, source: Mapping[str, Any]) -> Any:
    number, *place = source["found"]
    result = plan.sight.results.get(number)
    value = value_at(result, place)
    if value is None and result is not None and plan.temper == "careful":
        return None
    # A forgotten or unread value is taken from any result.
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
    """A wrong value of the right type."""
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
    """One argument copied wrong: another seen value, or two exchanged characters."""
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
    """An unwanted call of a tool whose arguments were all seen."""
    seen = dict(pair for result in plan.sight.results.values() for pair in _leaves(result))
    said = {
        name: source["value"]
        for step in plan.steps
        for name, source in step["arguments"].items()
        if source.get("text", "\0") in plan.said
    }
    known = {**said, **seen}
    used = {step["tool"] for step in plan.steps}
    fit = [
        tool
        for tool in plan.tools
        if tool["name"] not in used and known.keys() >= set(tool["parameters"].get("required", ()))
    ]
    if not fit:
        return []
    tool = plan.draw("meddle", at).choice(fit)
    needed = tool["parameters"].get("required", ())
    return [(tool["name"], {name: known[name] for name in needed})]


def _final(plan: _Plan, goal: Mapping[str, Any]) -> SkillAnswer:
    told = [_fact(plan, fact) for fact in goal["facts"]]
    done = "" if told and plan.terse else _done(plan, goal)
    return SkillAnswer(" ".join([*told, done] if done else told))


def _fact(plan: _Plan, fact: Mapping[str, Any]) -> str:
    value = value_at(plan.sight.results.get(fact["step"]), fact["place"])
    draw = plan.draw("made up", fact["label"])
    if value is None:
        value = draw.randint(1, 999)
    elif plan.errs("misreport", fact["label"]):
        value = _swapped(value, draw)
    words = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
    return f"The {fact['label']} is {words}."


def _done(plan: _Plan, goal: Mapping[str, Any]) -> str:
    changes = [plan.steps[at]["purpose"] for at in range(*goal["steps"]) if plan.steps[at]["does"]]
    if not changes:
        return ""
    if plan.terse:
        return "Done."
    return plan.draw("done", goal["steps"]).choice(("That is done.", "Done.", "I have done that."))


def _read(text: str) -> dict[str, Any] | None:
    """A result without its wrapping; None if it is no object."""
    value = json_object(text)
    if value is not None and isinstance(value.get("result"), dict):
        return {**value["result"]}
    return value


def value_at(value: Any, place: Sequence[Any]) -> Any:
    """The value at a place of a result; None if there is none."""
    for at in place:
        if isinstance(value, dict):
            value = value.get(at)
        elif isinstance(value, list) and isinstance(at, int) and at < len(value):
            value = value[at]
        else:
            return None
    return value


def _leaves(value: Any, name: str = "") -> list[tuple[str, Any]]:
    """The plain values of a result with their names."""
    if isinstance(value, dict):
        return [pair for key, item in value.items() for pair in _leaves(item, key)]
    if isinstance(value, list):
        return [pair for item in value for pair in _leaves(item, name)]
    return [(name, value)]


SKILLS = (
    Skill(
        "act",
        "An assistant that errs by its temper: metadata `steps` (tool, arguments, does), "
        "`goals` (words, steps, facts), `terse`.",
        _answer,
    ),
)
