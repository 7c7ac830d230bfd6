"""Keys of a foreign format that no field of a scenario takes, by the effect of leaving them out; a
YAML file per format: `prefixes` and `harmless` change nothing that is counted, `uncounted` has what
is counted instead, `refused` the reason why no field expresses them. `synonyms` are other words for
a key that readers know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from twin.loading.files import read_data


@dataclass(frozen=True, slots=True)
class Known:
    """The keys; reasons by key."""

    prefixes: tuple[str, ...] = ()
    harmless: frozenset[str] = frozenset()
    uncounted: Mapping[str, str] = field(default_factory=dict[str, str])
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    synonyms: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])

    def is_harmless(self, name: str) -> bool:
        """Whether leaving the key out changes nothing that is counted."""
        return name in self.harmless or name.startswith(self.prefixes)

    @property
    def names(self) -> frozenset[str]:
        """All of them but prefixes, for spelling."""
        return self.harmless | self.uncounted.keys() | self.refused.keys()


@dataclass(frozen=True, slots=True)
class Tally:
    """How many keys of a file were read into fields, change nothing, or are left out and told."""

    read: int = 0
    harmless: int = 0
    left_out: int = 0

    @property
    def words(self) -> str:
        """The three counts in a sentence."""
        return (
            f"{self.read:,} keys are read, {self.harmless:,} change nothing that is counted, "
            f"{self.left_out:,} are left out."
        )

    def besides(self, keys: Tally) -> Tally:
        """With those of keys that came to no argument; the others are counted as arguments."""
        harmless, left_out = self.harmless + keys.harmless, self.left_out + keys.left_out
        return Tally(self.read, harmless, left_out)


@cache
def known_of(path: Path) -> Known:
    """The keys of a file."""
    data = read_data(path)
    harmless = frozenset(name for group in data.get("harmless", {}).values() for name in group)
    uncounted, refused = (
        {name: reason for reason, names in data.get(key, {}).items() for name in names}
        for key in ("uncounted", "refused")
    )
    prefixes, synonyms = tuple(data.get("prefixes", ())), data.get("synonyms", {})
    return Known(prefixes, harmless, uncounted, refused, synonyms)
