"""Which documents are read, how often and in which order.

Domains share the tokens by their weights. A domain that would be read more often than `max_epochs`
makes the whole smaller, so that weights hold. The next document is of the domain that is furthest
behind its share; within a domain each epoch has its own order from the seed. So at any point each
domain is within one document of its share. Whole documents only: the last one of a domain may reach
beyond it.

Legend: D documents, V visits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from reference.data.spec import Domain, MixtureSpec
from reference.text.packing import numbered
from twin.errors import Problem, UsageError

Lengths = Mapping[str, tuple[NDArray[np.int64], NDArray[np.int64]]]
"""By domain: the numbers of its documents, and their tokens."""


@dataclass(frozen=True, slots=True)
class Portion:
    """What a domain gives. Epochs: tokens read over tokens there are."""

    domain: str
    weight: float
    """Of 1."""
    available: int
    target: int
    tokens: int
    documents: int
    epochs: float


@dataclass(frozen=True)
class Mixture:
    """The order of reading, and each domain's part."""

    order_V: NDArray[np.int64]
    portions: tuple[Portion, ...]
    capped_by: str
    """The domain whose epochs bound the whole; empty where none does."""

    def report(self) -> dict[str, Any]:
        """As it stands in the manifest."""
        rows = [asdict(portion) for portion in self.portions]
        return {"capped_by": self.capped_by, "domains": rows}


def mix(lengths: Lengths, spec: MixtureSpec, seed: int) -> Mixture:
    """The mixture. Raises `UsageError` TW472 where a domain has weight and text nowhere."""
    if spec.epochs is not None:
        spec = _by_epochs(lengths, spec.epochs)
    weights = _weights(lengths, spec)
    available = {name: int(lengths[name][1].sum()) for name in weights}
    most = {name: spec.max_epochs * available[name] / weights[name] for name in weights}
    wanted = float(spec.tokens or sum(available.values()))
    tightest = min(most, key=lambda name: (most[name], name))
    total = min(wanted, most[tightest])
    targets = {name: round(total * weight) for name, weight in weights.items()}
    order, tokens, counts = _interleaved(lengths, targets, seed)
    portions = tuple(
        Portion(
            name,
            weights[name],
            available[name],
            targets[name],
            tokens[name],
            counts[name],
            tokens[name] / available[name],
        )
        for name in weights
    )
    capped = tightest if total < wanted else ""
    return Mixture(np.array(order, dtype=np.int64), portions, capped)


def _by_epochs(lengths: Lengths, epochs: Mapping[Any, float]) -> MixtureSpec:
    """The weights and tokens by which each domain is read so often."""
    wanted = {name: epochs.get(name, 1.0) * float(lengths[name][1].sum()) for name in lengths}
    weights = cast(
        "dict[Domain, float]", {name: most / max(wanted.values()) for name, most in wanted.items()}
    )
    return MixtureSpec(weights=weights, tokens=round(sum(wanted.values())), max_epochs=1000.0)


def _weights(lengths: Lengths, spec: MixtureSpec) -> dict[str, float]:
    """Of the domains that have text, as parts of 1."""
    there = {name: weight for name, weight in spec.weights.items() if weight and name in lengths}
    if not there:
        wrong = f"no text in any domain with a weight; there is text of: {', '.join(lengths)}"
        raise UsageError([Problem("TW472", "mixture.weights", wrong, "give one of them a weight")])
    whole = sum(there.values())
    return {name: weight / whole for name, weight in sorted(there.items())}


def _interleaved(
    lengths: Lengths, targets: Mapping[str, int], seed: int
) -> tuple[list[int], dict[str, int], dict[str, int]]:
    taken, counts = dict.fromkeys(targets, 0), dict.fromkeys(targets, 0)
    names = list(targets)
    streams = {name: _epochs(*lengths[name], seed, at) for at, name in enumerate(names)}
    order: list[int] = []
    while open_ := [name for name in names if taken[name] < targets[name]]:
        behind = min(open_, key=lambda name: (taken[name] / targets[name], name))
        document, length = next(streams[behind])
        order.append(document)
        taken[behind] += length
        counts[behind] += 1
    return order, taken, counts


def _epochs(
    documents_D: NDArray[np.int64], lengths_D: NDArray[np.int64], seed: int, domain: int
) -> Iterator[tuple[int, int]]:
    epoch = 0
    while True:
        order: Sequence[int] = np.argsort(
            numbered(seed * 4 + domain, epoch, len(documents_D)), kind="stable"
        ).tolist()
        yield from ((int(documents_D[at]), int(lengths_D[at])) for at in order)
        epoch += 1
