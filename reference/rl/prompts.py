"""Which tasks come next, by how hard they have been so far.

K2 takes prompts of moderate difficulty, measured by the pass@k of the fine-tuned model (report,
section 3.2.1); K1.5 draws them in proportion to one less their success rate, easy ones first
(arXiv:2501.12599, section 2.3.4). Here difficulty is what the run's own responses say. A task that
nobody has tried counts as wanted. Draws follow from seed and count alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Literal

from pydantic import Field

from reference.evaluate.statistics.repeats import pass_at
from reference.rl.tasks import Task
from twin.spec.base import Count, Part, Spec, Whole

Select = Literal["even", "failing", "moderate"]
_FLOOR: Final = 0.02
"""Weight of a task that is not wanted: it may have become so."""


class PromptsSpec(Spec):
    """How many prompts an iteration has under way, and how they are chosen."""

    count: Count = Field(default=8, description="prompts under way in an iteration")
    select: Select = Field(
        default="even",
        description="even: all tasks equally often; failing: in proportion to one less the share "
        "of right responses (K1.5); moderate: those with a share between `least` and `most` (K2)",
    )
    least: Part = Field(default=0.1, description="of `moderate`: share of right responses")
    most: Part = Field(default=0.9, description="of `moderate`: share of right responses")
    level_every: Whole = Field(
        default=0,
        description="iterations after which the tasks of a further level join, lowest first; 0: "
        "all from the beginning",
    )
    known: str | None = Field(
        default=None,
        description="file of how hard the tasks are, as `--measure` writes it; null: nobody tried",
    )
    seed: Whole = Field(default=0, description="of the draws, and of the tokens drawn")


@dataclass(slots=True)
class History:
    """What became of tasks so far, by name."""

    drawn: dict[str, int] = field(default_factory=dict)
    tries: dict[str, int] = field(default_factory=dict)
    right: dict[str, int] = field(default_factory=dict)

    def add(self, task: str, tries: int, right: int) -> None:
        """Further responses."""
        self.tries[task] = self.tries.get(task, 0) + tries
        self.right[task] = self.right.get(task, 0) + right

    def share(self, task: str) -> float | None:
        """Of right responses; None where nobody tried."""
        tries = self.tries.get(task, 0)
        return self.right[task] / tries if tries else None

    def pass_at(self, k: int, task: str) -> float | None:
        """The chance that k responses hold a right one; None with fewer than k tries."""
        tries = self.tries.get(task, 0)
        return pass_at(k, tries, self.right[task]) if tries >= k else None


def draw(
    tasks: Mapping[str, Task],
    history: History,
    spec: PromptsSpec,
    taken: Collection[str],
    iteration: int,
) -> str:
    """The next task, none of those `taken` while there are others; counted as drawn."""
    number = sum(history.drawn.values())
    here = _open(tasks, spec, iteration)
    free = [name for name in here if name not in taken] or here
    if spec.select == "even":
        least = min(history.drawn.get(name, 0) for name in free)
        free = [name for name in free if history.drawn.get(name, 0) == least]
    weigh = _WEIGHTS[spec.select]
    # Efraimidis and Spirakis 2006: the largest u^(1/w) is a draw in proportion to w.
    chosen = max(
        free,
        key=lambda name: uniform(spec.seed, number, name) ** (1 / weigh(history.share(name), spec)),
    )
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


def _open(tasks: Mapping[str, Task], spec: PromptsSpec, iteration: int) -> list[str]:
    """The tasks whose level has come."""
    if not spec.level_every:
        return list(tasks)
    levels = sorted({one.level for one in tasks.values()})
    highest = levels[min(iteration // spec.level_every, len(levels) - 1)]
    return [name for name, one in tasks.items() if one.level <= highest]


def _even(share: float | None, spec: PromptsSpec) -> float:
    del share, spec
    return 1.0


def _failing(share: float | None, spec: PromptsSpec) -> float:
    del spec
    return max(_FLOOR, 1 - (share or 0.0))


def _moderate(share: float | None, spec: PromptsSpec) -> float:
    return 1.0 if share is None or spec.least <= share <= spec.most else _FLOOR


_WEIGHTS: Final[Mapping[Select, Callable[[float | None, PromptsSpec], float]]] = {
    "even": _even,
    "failing": _failing,
    "moderate": _moderate,
}
