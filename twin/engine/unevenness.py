"""How far the GPUs of a cluster differ, and which of them do the same all the same.

Two ranks do the same at the same time when their GPUs are alike and so are, member by member, the
ranks that they wait for and share links with. The coarsest such partition is found by refinement
(the colouring of Weisfeiler and Leman 1968): ranks begin apart where their GPUs differ, and part
further where their groups do, until nothing changes. One slow GPU of 2,048 leaves a handful of
kinds of ranks per pipeline stage, so its step is simulated exactly at a few times the cost of an
even cluster's. GPUs that all differ, as with jitter, leave every rank to itself.

Members that are alike count once: a collective waits for the slowest, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from twin.spec.cluster import ClusterSpec

SHARES: Final = ("compute", "nvlink", "nic", "pcie")
"""What a GPU may have less of, as in `DegradedSpec`."""

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shares:
    """What is left to a GPU: of its speed, and of the rates of its links."""

    compute: float = 1.0
    nvlink: float = 1.0
    nic: float = 1.0
    pcie: float = 1.0


ALL: Final = Shares()
"""Of a GPU like the rest."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Factors that stretches of kernels take as long: lognormal, of mean 1."""

    spread: float
    seed: int

    def factors(self, rank: int, count: int) -> NDArray[np.float64]:
        """Those of a rank, in the order of its kernels; the same each time."""
        drawn = np.random.default_rng((self.seed, rank)).standard_normal(count)
        return np.exp(self.spread * drawn - self.spread**2 / 2)


def shares(cluster: ClusterSpec) -> NDArray[np.float64]:
    """Of every GPU what is left to it, as GPUs x `SHARES`."""
    found = np.ones((cluster.gpus, len(SHARES)))
    for one in cluster.degraded:
        inside = np.zeros(cluster.gpus, bool)
        inside[list(one.gpus)] = True
        for node in one.nodes:
            inside[node * cluster.node.gpus : (node + 1) * cluster.node.gpus] = True
        found[inside] *= [getattr(one, name) for name in SHARES]
    jitter = cluster.jitter
    if jitter is not None and jitter.spread:
        drawn = np.random.default_rng(jitter.seed).standard_normal(cluster.gpus)
        # Kernels take exp(s z - s^2 / 2) as long: lognormal with mean 1.
        found[:, 0] /= np.exp(jitter.spread * drawn - jitter.spread**2 / 2)
    return found


def numbered(rows: NDArray[np.generic]) -> Numbers:
    """Equal rows have equal numbers, from 0."""
    _, numbers = np.unique(rows, axis=0, return_inverse=True)
    return numbers.reshape(-1).astype(np.int64)


def by_first(colours: Numbers) -> Numbers:
    """The same colours, numbered in the order of their first members."""
    _, first = np.unique(colours, return_index=True)
    return np.argsort(np.argsort(first))[colours]


def refined(colours: Numbers, groups: Iterable[Numbers]) -> Numbers:
    """The coarsest refinement of `colours` in which members of one colour have, of each kind of
    group, groups with the same colours. Each of `groups` numbers a member's group."""
    kinds = [*groups]
    while True:
        found = numbered(np.stack([colours, *(coloured(colours, kind) for kind in kinds)], axis=1))
        if found.max() == colours.max():
            return found
        colours = found


def coloured(colours: Numbers, groups: Numbers) -> Numbers:
    """Of every member a number that groups with the same set of colours have in common."""
    pairs = np.unique(np.stack([groups, colours], axis=1), axis=0)
    _, begins = np.unique(pairs[:, 0], return_index=True)
    sets: dict[bytes, int] = {}
    of_group = np.zeros(int(groups.max()) + 1, np.int64)
    for part in np.split(pairs, begins[1:]):
        of_group[part[0, 0]] = sets.setdefault(part[:, 1].tobytes(), len(sets))
    return of_group[groups]
