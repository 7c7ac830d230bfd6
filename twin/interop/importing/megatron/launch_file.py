"""A file of Megatron-LM's arguments to the arguments: a launch script, a YAML file, or plain text.

YAML is that of Megatron-LM's own tests and of launchers around it: `--num-layers: 61` or
`num_layers: 61`, at the top or under `MODEL_ARGS` or `ARGS`; true is a switch that is on, false and
null are none. Of a script the last command that runs a Python file counts (one named `pretrain`
before all others); where none does, all options that it has.

The arguments of one launch, taken one by one, so that none is passed over in silence.

As argparse reads them: an option takes the words behind it up to the next one, `--a=b` is `--a b`,
and of an option that is given twice the last counts. Underscores in names are taken for hyphens,
as in the files of Megatron-LM's wrappers.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from twin.errors import Origin, Problem, UsageError
from twin.interop.importing.keys import Tally, known_of
from twin.interop.importing.scripts import asked
from twin.interop.importing.shell import Command, Script, follow
from twin.interop.recognise import language
from twin.interop.tables import words_of
from twin.loading.files import display, read_text
from twin.loading.tree import Branch, Items, Leaf, Node, hint, nearest, plain
from twin.loading.yaml_text import read_yaml, split_lines

_VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")
_LAUNCHER = re.compile(r"(^|/)(torchrun|python[\d.]*|deepspeed)$")
_SECTIONS = ("MODEL_ARGS", "ARGS")
"""Of Megatron-LM's tests, and of its recipes for mixtures of experts."""
_KNOWN = Path(__file__).with_name("known.yaml")


@dataclass(frozen=True, slots=True)
class Written:
    """The arguments of a file in order, the launcher's among them, and what was left out."""

    arguments: tuple[Argument, ...]
    remarks: tuple[str, ...]


def read_arguments(path: Path, defined: Mapping[str, str], more: Sequence[str]) -> Written:
    """The arguments of a file. Raises `UsageError` where it cannot be read or holds none."""
    return read_arguments_text(read_text(path), display(path), defined, more)


def read_arguments_text(
    text: str, name: str, defined: Mapping[str, str], more: Sequence[str]
) -> Written:
    """The arguments of the text of a file, and behind them `more` of them, which win. `defined` are
    variables that whoever asks knows. Raises `UsageError` where there are none."""
    written = language(text)
    if written == "yaml":
        found = _of_yaml(text, name, defined)
    else:
        known, plain = {**asked(text).variables, **defined}, written == "arguments"
        found = _of_script(text, name, known, plain=plain)
    if not found.arguments:
        message = f"`{name}` holds no arguments of Megatron-LM"
        fix = "give a launch script, a YAML file or a list of `--option value`"
        raise UsageError([Problem("TW041", "", message, fix)])
    added, _ = arguments_of((word, None) for word in words_of(more))
    return Written((*found.arguments, *added), found.remarks)


def _of_script(text: str, name: str, defined: Mapping[str, str], *, plain: bool) -> Written:
    script = follow(text, defined, plain=plain)
    lines = split_lines(text)

    def origin(line: int) -> Origin:
        shown = lines[line - 1] if 0 < line <= len(lines) else ""
        column = len(shown) - len(shown.lstrip()) + 1
        return Origin(name, line, column, shown, max(1, len(shown.strip())))

    words = _launch(script)
    arguments, _ = arguments_of((word, origin(line)) for word, line in words)
    named = {argument.name for argument in arguments}
    remarks = [*script.remarks, *_unused(script, named)]
    remarks += [
        f"`{value}` holds arguments that this file does not say: they are left out."
        for argument in arguments
        for value in argument.values[1:]
        if value.startswith("$")
    ]
    return Written(tuple(arguments), tuple(dict.fromkeys(remarks)))


def _launch(script: Script) -> list[tuple[str, int]]:
    """The words of the command that trains; of a script without one, all that look like options."""
    having = [one for one in script.commands if any(w.startswith("--") for w in one.texts)]
    running = [one for one in having if _program(one) is not None]
    named = [one for one in running if "pretrain" in one.texts[_program(one) or 0]]
    if chosen := (named or running)[-1:]:
        texts = chosen[0].texts  # options before the launcher are those of srun
        first = next((i for i, word in enumerate(texts) if _LAUNCHER.search(word)), 0)
        return list(chosen[0].words)[first:]
    words = [word for one in having for word in one.words]
    return words or [word for held in script.values.values() for word in _option_words(held)]


