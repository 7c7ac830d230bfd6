"""The choice of the next tasks, by their difficulty so far.

K2 takes prompts of moderate difficulty, measured by the pass@k of the fine-tuned model (report,
section 3.2.1); K1.5 draws them in proportion to one less their success rate, easy ones first
(arXiv:2501.12599, section 2.3.4). InProcess difficulty is what the run's own responses say. A task
that nobody has tried counts as wanted. A curriculum opens levels by the clock (`level_every`) or by
what is mastered (`advance`); `cover` raises tags that were rarely drawn. Draws follow from seed,
count and history alone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Literal

from reference.evaluate.statistics import pass_at
from reference.rl.tasks import RlTask
from twin.errors import Problem, UsageError
from twin.spec.base import Count, Part, Spec, Whole

Select = Literal["even", "failing", "moderate"]
VERSION: Final = 1
"""Of the file of `--measure`."""
_FLOOR: Final = 0.02
"""Weight of a task that is not wanted: it may have become so."""


class PromptsSpec(Spec):
    """How many prompts an iteration has under way, and how they are chosen."""

    count: Count = 8
    """Prompts under way in an iteration."""
    select: Select = "even"
    """even: all tasks equally often (with `advance` or `cover`: at random, alike); failing: in
    proportion to one less the share of right responses (K1.5); moderate: those with a share between
    `least` and `most` (K2)."""
    least: Part = 0.1
    """Of `moderate`: share of right responses."""
    most: Part = 0.9
    """Of `moderate`: share of right responses."""
    level_every: Whole = 0
    """Iterations after which the tasks of a further level join, lowest first; 0: all from the
    beginning."""
    advance: Part | None = None
    """Share of right responses, lately, to the tasks of a kind's highest open level at which its
    next level joins; it leaves again where the share falls. null: all join."""
    cover: Part = 0.0
    """How far tasks with a tag that was rarely drawn are raised: 0 not, 1 in inverse proportion to
    the draws of their rarest tag."""
    known: str | None = None
    """File of how hard the tasks are, as `--measure` writes it; null: nobody tried."""
    seed: Whole = 0
    """Of the draws, and of the tokens drawn."""


@dataclass(slots=True)
class History:
    """Results of tasks so far, by name."""

    drawn: dict[str, int] = field(default_factory=dict)
    tries: dict[str, int] = field(default_factory=dict)
    right: dict[str, int] = field(default_factory=dict)
    lately: dict[str, float] = field(default_factory=dict)
    """Share of right responses, each further group of responses counting half."""

    def add(self, task: str, tries: int, right: int) -> None:
        """Count further responses."""
        if tries:
            before = self.lately.get(task, right / tries)
            self.lately[task] = (before + right / tries) / 2
        self.tries[task] = self.tries.get(task, 0) + tries
        self.right[task] = self.right.get(task, 0) + right

    def share(self, task: str) -> float | None:
        """Share of right responses; None of an untried task."""
        tries = self.tries.get(task, 0)
        return self.right[task] / tries if tries else None

    def pass_at(self, k: int, task: str) -> float | None:
        """The chance that k responses hold a right one; None with fewer than k tries."""
        tries = self.tries.get(task, 0)
        return pass_at(k, tries, self.right[task]) if tries >= k else None


def document(history: History, made: Mapping[str, RlTask] | None = None) -> dict[str, Any]:
    """A history as JSON, with pass@k for all k that were tried; of the tasks that are `made`, means
    by kind and level, and by tag."""
    tasks: dict[str, Any] = {}
    for name, tries in history.tries.items():
        shares = [history.pass_at(k, name) for k in range(1, tries + 1)]
        tasks[name] = {"tries": tries, "right": history.right[name], "pass_at": shares}
    return {"version": VERSION, "tasks": tasks, "means": _means(tasks, made or {})}


def _means(tasks: Mapping[str, Any], made: Mapping[str, RlTask]) -> dict[str, Any]:
    """The count of tasks and their mean pass@k, by kind and level, and by tag."""
    rows: dict[str, list[list[float]]] = {}
    for name, each in tasks.items():
        if name in made:
            for tag in dict.fromkeys((f"{made[name].kind} {made[name].level}", *made[name].tags)):
                rows.setdefault(tag, []).append(each["pass_at"])
    means: dict[str, Any] = {}
    for tag, shares in sorted(rows.items()):
        by_k = zip(*shares, strict=False)  # a failed environment leaves fewer responses
        means[tag] = {"tasks": len(shares), "pass_at": [sum(k) / len(k) for k in by_k]}
    return means


def known(file: str | None) -> History:
    """The history in a `document`; empty without a file. Raises UsageError TW647."""
    history = History()
    if file is None:
        return history
    try:
        read = json.loads(Path(file).read_text(encoding="utf-8"))
        if read["version"] != VERSION:
            raise ValueError(f"version {read['version']}")  # noqa: TRY301
        for name, each in read["tasks"].items():
            history.add(name, int(each["tries"]), int(each["right"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"`{file}` does not say how hard tasks are: {error}"
        fix = "`python -m reference.rl CONFIG --measure FILE` writes one"
        raise UsageError([Problem("TW647", "prompts.known", message, fix)]) from None
    return history


def draw(
    tasks: Mapping[str, RlTask],
    history: History,
    spec: PromptsSpec,
    taken: Collection[str],
    iteration: int,
) -> str:
    """The next task, none of those `taken` while there are others; counted as drawn."""
    number = sum(history.drawn.values())
    here = _advanced(tasks, history, spec, _open(tasks, spec, iteration))
    free = [name for name in here if name not in taken] or here
    raised = _raised(tasks, history, spec, here)
    if spec.select == "even" and not spec.cover and spec.advance is None:
        least = min(history.drawn.get(name, 0) for name in free)
        free = [name for name in free if history.drawn.get(name, 0) == least]
    # Efraimidis and Spirakis 2006: the largest u^(1/w) is a draw in proportion to w.
    weights = {name: _wanted(history.share(name), spec) * raised.get(name, 1.0) for name in free}
    chosen = max(free, key=lambda name: uniform(spec.seed, number, name) ** (1 / weights[name]))
    history.drawn[chosen] = history.drawn.get(chosen, 0) + 1
    return chosen


def uniform(*parts: object) -> float:
    """A number in (0, 1) that follows from some names."""
    return (_hash(parts) >> 11) * 2.0**-53 + 2.0**-54


def seed_of(*parts: object) -> int:
    """A seed that follows from some names."""
    return _hash(parts) >> 1


def _hash(parts: tuple[object, ...]) -> int:
    text = "/".join(map(str, parts))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _open(tasks: Mapping[str, RlTask], spec: PromptsSpec, iteration: int) -> list[str]:
    """The tasks whose level has come."""
    if not spec.level_every:
        return list(tasks)
    levels = sorted({task.level for task in tasks.values()})
    highest = levels[min(iteration // spec.level_every, len(levels) - 1)]
    return [name for name, task in tasks.items() if task.level <= highest]


def _advanced(
    tasks: Mapping[str, RlTask], history: History, spec: PromptsSpec, here: list[str]
) -> list[str]:
    """Those of each kind up to the first level that is not mastered."""
    if spec.advance is None:
        return here
    found: dict[str, dict[int, list[str]]] = {}
    for name in here:
        found.setdefault(tasks[name].kind, {}).setdefault(tasks[name].level, []).append(name)
    kept: set[str] = set()
    for levels in found.values():
        for level in sorted(levels):
            kept |= {*levels[level]}
            lately = [history.lately[name] for name in levels[level] if name in history.lately]
            enough = 2 * len(lately) >= min(len(levels[level]), 2 * spec.count)
            if not lately or not enough or sum(lately) < spec.advance * len(lately):
                break
    return [name for name in here if name in kept]


def _raised(
    tasks: Mapping[str, RlTask], history: History, spec: PromptsSpec, here: list[str]
) -> dict[str, float]:
    """By task the power `cover` of how often tags were drawn on average against its rarest one."""
    if not spec.cover:
        return {}
    drawn = {tag: 0 for name in here for tag in tasks[name].tags}
    for name in here:
        for tag in tasks[name].tags:
            drawn[tag] += history.drawn.get(name, 0)
    mean = sum(drawn.values()) / max(1, len(drawn))
    rarest = {name: min((drawn[tag] for tag in tasks[name].tags), default=mean) for name in here}
    return {name: ((mean + 1) / (least + 1)) ** spec.cover for name, least in rarest.items()}


def _wanted(share: float | None, spec: PromptsSpec) -> float:
    """The weight of a task with this share of right responses."""
    match spec.select:
        case "failing":
            return max(_FLOOR, 1 - (share or 0.0))
        case "moderate":
            return 1.0 if share is None or spec.least <= share <= spec.most else _FLOOR
        case "even":
            return 1.0
