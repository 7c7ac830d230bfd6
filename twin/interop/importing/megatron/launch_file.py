"""A file of Megatron-LM's arguments to the arguments: a launch script, a YAML file, or plain text.

YAML is that of Megatron-LM's own tests and of launchers around it: `--num-layers: 61` or
`num_layers: 61`, at the top or under `MODEL_ARGS`; true is a switch that is on, false and null are
none. Of a script the last command that runs a Python file counts (one named `pretrain` before all
others); where none does, all options that it has.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twin.errors import Origin, Problem, UsageError
from twin.interop.importing.megatron.arguments import Argument, arguments_of
from twin.interop.importing.megatron.shell import Command, Script, follow
from twin.loading.files import display, read_text
from twin.loading.tree import Branch, Items, Leaf, Node, plain
from twin.loading.yaml_text import read_yaml, split_lines

_VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")
_SECTION = "MODEL_ARGS"
_PLAIN = (".txt", ".args")
_YAML = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Written:
    """The arguments of a file in order, the launcher's among them, and what was left out."""

    arguments: tuple[Argument, ...]
    remarks: tuple[str, ...]


def read_arguments(path: Path, defined: Mapping[str, str], more: Sequence[str]) -> Written:
    """The arguments of a file, and behind them `more` of them, which win. `defined` are variables
    that whoever asks knows.

    Raises `UsageError` where the file cannot be read or holds no arguments.
    """
    text = read_text(path)
    name = display(path)
    if path.suffix.lower() in _YAML:
        found = _of_yaml(text, name, defined)
    else:
        found = _of_script(text, name, defined, plain=path.suffix.lower() in _PLAIN)
    if not found.arguments:
        message = f"`{name}` holds no arguments of Megatron-LM"
        fix = "give a launch script, a YAML file or a list of `--option value`"
        raise UsageError([Problem("TW041", "", message, fix)])
    added, _ = arguments_of((word, None) for words in more for word in shlex.split(words))
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
        return list(chosen[0].words)
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
    section = tree.children.get(_SECTION)
    chosen, left = tree, list[str]()
    if section is not None and isinstance(section.node, Branch):
        chosen = section.node
        left = [key for key in tree.children if key != _SECTION]
    remarks = [f"The section `{key}` holds no arguments, and is left out." for key in left]
    return Written(tuple(_options(chosen, defined)), tuple(remarks))


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