def _program(command: Command) -> int | None:
    """Where the Python file stands among the words; None where there is none."""
    return next((i for i, word in enumerate(command.texts) if word.endswith(".py")), None)


def _option_words(held: str | list[tuple[str, int]]) -> list[tuple[str, int]]:
    if isinstance(held, str):
        held = [(word, 0) for word in held.split()]
    return held if any(word.startswith("--") for word, _ in held) else []


def _unused(script: Script, named: set[str]) -> list[str]:
    """Options that a variable of the script holds, and no command takes."""
    found: list[str] = []
    for variable, held in script.values.items():
        options = [
            word[2:].partition("=")[0] for word, _ in _option_words(held) if word[:2] == "--"
        ]
        if options and not named & set(options):
            shown = ", ".join(f"--{one}" for one in options)
            found.append(f"`{variable}` is used by no command here, and is left out: {shown}.")
    return found


def _of_yaml(text: str, name: str, defined: Mapping[str, str]) -> Written:
    lines = split_lines(text)

    def locate(line: int, column: int, width: int) -> Origin:
        shown = lines[line] if line < len(lines) else ""
        return Origin(name, line + 1, column + 1, shown, width)

    tree, problems = read_yaml(text, locate)
    if problems:
        raise UsageError(problems)
    if not isinstance(tree, Branch):
        return Written((), ())
    sections = [key for key in _SECTIONS if isinstance(_below(tree, key), Branch)]
    chosen, left = tree, list[str]()
    if sections:
        chosen = _below(tree, sections[0])
        assert isinstance(chosen, Branch)
        left = [key for key in tree.children if key != sections[0]]
    remarks = [f"The section `{key}` holds no arguments, and is left out." for key in left]
    return Written(tuple(_options(chosen, defined)), tuple(remarks))


def _below(tree: Branch, key: str) -> Node | None:
    child = tree.children.get(key)
    return child.node if child else None


def _options(branch: Branch, defined: Mapping[str, str]) -> list[Argument]:
    """The options of a section and of sections in it."""
    found: list[Argument] = []
    for key, child in branch.children.items():
        if isinstance(child.node, Branch):
            found += _options(child.node, defined)
            continue
        values = _values(child.node, defined)
        if values is not None:
            found.append(Argument(key.removeprefix("--"), values, child.key))
    return found


def _values(node: Node, defined: Mapping[str, str]) -> tuple[str, ...] | None:
    """The values of an option; None where it is off."""
    if isinstance(node, Items):
        return tuple(_filled(plain(one), defined) for one in node.nodes)
    assert isinstance(node, Leaf)
    if node.value is None:
        return None
    if isinstance(node.value, bool):
        return () if node.value else ("false",)
    text = _filled(node.value, defined)
    try:
        return tuple(shlex.split(text))  # as the shell that gets it would
    except ValueError:
        return (text,)


def _filled(value: Any, defined: Mapping[str, str]) -> str:
    """A value with the variables in it that are known."""
    return _VARIABLE.sub(lambda one: defined.get(one[1] or one[2], one.group()), str(value))


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
        found = self.given.get(name)
        return found is not None and found.values != ("false",)  # off, in YAML

    def values(self, name: str) -> tuple[str, ...]:
        """All values of an option, each of which is known; none where it is absent."""
        self.taken.add(name)
        found = self.given.get(name)
        if found is None or found.values == ("false",):  # off, in YAML
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

    def finish(self) -> Tally:
        """Refuse, or tell by name, what nobody took."""
        known = known_of(_KNOWN)
        counted = dict.fromkeys(("read", "harmless", "left_out"), 0)
        for name, argument in self.given.items():
            off = bool(argument.values) and argument.values[0] in _FALSE
            if name in self.taken or off or known.is_harmless(name):
                counted["read" if name in self.taken else "harmless"] += 1
                continue
            counted["left_out"] += 1
            shown = " ".join(argument.words)
            if name in known.refused:
                self.refuse(name, f"`{shown}` cannot be expressed: {known.refused[name]}")
            elif name in known.uncounted:
                self.remark(f"`{shown}`: {known.uncounted[name]}.")
            else:
                near = nearest(name, known.harmless | known.uncounted.keys() | self.taken)
                meant = f"; did you mean `--{near}`?" if near else ""
                self.remark(f"`{shown}` is unknown here, and is left out{meant}")
        return Tally(**counted)


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
