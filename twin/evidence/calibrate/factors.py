"""What a calibration may change: a few factors (`factors.yaml`), each on numbers of a profile, of
a node's links or of a stack's host, with a prior spread around 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from twin.loading.files import read_data
from twin.spec.base import Spec
from twin.spec.calibration import MatmulsSpec, StreamingSpec

Array = NDArray[np.float64]
_Section = TypeVar("_Section", bound=Spec)

SECONDS: Final = frozenset(
    (
        "launch", "group_launch", "attention_forward_launch", "attention_backward_launch",
        "dispatch", "latency", "exchange_start", "exchange_peer",
    )
)  # fmt: skip
"""Numbers that are times; all others are shares or ramps."""
_CEILING: Final[Mapping[str, float]] = {
    "ramp": 1e5, "slowness": 1e3, **dict.fromkeys(SECONDS, 1.0),
}  # fmt: skip
"""The most that a field takes, by the last word of its name; 1 for the others, which are shares."""
BARE_HOST: Final = "calibration.dispatch"
"""The number that says what the host of bare kernels takes; a stack has numbers of its own."""
_MOST: Final = 3.0
"""A logarithm, a factor of twenty: what a fit may never leave, whatever the field takes."""


@dataclass(frozen=True, slots=True)
class Factor:
    """One number that a fit finds: by how much it multiplies `numbers` (dotted paths below
    `calibration`, `node` or `software`), and the spread of its logarithm before any row is seen.

    A fit that frees it begins at each of `starts`: a floor that does not bind has no slope, so from
    1 alone an optimum may be missed."""

    name: str
    meaning: str
    numbers: tuple[str, ...]
    spread: float
    starts: tuple[float, ...] = (1.0,)


def _factors() -> dict[str, Factor]:
    """The factors of `factors.yaml` by name."""
    sections = {"streaming": StreamingSpec.model_fields, "matmuls": MatmulsSpec.model_fields}
    found: dict[str, Factor] = {}
    for name, given in read_data(Path(__file__).with_name("factors.yaml")).items():
        numbers = [
            path.replace("*", own)
            for path in given["numbers"]
            for own in (sections[path.split(".")[1]] if "*" in path else ("",))
        ]
        starts = tuple(given.get("starts", (1.0,)))
        found[name] = Factor(name, given["meaning"], tuple(numbers), given["spread"], starts)
    return found


NAMED_FACTORS: Final = tuple(_factors().values())
"""All factors. The last, `launch`, is fitted only on request. It is for a CPU, whose cores are host
and device at once: host time is added to its kernels, where a GPU hides one behind the other, so
that `host` and `launch` mean the same for a GPU's rows."""
STEP_FACTORS: Final = NAMED_FACTORS[:-1]
"""What step times can determine: one factor per resource that a step waits for, and one for the
kernel that differs most between stacks."""


def named(factors: Iterable[Factor], names: Iterable[str]) -> tuple[Factor, ...]:
    """The factors of some names, in their own order."""
    wanted = set(names)
    return tuple(factor for factor in factors if factor.name in wanted)


def value(spec: Spec | None, path: str) -> float | None:
    """The number at a dotted path below a section; None where a profile does not have it."""
    found: object = spec
    for name in path.split("."):
        found = getattr(found, name, None)
    return float(found) if isinstance(found, int | float) else None


def replaced(section: _Section, path: str, number: float) -> _Section:
    """The section with another number at a dotted path below it."""
    name, _, rest = path.partition(".")
    new = replaced(getattr(section, name), rest, number) if rest else number
    return section.model_copy(update={name: new})


def scaled(root: str, section: _Section, by: Mapping[Factor, float]) -> _Section:
    """The section called `root` (`calibration`, `node`, `fabric` or `software`) under some factors;
    numbers that it does not have stay away."""
    for factor, times in by.items():
        for path in factor.numbers:
            first, _, rest = path.partition(".")
            now = value(section, rest) if first == root else None
            if now is not None:
                section = replaced(section, rest, min(now * times, ceiling(path)))
    return section


def ceiling(path: str) -> float:
    """The most that the number at a path can be."""
    last = path.rpartition(".")[2]
    return _CEILING.get(last, _CEILING["ramp"] if last.endswith("_ramp") else 1.0)


def bounds(
    factors: Sequence[Factor], sections: Mapping[str, Iterable[Spec]]
) -> tuple[Array, Array]:
    """Least and most of the factors' logarithms: no number passes its ceiling."""
    highest: list[float] = []
    for factor in factors:
        rooms = [_room(section, path) for path, section in _places(factor, sections)]
        highest.append(max(0.0, min([_MOST, *rooms])))
    return np.full(len(factors), -_MOST), np.array(highest)


def _places(factor: Factor, sections: Mapping[str, Iterable[Spec]]) -> Iterable[tuple[str, Spec]]:
    for path in factor.numbers:
        root, _, rest = path.partition(".")
        for section in sections.get(root, ()):
            yield rest, section


def _room(section: Spec, path: str) -> float:
    """Logarithm of how much a number may grow."""
    now = value(section, path)
    return log(ceiling(path) / now) if now else inf
