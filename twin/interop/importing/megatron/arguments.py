"""The arguments of one launch, taken one by one, so that none is passed over in silence.

As argparse reads them: an option takes the words behind it up to the next one, `--a=b` is `--a b`,
and of an option that is given twice the last counts. Underscores in names are taken for hyphens,
as in the files of Megatron-LM's wrappers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from twin.errors import Origin, Problem
from twin.loading.files import read_data
from twin.loading.suggest import hint, nearest

_OPEN = re.compile(r"\$(\{?\w+|\()|`")
"""What is left of a variable or a command whose value nobody knows."""
_TRUE, _FALSE = frozenset({"", "true", "True", "1"}), frozenset({"false", "False", "0", "none"})


@dataclass(frozen=True, slots=True)
class Argument:
    """One option as it is written: its name without hyphens before it, and its values."""

    name: str
    values: tuple[str, ...] = ()
    origin: Origin | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """As words of a command line."""
        return (f"--{self.name}", *self.values)


@dataclass(slots=True)
class Arguments:
    """The options of one launch, with the problems and remarks that taking them brought."""

    given: dict[str, Argument]
    taken: set[str] = field(default_factory=set[str])
    problems: list[Problem] = field(default_factory=list[Problem])
    remarks: list[str] = field(default_factory=list[str])
    """What the result leaves out or assumes, as sentences."""

    @classmethod
    def of(cls, written: Iterable[Argument]) -> Arguments:
        """Options by name; of equal names the last counts."""
        return cls({one.name.replace("_", "-"): one for one in written})

    def __contains__(self, name: str) -> bool:
        return name in self.given

    def values(self, name: str) -> tuple[str, ...]:
        """All values of an option, each of which is known; none where it is absent."""
        self.taken.add(name)
        found = self.given.get(name)
        if found is None:
            return ()
        open_ = next((value for value in found.values if _OPEN.search(value)), None)
        if open_ is None:
            return found.values
        variable = re.search(r"\w+", open_)
        fix = f"--define {variable.group()}=..." if variable else "write the value"
        self.refuse(name, f"`--{name}` is `{open_}`, which the file does not say", fix, "TW011")
        return ()

    def text(self, name: str, default: str, choices: Sequence[str] = ()) -> str:
        """The value of an option; one of some choices, where these are given."""
        values = self.values(name)
        value = values[0] if values else default
        if choices and value not in choices:
            self.refuse(name, f"`--{name} {value}` is not known", hint(value, choices), "TW016")
            return default
        return value

    def flag(self, name: str) -> bool:
        """Whether a switch is on: given without a value, or with one that says so."""
        self.taken.add(name)
        found = self.given.get(name)
        if found is None:
            return False
        value = found.values[0] if found.values else ""
        if value.startswith("$"):
            self.remark(
                f"`{value}` holds arguments that this file does not say: they are left out."
            )
            return True
        if value not in _TRUE | _FALSE:
            self.refuse(name, f"`--{name}` is a switch, not `{value}`", "write no value", "TW014")
        return value in _TRUE

    def count(self, name: str, default: int | None = None, least: int = 1) -> int:
        """A whole number of at least `least`; `least`, after a problem, where it is none."""
        missing = len(self.problems)
        value = self.text(name, "")
        if not value and default is not None:
            return default
        if not value:
            if len(self.problems) == missing:
                fix = f"--with '--{name} NUMBER'"
                self.refuse(name, f"there is no `--{name}`", fix, "TW011")
            return least
        if not re.fullmatch(r"\d+", value):
            self.refuse(name, f"`--{name} {value}` must be a whole number", "", "TW014")
        elif int(value) < least:
            self.refuse(name, f"`--{name} {value}` must be at least {least}", "", "TW015")
        else:
            return int(value)
        return least

    def number(self, name: str, default: float) -> float:
        """A number, whole or not."""
        value = self.text(name, "")
        try:
            return float(value) if value else default
        except ValueError:
            self.refuse(name, f"`--{name} {value}` must be a number", "", "TW014")
            return default

    def refuse(self, name: str, message: str, fix: str = "", code: str = "TW042") -> None:
        """Note a problem at an option, once."""
        found = self.given.get(name)
        problem = Problem(code, f"--{name}", message, fix, found.origin if found else None)
        if problem not in self.problems:
            self.problems.append(problem)

    def remark(self, sentence: str) -> None:
        """Note what the result leaves out or assumes, once."""
        if sentence not in self.remarks:
            self.remarks.append(sentence)

    def finish(self) -> None:
        """Refuse, or tell by name, what nobody took."""
        for name, argument in self.given.items():
            off = bool(argument.values) and argument.values[0] in _FALSE
            known = _known()
            if name in self.taken or off or known.is_harmless(name):
                continue
            shown = " ".join(argument.words)
            if name in known.refused:
                self.refuse(name, f"`{shown}` cannot be expressed: {known.refused[name]}")
            elif name in known.uncounted:
                self.remark(f"`{shown}`: {known.uncounted[name]}.")
            else:
                near = nearest(name, known.harmless | known.uncounted.keys() | self.taken)
                meant = f"; did you mean `--{near}`?" if near else ""
                self.remark(f"`{shown}` is unknown here, and is left out{meant}")


def arguments_of(words: Iterable[tuple[str, Origin | None]]) -> tuple[list[Argument], list[str]]:
    """The options among words, in order; and the words before the first of them."""
    found: list[Argument] = []
    before: list[str] = []
    for word, origin in words:
        if re.match(r"--[A-Za-z]", word):
            name, equals, value = word[2:].partition("=")
            found.append(Argument(name, (value,) if equals else (), origin))
        elif found:
            found[-1] = replace(found[-1], values=(*found[-1].values, word))
        else:
            before.append(word)
    return found, before


@dataclass(frozen=True, slots=True)
class _KnownOptions:
    """The options of `known.yaml`; reasons by option."""

    prefixes: tuple[str, ...]
    harmless: frozenset[str]
    uncounted: Mapping[str, str]
    refused: Mapping[str, str]

    def is_harmless(self, name: str) -> bool:
        """Whether leaving the option out changes nothing that is counted."""
        return name in self.harmless or name.startswith(self.prefixes)


@cache
def _known() -> _KnownOptions:
    data = read_data(Path(__file__).with_name("known.yaml"))
    harmless = frozenset(name for group in data["harmless"].values() for name in group)
    uncounted, refused = (
        {name: reason for reason, names in data[key].items() for name in names}
        for key in ("uncounted", "refused")
    )
    return _KnownOptions(tuple(data["prefixes"]), harmless, uncounted, refused)
