"""Scenario files on disk: which file a name means, and the files that it extends."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from twin.errors import Origin, Problem, UsageError
from twin.loading.suggest import hint
from twin.loading.tree import Branch, Items, Leaf, Node
from twin.loading.yaml_text import read_yaml, split_lines

Arrival = Literal["extends", "names"]
"""How a file comes in: a scenario extends it, or names it as a catalog part."""

_PACKAGE = Path(__file__).parents[1]


def shipped_folder() -> Path:
    """Where the scenarios of this installation are: inside the package of an installed wheel,
    beside it in a checkout."""
    installed = _PACKAGE / "_scenarios"
    return installed if installed.is_dir() else _PACKAGE.parent / "scenarios"


def shipped_scenarios() -> tuple[str, ...]:
    """The names of the shipped scenarios, sorted."""
    return tuple(sorted(path.stem for path in shipped_folder().glob("*.yaml")))


def find_scenario(name: str | Path) -> Path:
    """The file that a path or the bare name of a shipped scenario means.

    Raises `UsageError` with the nearest names where there is none.
    """
    path = Path(name)
    if path.is_file():
        return path
    shipped = shipped_folder() / f"{name}.yaml"
    if path.name == str(name) and shipped.is_file():
        return shipped
    message = f"there is no scenario `{name}`"
    raise UsageError([Problem("TW001", "", message, _nearest_file(path))])


def _nearest_file(path: Path) -> str:
    beside = [str(path.parent / entry.name) for entry in path.parent.glob("*.yaml")]
    names = [*sorted(beside), *shipped_scenarios()]
    return hint(str(path), names, "give a file, or one of the shipped")


def display(path: Path) -> str:
    """A path as a reader knows it: relative to where the command runs, if it is below."""
    if not path.is_absolute():
        return os.path.normpath(path)
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def read_tree(
    path: Path, arrival: Origin | None = None, how: Arrival = "extends"
) -> tuple[Branch | None, list[Problem]]:
    """The mapping that a YAML file holds (None where it holds none), and what is wrong with it.
    `arrival` is the place that brought the file in."""
    name = display(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = "is not UTF-8 text" if isinstance(error, ValueError) else "cannot be read"
        return None, [Problem("TW001", "", f"`{name}` {reason}", "", arrival)]
    lines = split_lines(text)

    def locate(line: int, column: int, width: int) -> Origin:
        shown = lines[line] if line < len(lines) else ""
        return Origin(name, line + 1, column + 1, shown, width, arrival, how)

    tree, problems = read_yaml(text, locate)
    if isinstance(tree, Branch):
        return tree, problems
    if not problems:
        place = tree.origin if tree else locate(0, 0, 1)
        problems = [Problem("TW005", "", "the file must hold keys with values", "", place)]
    return None, problems


@dataclass(slots=True)
class Family:
    """A scenario file with everything that it extends."""

    trees: list[Branch] = field(default_factory=list[Branch])
    """From the most basic file to the scenario itself; each goes over those before it."""
    folders: list[Path] = field(default_factory=list[Path])
    """The folders of these files, the scenario's own first."""
    problems: list[Problem] = field(default_factory=list[Problem])
    complete: bool = True
    """False where a file could not be read, so that what it would have said is not missed."""


def read_family(path: Path) -> Family:
    """The file, and before it in `trees` all that it extends, depth first."""
    family = Family()
    _read_member(path, None, (), family)
    return family


def _read_member(
    path: Path, arrival: Origin | None, descendants: tuple[Path, ...], family: Family
) -> None:
    folder = path.parent
    if folder not in family.folders:
        family.folders.append(folder)
    tree, problems = read_tree(path, arrival)
    family.problems.extend(problems)
    if tree is None:
        family.complete = False
        return
    lineage = (*descendants, path.resolve())
    for leaf in _parents(tree, family):
        parent = _find_parent(str(leaf.value), folder)
        if parent is None:
            near = _nearest_file(folder / str(leaf.value))
            missing = Problem("TW001", "extends", f"no file `{leaf.value}`", near, leaf.origin)
            family.problems.append(missing)
            family.complete = False
        elif parent.resolve() in lineage:
            family.problems.append(_circle(leaf, lineage[lineage.index(parent.resolve()) :]))
            family.complete = False
        else:
            _read_member(parent, leaf.origin, lineage, family)
    own = {key: child for key, child in tree.children.items() if key != "extends"}
    family.trees.append(Branch(own, tree.origin))


def _parents(tree: Branch, family: Family) -> list[Leaf]:
    """The names under `extends`: one, or a list."""
    child = tree.children.get("extends")
    if child is None:
        return []
    nodes: Sequence[Node] = child.node.nodes if isinstance(child.node, Items) else (child.node,)
    names: list[Leaf] = []
    for node in nodes:
        if isinstance(node, Leaf) and isinstance(node.value, str):
            names.append(node)
        else:
            message = "`extends` takes a file name, or a list of them"
            family.problems.append(Problem("TW005", "extends", message, "", node.origin))
    return names


def _find_parent(name: str, folder: Path) -> Path | None:
    shipped = shipped_folder()
    candidates = (folder / name, shipped / name, shipped / f"{name}.yaml")
    return next((path for path in candidates if path.is_file()), None)


def _circle(leaf: Leaf, loop: Sequence[Path]) -> Problem:
    names = " -> ".join(path.name for path in (*loop, loop[0]))
    message = f"these files extend each other: {names}"
    return Problem("TW004", "extends", message, "remove one `extends` of the circle", leaf.origin)
